"""The certificates of a run, summed up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_UP, Context
from itertools import groupby
from statistics import fmean, median

from relucert.answers.certificates import Certificate, Rounding

GRID = 5  # steps between the radii at which accuracy is reported unless others are asked for
TAIL = 0.05  # share of the radii that lies below the first of these radii or beyond the last
LEAST = 1e-300  # a radius this small has no digits to round to
ALMOST_ONE = 1 + 1e-9  # so that a multiple of a step counts as one in spite of rounding
ROUND_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # times powers of ten: the steps of axes and grids
ANY_RIVAL = ("untargeted", "all")  # the targets under which an image keeps its class whatever the rival


@dataclass(frozen=True)
class Summary:
    """Counts of images, and the radius of each image that has one: the least over its rivals.

    Attributes:
        images: How many images were finished.
        with_rival: How many of them have a rival to be certified against: a label other than the target.
        correct: How many of them are classified as labelled; None where labels are unknown.
        proven: Whether the radii count as certified.
    """

    images: int
    with_rival: int
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
        return sum(reached >= radius for reached in self.radii)

    def grid(self) -> tuple[float, ...]:
        """A few round radii that span those of the images but for the tails."""
        radii = [radius for radius in self.radii if LEAST < radius < math.inf]
        if not radii:
            return ()
        low, high = _quantile(radii, TAIL), _quantile(radii, 1 - TAIL)
        finest = 10.0 ** math.floor(math.log10(high)) / 100  # radii of three digits will do
        step = round_above(max(finest, (high - low) / GRID))
        first, last = (math.floor(end / step * ALMOST_ONE) for end in (low, high))
        return tuple(float(f"{step * count:.6g}") for count in range(max(1, first), last + 1))


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
    with_rival = 0
    for image, group in groupby(certificates, key=lambda certificate: certificate.image):
        answers = list(group)
        certified = [certificate.radius for certificate in answers if certificate.radius is not None]
        if target == "all" and len(certified) == len(answers) < rivals:
            continue
        finished.append(image)
        with_rival += answers[0].label != target
        if len(certified) == len(answers):
            radii.append(min(certified))
    proven = all(certificate.arithmetic is Rounding.RIGOROUS for certificate in certificates)
    right = None if correct is None else sum(correct[image] for image in finished)
    return Summary(len(finished), with_rival, right, tuple(radii), proven)


def against(target: str | int | None) -> str:
    """The end of a sentence on images that keep their class: names the target where that is a single rival."""
    return "" if target is None or target in ANY_RIVAL else f", against target {target} alone"


def fits(fitted: int, count: int) -> str:
    """How many of CLEVER's values come from a fitted distribution, in words."""
    return f"{fitted} of {count} fitted{'' if fitted == count else ', else the largest sampled gradient counts'}"


def rounded_down(value: float, digits: int = 5) -> str:
    """The value to some significant digits, never above it: a proven radius must not grow in print."""
    return _rounded(value, digits, ROUND_DOWN)


def rounded_up(value: float, digits: int = 5) -> str:
    """The value to some significant digits, never below it: an adversarial example must not come nearer in print."""
    return _rounded(value, digits, ROUND_UP)


def or_dash(write: Callable[[float], str], value: float | None) -> str:
    """The value as it is written, or a dash where there is none."""
    return "-" if value is None else write(value)


def _rounded(value: float, digits: int, way: str) -> str:
    if math.isinf(value):
        return "inf"
    return f"{float(Context(prec=digits, rounding=way).create_decimal_from_float(value)):.{digits}g}"


def round_above(value: float) -> float:
    """The least round number that is no smaller."""
    scale = 10.0 ** math.floor(math.log10(value))
    return next(step for step in ROUND_STEPS if step * scale * ALMOST_ONE >= value) * scale


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
