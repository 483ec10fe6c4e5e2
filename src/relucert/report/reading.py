"""Reads run files: every answer is checked and its kind told by its keys, so that nothing can pose as certified."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import relucert
from relucert.answers.certificates import OWN_LABEL
from relucert.common.names import INFERENCES
from relucert.errors import LoadError
from relucert.inputs.storage.store import series
from relucert.report.domain import Domain, assumed, check_options, read_domain
from relucert.report.fields import finite, norm, number, optional, text, whole

NEURON_KEYS = ("dead", "undecided", "active")  # of run files
NEURON_STATES = ("inactive", "unstable", "active")
REAL = "real"
COLOURS = 3  # channels of a coloured picture

Row = TypeVar("Row")


class AnswerKind(str, Enum):
    """What the number of an answer is; those of the first two are proven."""

    CERTIFIED = "certified"  # a lower bound
    EXACT = "exact"  # a lower bound, and an upper bound with a witness
    UNPROVEN = "unproven"  # a radius with rounding ignored
    ESTIMATE = "estimate"  # no bound of anything
    UPPER = "upper"  # an upper bound with a witness


@dataclass(frozen=True)
class Picture:
    """An image and its adversarial example as bytes, row by row: (rows, columns) or (rows, columns, 3)."""

    shape: tuple[int, ...]
    original: bytes
    adversarial: bytes


@dataclass(frozen=True)
class Result:
    """One answer: a lower bound (or an estimate of it), an upper bound, or both.

    Attributes:
        lower: A radius, the lower end of an exact answer, or an estimate; infinite where nothing adversarial exists.
        upper: The distance of an adversarial example.
        has_question: Whether the label differs from the target: otherwise there is nothing to ask.
        fitted: Whether an estimate comes from a fitted distribution; False for every other kind of answer.
        neurons: For each layer of ReLUs, how many are inactive, unstable and active.
        domain: The valid inputs that the answer is about; None where an older file does not say.
        failed: Whether an error inside the method spoilt it.
        inference: What the network is evaluated in.
        source: The file it comes from, where another one has answers of the same method, too.
    """

    image: int
    label: int | None
    target: int | None
    norm: str
    method: str
    kind: AnswerKind
    lower: float | None
    upper: float | None
    closed: bool
    has_question: bool
    fitted: bool
    reason: str | None
    predicted: int | None
    seconds: float
    neurons: tuple[tuple[float, float, float], ...]
    picture: Picture | None
    domain: Domain | None
    failed: bool
    inference: str = REAL
    source: str | None = None

    @property
    def amount(self) -> float | None:
        """The number of the answer: a distance, or a radius, a lower end or an estimate."""
        return self.upper if self.kind is AnswerKind.UPPER else self.lower

    def is_comparable(self, answer: Result) -> bool:
        """Whether both answers are about the same valid inputs, and evaluations of the same kind."""
        return assumed(self.domain) == assumed(answer.domain) and self.inference == answer.inference

    def covers(self, answer: Result) -> bool:
        """Whether this answer is about every input that is valid for another one, and about its evaluations: what holds
        for all evaluations that round holds in real arithmetic, too."""
        inputs = assumed(self.domain).box is None or assumed(self.domain) == assumed(answer.domain)
        return inputs and answer.inference in (self.inference, REAL)

    @property
    def name(self) -> str:
        """The method's name on pages and plots: whatever is not proven, or not about real arithmetic, says so."""
        name = {
            AnswerKind.CERTIFIED: self.method,
            AnswerKind.EXACT: "exact",
            AnswerKind.UNPROVEN: f"{self.method} (rounding ignored)",
            AnswerKind.ESTIMATE: f"{self.method} (estimate)",
            AnswerKind.UPPER: f"attack ({self.method})",
        }[self.kind]
        name = name if self.inference == REAL else f"{name} in {self.inference}"
        return name if self.source is None else f"{name}, {self.source}"


@dataclass(frozen=True)
class Recorded:
    """What a file that a command recorded says of the run before its rows; source: the file's name."""

    head: Mapping[str, Any]
    source: str

    @property
    def complete(self) -> bool:
        return self.head.get("complete") is True

    def said(self, key: str) -> Mapping[str, Any]:
        """What the head says under a key; nothing where that is no object."""
        content = self.head.get(key)
        return content if isinstance(content, dict) else {}

    @property
    def options(self) -> Mapping[str, Any]:
        return self.said("options")

    @property
    def left_out(self) -> list[str]:
        """Which methods were left out or stopped, and why."""
        return [f"{name}: {reason}" for name, reason in self.said("skipped").items()]


@dataclass(frozen=True)
class RecordedRun(Recorded):
    """A run file: answers about images."""

    results: tuple[Result, ...]


def run_of(record: Mapping[str, Any], path: Path) -> RecordedRun:
    """The run that a record from this file tells of."""
    head, results = read_rows(record, path, "result", result)
    run = RecordedRun(head, path.name, results)
    try:
        check_options(run.options)
    except ValueError as error:
        raise LoadError(f"{path}, options: {error}") from error
    return run


def read_rows(
    record: Mapping[str, Any], path: Path, noun: str, read_row: Callable[[Any], Row]
) -> tuple[dict[str, Any], tuple[Row, ...]]:
    """The head of a record, and its rows, each read by itself; raises LoadError, naming the row that is wrong.

    Args:
        noun: What a row is called, as in "result"; the record has rows under the plural.
        read_row: Makes a row of its JSON form; raises ValueError, saying what is wrong.
    """
    head = dict(record)
    rows = head.pop(f"{noun}s", None)
    if not isinstance(rows, list):
        raise LoadError(f"{path} is no run file of relucert: it has no list of {noun}s")
    if not rows:
        raise LoadError(f"{path} has no results yet")
    read = []
    for index, row in enumerate(rows):
        try:
            if not isinstance(row, dict):
                raise ValueError("it is no object")
            read.append(read_row(row))
        except ValueError as error:
            raise LoadError(f"{path}, {noun} {index}: {error}") from error
    return head, tuple(read)


def read_record(path: Path) -> dict[str, Any]:
    """What a file says, if relucert of this version wrote it."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LoadError(f"can't read {path}: {error.strerror or error}") from error
    if not content.strip():
        raise LoadError(f"{path} is empty")
    try:
        record = json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{path} is no run file, or a part of one: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("relucert"), str):
        raise LoadError(f"{path} is no run file of relucert")
    if series(record["relucert"]) != series(relucert.__version__):
        raise LoadError(f"{path} was written by relucert {record['relucert']}, this is {relucert.__version__}")
    return record


def result(row: Mapping[str, Any]) -> Result:
    """One answer from its JSON form; raises ValueError, saying what is wrong."""
    row = upgraded(row)
    answer_kind, lower, upper = _bounds(row)
    said = AnswerKind.CERTIFIED if answer_kind is AnswerKind.UNPROVEN else answer_kind  # what a row may call itself
    if row.get("kind", said.value) not in (said.value, answer_kind.value):
        raise ValueError(f"its kind is {row['kind']!r} and its keys are those of {answer_kind.value!r}")
    reason = optional(text, row, "reason")
    return Result(
        image=whole(row, "image"),
        label=optional(whole, row, "label"),
        target=optional(whole, row, "target"),
        norm=norm(row),
        method=text(row, "method"),
        kind=answer_kind,
        lower=lower,
        upper=upper,
        closed=row.get("closed") is True,
        has_question=reason != OWN_LABEL,
        fitted=answer_kind is AnswerKind.ESTIMATE and row["fitted"] is True,
        reason=reason,
        predicted=optional(whole, row, "predicted"),
        seconds=finite(row, "seconds"),
        neurons=_neurons(row),
        picture=_picture(row),
        domain=read_domain(row),
        failed=row.get("failed") is True,
        inference=inference_of(row),
    )


def inference_of(row: Mapping[str, Any]) -> str:
    """What the network is evaluated in: real arithmetic in an older file, which does not say."""
    inference = row.get("inference", REAL)
    if inference not in INFERENCES.choices:
        raise ValueError(f"inference is {inference!r}, none of {', '.join(INFERENCES.choices)}")
    return str(inference)


def _bounds(row: Mapping[str, Any]) -> tuple[AnswerKind, float | None, float | None]:
    """The kind of an answer, told by the keys that only this kind has, and its lower and upper bound."""
    if "radius" in row and "arithmetic" in row:
        radius = number(row, "radius")
        proven = row["arithmetic"] == "rigorous" and row.get("proven") is (radius is not None)
        return (AnswerKind.CERTIFIED if proven else AnswerKind.UNPROVEN), radius, None
    if "distance" in row:
        return AnswerKind.UPPER, None, number(row, "distance")
    if "lower" in row and "upper" in row:
        lower, upper = number(row, "lower"), number(row, "upper")
        return AnswerKind.EXACT, math.inf if row.get("unreachable") is True else lower, upper
    if "value" in row and "sampled" in row:
        return AnswerKind.ESTIMATE, number(row, "value"), None
    raise ValueError("it is no answer of relucert: no radius, distance, value or exact bounds")


def _neurons(row: Mapping[str, Any]) -> tuple[tuple[float, float, float], ...]:
    layers = row.get("neurons") or []
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        raise ValueError("neurons is no list of counts")
    counts = [[float(whole(layer, key)) for key in NEURON_KEYS] for layer in layers]
    return tuple((inactive, unstable, active) for inactive, unstable, active in counts)


def _picture(row: Mapping[str, Any]) -> Picture | None:
    picture = row.get("picture")
    if picture is None:
        return None
    shape = picture.get("shape") if isinstance(picture, dict) else None
    sizes = shape if isinstance(shape, list) else []
    if len(sizes) not in (2, 3) or not all(type(size) is int and 0 < size < 2**16 for size in sizes):
        raise ValueError(f"a picture has shape {shape!r}")
    if sizes[2:] not in ([], [COLOURS]):
        raise ValueError(f"a picture has {sizes[2]} colours")
    try:
        original, adversarial = (
            base64.b64decode(text(picture, name), validate=True) for name in ("original", "adversarial")
        )
    except binascii.Error:
        raise ValueError("a picture is not in base64") from None
    if not len(original) == len(adversarial) == math.prod(sizes):
        raise ValueError("a picture has not as many pixels as its shape says")
    return Picture(tuple(sizes), original, adversarial)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def upgraded(row: Mapping[str, Any]) -> dict[str, Any]:
    """An answer's row with the keys and names that this version writes.

    Before, the method of exact answers was "branch-and-bound"; CLEVER's `value` was missing where no distribution
    could be fitted, and the radius of its samples was called `radius`, as a certified one is.
    """
    current = dict(row)
    if "upper" in row and row.get("method") == "branch-and-bound":
        current["method"] = "exact"
    if "sampled" in row and "fitted" not in row:
        current["fitted"] = row.get("value") is not None
        current["value"] = row["sampled"] if row.get("value") is None else row["value"]
        if "radius" in row:
            current["sampling_radius"] = current.pop("radius")
    return current
