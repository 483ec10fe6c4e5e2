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

    images: all that were finished; asked: those with a rival to be certified against; correct: those
    classified as labelled (None where labels are unknown); proven: whether the radii count as certified.
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
        return sum(own >= radius for own in self.radii)

    def grid(self) -> tuple[float, ...]:
        """A few round radii at which most images, about half of them, and few are left."""
        if not self.radii or not 0 < (far := _quantile(self.radii, 0.9)) < math.inf:
            return ()
        scale = 10.0 ** math.floor(math.log10(far / GRID))
        step = max((own for own in ROUND_STEPS if own * scale <= far / GRID), default=ROUND_STEPS[0])
        return tuple(float(f"{step * scale * count:.6g}") for count in range(1, GRID + 1))


def summarise(
    certificates: Sequence[Certificate], correct: Sequence[bool] | None, target: str | int, rivals: int
) -> Summary:
    """Over the finished images: with target "all" those with an answer for each of their rivals.

    correct: whether each image is classified as labelled, None where labels are unknown.
    An image whose label is the target itself is not asked about.
    """
    finished: list[int] = []
    radii: list[float] = []
    asked = 0
    for image, group in groupby(certificates, key=lambda certificate: certificate.image):
        own = list(group)
        known = [certificate.radius for certificate in own if certificate.radius is not None]
        if target == "all" and len(known) == len(own) < rivals:
            continue
        finished.append(image)
        asked += own[0].label != target
        if len(known) == len(own):
            radii.append(min(known))
    proven = all(certificate.arithmetic is Rounding.RIGOROUS for certificate in certificates)
    right = None if correct is None else sum(correct[image] for image in finished)
    return Summary(len(finished), asked, right, tuple(radii), proven)


def rounded_down(value: float, digits: int = 5) -> str:
    """So many significant digits, never above the value: a proven radius must not grow in print."""
    return _rounded(value, digits, ROUND_DOWN)


def rounded_up(value: float, digits: int = 5) -> str:
    """So many significant digits, never below the value: an adversarial example must not come nearer in print."""
    return _rounded(value, digits, ROUND_UP)


def _rounded(value: float, digits: int, way: str) -> str:
    if math.isinf(value):
        return "inf"
    return f"{float(Context(prec=digits, rounding=way).create_decimal_from_float(value)):.{digits}g}"


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
