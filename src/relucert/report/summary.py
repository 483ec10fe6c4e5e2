"""What a run's certificates say together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_UP, Context
from itertools import groupby
from statistics import fmean, median

from relucert.answers import Certificate, Rounding

GRID = 5  # radii at which accuracy is reported unless others are asked for
ROUND_STEPS = (1.0, 2.0, 2.5, 5.0)


@dataclass(frozen=True)
class Summary:
    """Counts of images, and the radius of each image that has one: the least over its rivals.

    Attributes:
        images: How many images were finished.
        asked: How many of them have a rival to be certified against.
        correct: How many of them are classified as labelled; None where labels are unknown.
        proven: Whether the radii count as certified.
    """

    images: int
    asked: int
    correct: int | None
    radii: tuple[float, ...]
    proven: bool

    @property
    def mean(self) -> float | None:
        return fmean(self.radii) if self.radii else None

    @property
    def median(self) -> float | None:
        return median(self.radii) if self.radii else None

    def within(self, radius: float) -> int:
        """How many images keep their class within this radius."""
        return sum(certified >= radius for certified in self.radii)

    def grid(self) -> tuple[float, ...]:
        """A few round radii at which most images, about half of them, and few are left."""
        if not self.radii or not 0 < (far := _quantile(self.radii, 0.9)) < math.inf:
            return ()
        scale = 10.0 ** math.floor(math.log10(far / GRID))
        step = max((step for step in ROUND_STEPS if step * scale <= far / GRID), default=ROUND_STEPS[0])
        return tuple(float(f"{step * scale * count:.6g}") for count in range(1, GRID + 1))


def summarise(
    certificates: Sequence[Certificate], correct: Sequence[bool] | None, target: str | int, rivals: int
) -> Summary:
    """The summary of the finished images: with target "all" those with an answer for each of their rivals.

    An image whose label is the target itself is not asked about.

    Args:
        correct: Whether each image is classified as labelled; None where labels are unknown.
        rivals: How many rivals each label has.
    """
    finished: list[int] = []
    radii: list[float] = []
    asked = 0
    for image, group in groupby(certificates, key=lambda certificate: certificate.image):
        answers = list(group)
        known = [certificate.radius for certificate in answers if certificate.radius is not None]
        if target == "all" and len(known) == len(answers) < rivals:
            continue
        finished.append(image)
        asked += answers[0].label != target
        if len(known) == len(answers):
            radii.append(min(known))
    proven = all(certificate.arithmetic is Rounding.RIGOROUS for certificate in certificates)
    right = None if correct is None else sum(correct[image] for image in finished)
    return Summary(len(finished), asked, right, tuple(radii), proven)


def fits(fitted: int, count: int) -> str:
    """How CLEVER's values came about, in words."""
    return f"{fitted} of {count} fitted{'' if fitted == count else ', else the largest sampled gradient counts'}"


def rounded_down(value: float, digits: int = 5) -> str:
    """The value to some significant digits, never above it: a proven radius must not grow in print."""
    return _rounded(value, digits, ROUND_DOWN)


def rounded_up(value: float, digits: int = 5) -> str:
    """The value to some significant digits, never below it: an adversarial example must not come nearer in print."""
    return _rounded(value, digits, ROUND_UP)


def _rounded(value: float, digits: int, way: str) -> str:
    if math.isinf(value):
        return "inf"
    return f"{float(Context(prec=digits, rounding=way).create_decimal_from_float(value)):.{digits}g}"


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
