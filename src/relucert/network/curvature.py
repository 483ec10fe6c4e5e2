"""Where a function is convex and where it is concave: pieces of the real line, and the breakpoints between them."""

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


class Piece(NamedTuple):
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
        start = lower if self.start is None else _clamped(lower, low=self.start.high)
        return start, upper if self.end is None else _clamped(upper, high=self.end.low)

    def touching(self, slope: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """A tangent point within intervals, which meet the piece."""
        point = self.tangent_point(slope)
        if self.start is not None:
            point = _clamped(point, low=past(self.start.high, 1))
        if self.end is not None:
            point = _clamped(point, high=past(self.end.low, -1))
        return torch.minimum(torch.maximum(point, lower), upper)


def past(cut: float | Tensor, direction: int) -> float | Tensor:
    """A number next to a cut, far enough for any precision to tell them apart where the cut is 0."""
    size = cut.abs() if isinstance(cut, Tensor) else abs(cut)
    return cut + direction * (OPEN + 2.0**-52 * size)


def _clamped(points: Tensor, low: float | Tensor | None = None, high: float | Tensor | None = None) -> Tensor:
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        points = points if low is None else torch.maximum(points, torch.as_tensor(low))
        return points if high is None else torch.minimum(points, torch.as_tensor(high))
    return points.clamp(low, high)
