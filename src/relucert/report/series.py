"""What the answers of a run say together: one curve per method, and the bounds of each question side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from relucert.report.reading import AnswerKind, Result
from relucert.report.summary import fits

Item = TypeVar("Item")
Key = TypeVar("Key")

PROVEN = (AnswerKind.CERTIFIED, AnswerKind.EXACT)


@dataclass(frozen=True)
class Series:
    """One method: how far each image keeps its class (as proven, as estimated, or until an attack succeeds).

    Attributes:
        images: How many images the method has answers about.
        radii: The radii of the images that keep their class at all, sorted.
        seconds: The mean time per answer.
        remark: Of how many images the estimates come from a fitted distribution, or the exact intervals are closed.
    """

    name: str
    kind: AnswerKind
    images: int
    radii: tuple[float, ...]
    seconds: float
    remark: str | None

    @property
    def finite(self) -> tuple[float, ...]:
        return tuple(radius for radius in self.radii if math.isfinite(radius))

    @property
    def mean(self) -> float | None:
        return fmean(self.finite) if self.finite else None

    @property
    def median(self) -> float | None:
        """The largest radius that half of the images asked about keep their class within."""
        half = -(-self.images // 2)
        return self.radii[-half] if 0 < half <= len(self.radii) else None

    def accuracy_at(self, radius: float) -> float:
        """The share of images that keep their class within a radius: what is proven of it holds at the radius itself,
        an adversarial example at that distance breaks it."""
        beyond = (kept > radius if self.kind is AnswerKind.UPPER else kept >= radius for kept in self.radii)
        return sum(beyond) / max(1, self.images)

    def steps(self) -> tuple[list[float], list[float]]:
        """The curve: 0 and every finite radius, and the share of images that keep their class beyond each."""
        counts = range(len(self.radii), -1, -1)
        finite = self.finite
        return [0.0, *finite], [count / max(1, self.images) for count in counts][: len(finite) + 1]


@dataclass(frozen=True)
class Sandwich:
    """All answers to one question: about an image, or an image and a rival."""

    results: tuple[Result, ...]

    @property
    def lower(self) -> Result | None:
        """The answer with the largest proven bound."""
        proven = [result for result in self.results if result.kind in PROVEN and result.lower is not None]
        return max(proven, key=lambda result: result.lower or 0.0, default=None)

    @property
    def upper(self) -> Result | None:
        """The answer with the nearest adversarial example."""
        attacked = [result for result in self.results if result.upper is not None]
        return min(attacked, key=lambda result: math.inf if result.upper is None else result.upper, default=None)

    @property
    def exact(self) -> Result | None:
        return next((result for result in self.results if result.kind is AnswerKind.EXACT), None)

    @property
    def gap(self) -> float | None:
        """How many times farther the nearest example is than what is proven; None if about unlike valid inputs."""
        below, above = self.lower, self.upper
        if below is None or above is None or not below.is_comparable(above):
            return None
        lower, upper = below.lower, above.upper
        return upper / lower if lower and upper and math.isfinite(lower) else None

    @property
    def comparable(self) -> bool:
        """Whether all answers are about the same valid inputs."""
        return all(result.is_comparable(self.results[0]) for result in self.results)

    @property
    def violated(self) -> bool:
        """Whether an adversarial example lies within a proven radius: never, unless something is wrong."""
        return any(
            below.lower > above.upper
            for below in self.results
            for above in self.results
            if below.kind in PROVEN and below.lower is not None and above.upper is not None and below.covers(above)
        )


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items of each key, in the order that keys first appear."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def series(results: Iterable[Result], rivals: int | None) -> list[Series]:
    """One series per method, in the order they first appear.

    Args:
        rivals: How many answers a method gives per image in a finished run; None: as many as any image has. An image
            with fewer answers is left out, since nothing is known about its other rivals.
    """
    methods = group_by(results, lambda result: (result.name, result.kind))
    return [_series(name, answer_kind, rows, rivals) for (name, answer_kind), rows in methods.items()]


def best_proven(questions: Iterable[Sandwich], rivals: int | None) -> Series | None:
    """What all methods together prove; None where no method proves anything."""
    rows = []
    for question in questions:
        proven = [result for result in question.results if result.kind in PROVEN]
        if proven:
            rows.append(question.lower or proven[0])
    return _series("best proven", AnswerKind.CERTIFIED, rows, rivals) if rows else None


def sandwiches(results: Iterable[Result], every_rival: bool) -> list[Sandwich]:
    """The answers grouped by image, or by image and rival, in this order."""

    def question(result: Result) -> tuple[int, int]:
        return result.image, result.target if every_rival and result.target is not None else -1

    questions = group_by(results, question)
    return [Sandwich(tuple(questions[key])) for key in sorted(questions)]


def tightness(name: str, questions: Sequence[Sandwich]) -> float | None:
    """A method's mean ratio to the nearest adversarial example, or else to the best proven bound.

    Ratios between answers that are about unlike valid inputs are left out.
    """
    ratios = []
    for question in questions:
        reference = question.upper or question.lower
        if reference is None:
            continue
        whole = reference.lower if reference.upper is None else reference.upper
        ratios += [
            result.lower / whole
            for result in question.results
            if result.name == name and result.lower is not None and whole and math.isfinite(result.lower)
            if result.is_comparable(reference)
        ]
    return fmean(ratios) if ratios else None


def _series(name: str, answer_kind: AnswerKind, rows: list[Result], rivals: int | None) -> Series:
    rows = [row for row in rows if row.has_question]
    images = list(group_by(rows, lambda row: row.image).values())
    full = max(map(len, images), default=0) if rivals is None else rivals
    images = [image for image in images if len(image) >= full or image[0].target is None]  # no target: misclassified
    kept = [(image, radius) for image in images if (radius := _kept(answer_kind, image))]
    seconds = [row.seconds for row in rows if row.seconds]
    return Series(
        name=name,
        kind=answer_kind,
        images=len(images),
        radii=tuple(sorted(radius for _, radius in kept)),
        seconds=fmean(seconds) if seconds else 0.0,
        remark=_remark(answer_kind, [image for image, _ in kept]),
    )


def _remark(answer_kind: AnswerKind, images: list[list[Result]]) -> str | None:
    """How many answers of a method are fitted or closed; None for methods without either."""
    if answer_kind is AnswerKind.ESTIMATE and images:
        return fits(sum(all(row.fitted for row in image) for image in images), len(images))
    closed = sum(all(row.closed for row in image) for image in images)
    return f"{closed} of {len(images)} closed" if answer_kind is AnswerKind.EXACT else None


def _kept(answer_kind: AnswerKind, rows: list[Result]) -> float | None:
    """The least radius over an image's rivals; where no attack succeeded the image keeps its class everywhere."""
    if answer_kind is AnswerKind.UPPER:
        return min(math.inf if row.upper is None else row.upper for row in rows)
    lowers = [row.lower for row in rows]
    return None if None in lowers else min(lower for lower in lowers if lower is not None)
