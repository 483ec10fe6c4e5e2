"""What the answers of a run say together: a curve a method, and the bounds of each question side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from relucert.report.reading import Kind, Result

PROVEN = (Kind.CERTIFIED, Kind.EXACT)


@dataclass(frozen=True)
class Series:
    """One method: how far each image keeps its class (as proven, as estimated, or until an attack succeeds).

    asked: how many images; radii: sorted, of those that keep it at all; seconds: the mean for each answer.
    """

    name: str
    kind: Kind
    asked: int
    radii: tuple[float, ...]
    seconds: float

    @property
    def finite(self) -> tuple[float, ...]:
        return tuple(radius for radius in self.radii if math.isfinite(radius))

    @property
    def mean(self) -> float | None:
        return fmean(self.finite) if self.finite else None

    @property
    def median(self) -> float | None:
        """The largest radius that half of the images asked about keep their class within."""
        left = -(-self.asked // 2)
        return self.radii[-left] if 0 < left <= len(self.radii) else None

    def steps(self) -> tuple[list[float], list[float]]:
        """The curve: at 0 and at every radius, the share of images that is left beyond it."""
        left = range(len(self.radii), -1, -1)
        finite = self.finite
        return [0.0, *finite], [count / max(1, self.asked) for count in left][: len(finite) + 1]


@dataclass(frozen=True)
class Sandwich:
    """All answers to one question: about an image, or an image and a rival."""

    results: tuple[Result, ...]

    @property
    def lower(self) -> Result | None:
        """The largest proven bound."""
        known = [own for own in self.results if own.kind in PROVEN and own.lower is not None]
        return max(known, key=lambda own: own.lower or 0.0, default=None)

    @property
    def upper(self) -> Result | None:
        """The nearest adversarial example."""
        known = [own for own in self.results if own.upper is not None]
        return min(known, key=lambda own: math.inf if own.upper is None else own.upper, default=None)

    @property
    def exact(self) -> Result | None:
        return next((own for own in self.results if own.kind is Kind.EXACT), None)

    @property
    def gap(self) -> float | None:
        """How many times farther the nearest example is than what is proven."""
        lower = self.lower.lower if self.lower is not None else None
        upper = self.upper.upper if self.upper is not None else None
        return upper / lower if lower and upper and math.isfinite(lower) else None

    @property
    def violated(self) -> bool:
        """Whether an adversarial example lies within a proven radius: never, unless something is wrong."""
        lower, upper = self.lower, self.upper
        return lower is not None and upper is not None and (lower.lower or 0.0) > (upper.upper or 0.0)


def series(results: Iterable[Result], rivals: int | None) -> list[Series]:
    """One for each method, in the order they first appear.

    rivals: how many answers an image has in full, None if as many as any image has. An image with fewer is left out:
    about the other rivals nothing is known.
    """
    methods: dict[tuple[str, Kind], list[Result]] = {}
    for own in results:
        methods.setdefault((own.name, own.kind), []).append(own)
    return [_one(name, kind, rows, rivals) for (name, kind), rows in methods.items()]


def best_proven(questions: Iterable[Sandwich], rivals: int | None) -> Series | None:
    """What all methods together prove; None where no method proves anything."""
    asked = [own for own in questions if any(result.kind in PROVEN for result in own.results)]
    rows = [own.lower or next(result for result in own.results if result.kind in PROVEN) for own in asked]
    return _one("best proven", Kind.CERTIFIED, rows, rivals) if rows else None


def sandwiches(results: Iterable[Result], every_rival: bool) -> list[Sandwich]:
    questions: dict[tuple[int, int | None], list[Result]] = {}
    for own in results:
        questions.setdefault((own.image, own.target if every_rival else None), []).append(own)
    return [Sandwich(tuple(rows)) for _, rows in sorted(questions.items(), key=lambda item: _order(item[0]))]


def tightness(name: str, questions: Sequence[Sandwich]) -> float | None:
    """A method's mean share of the way to the nearest adversarial example, or else to the best proven bound."""
    shares = []
    for question in questions:
        whole = question.upper.upper if question.upper is not None else None
        if whole is None and question.lower is not None:
            whole = question.lower.lower
        shares += [
            own.lower / whole
            for own in question.results
            if own.name == name and own.lower is not None and whole and math.isfinite(own.lower)
        ]
    return fmean(shares) if shares else None


def _one(name: str, kind: Kind, rows: list[Result], rivals: int | None) -> Series:
    rows = sorted((own for own in rows if own.asked), key=lambda own: own.image)
    images = [list(group) for _, group in groupby(rows, key=lambda own: own.image)]
    full = max(map(len, images), default=0) if rivals is None else rivals
    images = [own for own in images if len(own) >= full or own[0].target is None]  # no target: misclassified
    radii = [radius for own in images if (radius := _kept(kind, own))]
    worked = [own.seconds for own in rows if own.seconds]
    return Series(name, kind, len(images), tuple(sorted(radii)), fmean(worked) if worked else 0.0)


def _kept(kind: Kind, rows: list[Result]) -> float | None:
    """The least over an image's rivals; an attack that found nothing leaves the image its class everywhere."""
    if kind is Kind.UPPER:
        return min(math.inf if own.upper is None else own.upper for own in rows)
    lowers = [own.lower for own in rows]
    return None if None in lowers else min(lower for lower in lowers if lower is not None)


def _order(key: tuple[int, int | None]) -> tuple[int, int]:
    return key[0], -1 if key[1] is None else key[1]
