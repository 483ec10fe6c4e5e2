"""Convex and concave pieces of a smooth function, and slopes of lines around any function from a few samples of it.

The activation gives the offsets that make lines of these slopes hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

OPEN = 1e-30  # by which tangent points keep away from breakpoints, where derivatives may jump


@dataclass(frozen=True, eq=False)
class EnclosedPoint:
    """A point where pieces meet, or where f' is zero, known to be in [low, high]: numbers, or one for each neuron."""

    low: float | Tensor
    high: float | Tensor

    @classmethod
    def near(cls, number: float) -> EnclosedPoint:
        """A point whose nearest number of float64 this is."""
        return cls(math.nextafter(number, -math.inf), math.nextafter(number, math.inf))

    @property
    def exact(self) -> bool:
        return isinstance(self.low, float) and self.low == self.high

    def met(self, lower: Tensor, upper: Tensor) -> Tensor:
        return (lower <= self.high) & (upper >= self.low)


class CurvedPiece(NamedTuple):
    """Where f is convex (curvature 1) or concave (-1), or either, by neuron.

    Attributes:
        start, end: None: it does not end.
        tangent_point: From slopes to points of the piece where f' is about that, or past the end that is nearest to it.
    """

    curvature: int | Tensor
    start: EnclosedPoint | None
    end: EnclosedPoint | None
    tangent_point: Callable[[Tensor], Tensor]

    def within(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """The ends of its intersection with intervals, the first one above the second where that is empty."""
        start = lower if self.start is None else lower.clamp(min=self.start.high)
        return start, upper if self.end is None else upper.clamp(max=self.end.low)

    def touching(self, slope: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """A tangent point within intervals, which meet the piece."""
        point = self.tangent_point(slope)
        if self.start is not None:
            point = point.clamp(min=past(self.start.high, 1))
        if self.end is not None:
            point = point.clamp(max=past(self.end.low, -1))
        return torch.minimum(torch.maximum(point, lower), upper)


def past(cut: float | Tensor, direction: int) -> float | Tensor:
    """A number next to a cut, far enough for any precision to tell them apart where the cut is 0."""
    size = cut.abs() if isinstance(cut, Tensor) else abs(cut)
    return cut + direction * (OPEN + 2.0**-52 * size)


HALF = 8  # samples on either side of the middle

Values = Callable[[Tensor], Tensor]


def supporting_slopes(values: Values, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The slopes of the highest line below the samples, and of the lowest one above them, in the middle of the
    interval: with these the area between both lines is the smallest."""
    samples, step = _samples(values, lower, upper)
    return _supporting(samples, step), -_supporting(-samples, step)


def parallel_slope(values: Values, lower: Tensor, upper: Tensor) -> Tensor:
    """The slope of the nearest parallel lines around the samples: a supporting one, the mean of both, or the secant."""
    samples, step = _samples(values, lower, upper)
    below, above = _supporting(samples, step), -_supporting(-samples, step)
    secant = (samples[-1] - samples[0]) / (2 * HALF * step)
    places = _places(samples)
    best, distance = secant, torch.full_like(lower, torch.inf)
    for slope in (secant, below, above, (below + above) / 2):
        heights = samples - slope * step * places
        apart = heights.amax(0) - heights.amin(0)
        best, distance = torch.where(apart < distance, slope, best), torch.fmin(apart, distance)
    return best


def _samples(values: Values, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Values at equal distances from end to end, (samples, ...), and the distance, which is positive."""
    eps = torch.finfo(lower.dtype).eps ** 0.5
    least = eps * (1 + lower.abs() + upper.abs())
    step = torch.maximum((upper - lower) / (2 * HALF), least)
    middle = (lower + upper) / 2
    return values(middle + step * _places(lower[None])), step


def _places(like: Tensor) -> Tensor:
    return torch.arange(-HALF, HALF + 1, dtype=like.dtype).reshape(-1, *[1] * (like.ndim - 1))


def _supporting(samples: Tensor, step: Tensor) -> Tensor:
    """The slope of the lower convex envelope of samples in the middle: that of the lowest chord between a sample on the
    left and one on the right, which are the neighbours where the envelope touches the middle sample."""
    left, right = samples[:HALF].flip(0)[:, None], samples[HALF + 1 :][None]
    counts = torch.arange(1, HALF + 1, dtype=samples.dtype)
    ahead, behind = (counts.reshape(shape + [1] * (samples.ndim - 1)) for shape in ([1, HALF], [HALF, 1]))
    heights = ((left * ahead + right * behind) / (ahead + behind)).flatten(0, 1)
    chords = ((right - left) / (ahead + behind)).flatten(0, 1)
    lowest = heights.argmin(0, keepdim=True)
    return chords.gather(0, lowest)[0] / step
