"""Verdicts on a page: how many of each kind, how soon they came, and each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from markupsafe import Markup

from relucert.common.words import counted
from relucert.report import charts, tables
from relucert.report.markup import render
from relucert.report.reading import REAL
from relucert.report.tables import NONE, Cell
from relucert.report.verdict_run import STATUSES, RecordedVerdict, VerdictRun

MEANING = {"holds": "proven to hold", "violated": "violated, with a witness", "unknown": "unknown"}


def verdict_section(run: VerdictRun) -> Markup:
    """Everything about the verdicts of one run."""
    verdicts = run.verdicts
    times = {status: [verdict.seconds for verdict in _of(verdicts, status)] for status in ("holds", "violated")}
    return render(
        "verdicts.html",
        question=run.question if run.network is None else f"{run.network} {run.question}",
        complete=run.complete,
        inferences=dict.fromkeys(verdict.inference for verdict in verdicts if verdict.inference != REAL),
        failures=_failures(verdicts),
        tiles=[(f"{len(_of(verdicts, status))} of {len(verdicts)}", MEANING[status]) for status in STATUSES],
        chart=charts.decided(times, len(verdicts)) if any(times.values()) else None,
        keys=[
            (charts.colour(number), MEANING[status])
            for number, (status, seconds) in enumerate(times.items())
            if seconds
        ],
        kinds=_by_status(verdicts),
        each=_each(run),
    )


def _of(verdicts: Sequence[RecordedVerdict], status: str) -> list[RecordedVerdict]:
    return [verdict for verdict in verdicts if verdict.status == status]


def _failures(verdicts: Sequence[RecordedVerdict]) -> str | None:
    """How many verdicts errors inside methods spoilt, and what the first error says; None without any."""
    remarks = [verdict.remark or "" for verdict in verdicts if verdict.failed]
    return f"{counted(len(remarks), 'verdict')} failed inside their method, for one: {remarks[0]}" if remarks else None


def _by_status(verdicts: Sequence[RecordedVerdict]) -> Markup:
    """A table with one row per status and method: how many verdicts they have, and how long these took."""
    rows = []
    for number, status in enumerate(STATUSES):
        for method in dict.fromkeys(verdict.method for verdict in _of(verdicts, status)):
            seconds = [verdict.seconds for verdict in _of(verdicts, status) if verdict.method == method]
            rows.append(
                [
                    Cell(MEANING[status], key=charts.colour(number)),
                    Cell(method or NONE),
                    tables.number(len(seconds)),
                    *(tables.number(time, "{:.3g}") for time in (fmean(seconds), median(seconds), max(seconds))),
                ]
            )
    headers = ("verdict", "by", "questions", "mean seconds", "median", "most")
    return tables.table("What decided, and how long it took", headers, rows, sortable=True)


def _each(run: VerdictRun) -> Markup:
    """A table with one row per question."""
    rows = [
        [
            *(Cell(word, word if isinstance(word, int) else None) for word in verdict.about),
            Cell(verdict.status),
            Cell(verdict.method or NONE),
            tables.number(verdict.seconds, "{:.3g}"),
            tables.number(verdict.nodes, "{:,}"),
            Cell(verdict.remark or "", style="remark"),
        ]
        for verdict in run.verdicts
    ]
    headers = (*run.titles, "verdict", "by", "seconds", "nodes", tables.REMARK)
    return tables.table("Every question", headers, rows, sortable=True)
