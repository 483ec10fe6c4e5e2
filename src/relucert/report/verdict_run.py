"""Verdicts about a property, a list of them, or images: as `relucert verify --json` records them, and on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from markupsafe import Markup

from relucert.common.words import counted
from relucert.report import charts, tables
from relucert.report.domain import in_words, read_domain
from relucert.report.fields import finite, norm, number, optional, text, whole
from relucert.report.markup import render
from relucert.report.reading import REAL, Recorded, inference_of, read_rows
from relucert.report.sections import NORMS
from relucert.report.tables import NONE, Cell

STATUSES = {"holds": "proven to hold", "violated": "violated, with a witness", "unknown": "unknown"}
RESULTS = {"unsat": "holds", "sat": "violated"}  # the competition's words; all others are unknown


@dataclass(frozen=True)
class RecordedVerdict:
    """One verdict.

    Attributes:
        question: What was asked, in words that the run's other verdicts share.
        about: What it was asked about, one word or number for each of the run's `titles`.
        status: "holds" (proven), "violated" (with a witness) or "unknown".
        method: What decided it; None where nothing did.
        remark: Why nothing did, and whatever else there is to say.
        failed: Whether an error inside the method spoilt it.
    """

    question: str
    about: tuple[str | int, ...]
    status: str
    seconds: float
    nodes: int
    method: str | None
    remark: str | None
    inference: str
    failed: bool = False


@dataclass(frozen=True)
class VerdictRun(Recorded):
    """A record of verdicts.

    Attributes:
        network: The name of the network that images were asked about; None for properties.
        titles: Of what each verdict is about.
    """

    verdicts: tuple[RecordedVerdict, ...]
    network: str | None
    titles: tuple[str, ...]

    @property
    def question(self) -> str:
        """What the verdicts have in common."""
        return self.verdicts[0].question


def verdict_run_of(record: Mapping[str, Any], path: Path) -> VerdictRun:
    """The run that a record of `relucert verify` from this file tells of; raises LoadError with one line."""
    recorded = Recorded(record, path.name)
    head, verdicts = read_rows(record, path, "result", lambda row: _verdict(row, recorded))
    network = _name(recorded, "network") if "image" in record["results"][0] else None
    titles = ("network", "property") if network is None else ("image", "label", "rival")
    return VerdictRun(head, path.name, verdicts, network, titles)


def _verdict(row: Mapping[str, Any], recorded: Recorded) -> RecordedVerdict:
    status = RESULTS.get(text(row, "result"), "unknown") if "result" in row else text(row, "status")
    if status not in STATUSES:
        raise ValueError(f"its status is {status!r}")
    return RecordedVerdict(
        question=_question(row, recorded),
        failed=row.get("failed") is True,
        about=_image(row) if "image" in row else _property(row, recorded),
        status=status,
        seconds=finite(row, "seconds"),
        nodes=whole(row, "nodes"),
        method=optional(text, row, "method"),
        remark=optional(text, row, "reason"),
        inference=inference_of(row),
    )


def _image(row: Mapping[str, Any]) -> tuple[str | int, ...]:
    rival = "any" if row.get("target") is None else whole(row, "target")
    if row.get("label") is None:  # of a stated property
        return whole(row, "image"), "-", "-" if row.get("row") is None else f"row {whole(row, 'row')}"
    return whole(row, "image"), whole(row, "label"), rival


def _property(row: Mapping[str, Any], recorded: Recorded) -> tuple[str | int, ...]:
    """The files' names: of an instance its own, of a single property those that the head tells."""
    if "onnx" in row:
        return Path(text(row, "onnx")).name, Path(text(row, "vnnlib")).name
    return Path(_name(recorded, "network") or "").name, Path(_name(recorded, "query") or "").name


def _question(row: Mapping[str, Any], recorded: Recorded) -> str:
    if "image" not in row:
        return f"properties of {_name(recorded, 'instances') or _name(recorded, 'network')}"
    radius, measured, target = number(row, "radius"), norm(row), recorded.options.get("target")
    if radius is None:
        raise ValueError("it has no radius")
    words = [
        f"within {radius!r}, p = {NORMS.get(measured, measured)}",
        in_words([read_domain(row)]),
        "perturbations scaled per coordinate" if row.get("input_scale") is not None else None,
        f"target {target}" if isinstance(target, str) else None,
    ]
    return ", ".join(word for word in words if word)


def _name(recorded: Recorded, key: str) -> str | None:
    """The name of a network, a list or a property, as the head has it."""
    name = recorded.said(key).get("name")
    return name if isinstance(name, str) else None


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
        tiles=[(f"{len(_of(verdicts, status))} of {len(verdicts)}", meaning) for status, meaning in STATUSES.items()],
        chart=charts.decided(times, len(verdicts)) if any(times.values()) else None,
        keys=[
            (charts.colour(index), STATUSES[status]) for index, (status, seconds) in enumerate(times.items()) if seconds
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
    for index, (status, meaning) in enumerate(STATUSES.items()):
        for method in dict.fromkeys(verdict.method for verdict in _of(verdicts, status)):
            seconds = [verdict.seconds for verdict in _of(verdicts, status) if verdict.method == method]
            rows.append(
                [
                    Cell(meaning, key=charts.colour(index)),
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
