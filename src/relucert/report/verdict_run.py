"""What `relucert verify --json` records: verdicts about a property, about a list of them, or about images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relucert.report.domain import in_words, read_domain
from relucert.report.fields import finite, norm, number, optional, text, whole
from relucert.report.reading import Recorded, inference_of, read_rows
from relucert.report.sections import NORMS

STATUSES = ("holds", "violated", "unknown")
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
