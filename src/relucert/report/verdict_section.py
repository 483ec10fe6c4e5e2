"""Verdicts on a page: how many of each kind, how soon they came, and each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from relucert.common.words import counted
from relucert.report import charts, tables
from relucert.report.markup import Markup, tag
from relucert.report.reading import REAL
from relucert.report.tables import NONE, Cell
from relucert.report.verdict_run import STATUSES, RecordedVerdict, VerdictRun

MEANING = {"holds": "proven to hold", "violated": "violated, with a witness", "unknown": "unknown"}


def verdict_section(run: VerdictRun) -> Markup:
    """Everything about the verdicts of one run."""
    inferences = dict.fromkeys(one.inference for one in run.verdicts if one.inference != REAL)
    unfinished = tag("p", "This run was not finished: the page tells of the verdicts so far.", class_="warning")
    return tag(
        "section",
        tag("h2", f"Verdicts: {run.question if run.network is None else f'{run.network} {run.question}'}"),
        None if run.complete else unfinished,
        *(tag("p", f"About every evaluation in {inference}.") for inference in inferences),
        _failures(run.verdicts),
        _tiles(run.verdicts),
        _soon(run.verdicts),
        _kinds(run.verdicts),
        tag("section", tag("h3", "One by one"), _each(run)),
    )


def _of(verdicts: Sequence[RecordedVerdict], status: str) -> list[RecordedVerdict]:
    return [one for one in verdicts if one.status == status]


def _failures(verdicts: Sequence[RecordedVerdict]) -> Markup | None:
    """A warning where errors inside methods spoilt verdicts."""
    reasons = list(dict.fromkeys(one.remark or "" for one in verdicts if one.failed))
    if not reasons:
        return None
    count = sum(one.failed for one in verdicts)
    return tag("p", f"{counted(count, 'verdict')} failed inside their method, for one: {reasons[0]}", class_="warning")


def _tiles(verdicts: Sequence[RecordedVerdict]) -> Markup:
    """The few numbers to take away."""
    tiles = [(f"{len(_of(verdicts, status))} of {len(verdicts)}", MEANING[status]) for status in STATUSES]
    return tag("dl", *(tag("div", tag("dt", words), tag("dd", count)) for count, words in tiles), class_="tiles")


def _soon(verdicts: Sequence[RecordedVerdict]) -> Markup | None:
    """The share that is decided against time; None where nothing is."""
    times = {status: [one.seconds for one in _of(verdicts, status)] for status in ("holds", "violated")}
    if not any(times.values()):
        return None
    keys = [
        tag("li", tag("span", MEANING[status], class_=f"key {charts.colour(place)}"))
        for place, (status, seconds) in enumerate(times.items())
        if seconds
    ]
    words = "The share of questions that were decided within so many seconds each."
    chart = charts.decided(times, len(verdicts))
    return tag("figure", chart, tag("ul", *keys, class_="keys"), tag("figcaption", words))


def _kinds(verdicts: Sequence[RecordedVerdict]) -> Markup:
    """One row per kind of verdict and method: how many, and how long they took."""
    rows = []
    for place, status in enumerate(STATUSES):
        for method in dict.fromkeys(one.method for one in _of(verdicts, status)):
            seconds = [one.seconds for one in _of(verdicts, status) if one.method == method]
            mean, middle = fmean(seconds), median(seconds)
            rows.append(
                [
                    Cell(tag("span", MEANING[status], class_=f"key {charts.colour(place)}")),
                    Cell(method or NONE),
                    Cell(len(seconds), len(seconds)),
                    Cell(f"{mean:.3g}", mean),
                    Cell(f"{middle:.3g}", middle),
                    Cell(f"{max(seconds):.3g}", max(seconds)),
                ]
            )
    headers = ("verdict", "by", "questions", "mean seconds", "median", "most")
    return tables.table("What decided, and how long it took", headers, rows, sortable=True)


def _each(run: VerdictRun) -> Markup:
    """One row per question."""
    remarks = any(one.remark for one in run.verdicts)
    rows = [
        [
            *(Cell(part, part if isinstance(part, int) else None) for part in one.about),
            Cell(one.status),
            Cell(one.method or NONE),
            Cell(f"{one.seconds:.3g}", one.seconds),
            Cell(f"{one.nodes:,}", one.nodes),
            *([Cell(one.remark or "", style="remark")] if remarks else []),
        ]
        for one in run.verdicts
    ]
    headers = (*run.titles, "verdict", "by", "seconds", "nodes", *(["remark"] if remarks else []))
    return tables.table("Every question", headers, rows, sortable=True)
