"""The contract of a smooth activation in the check of proofs: formulas of f and f', and where f is convex or concave.

Formulas are computed in arb's balls, which enclose what they stand for. The derivative's is also computed in float64,
where it only finds the points that tangents touch: any are sound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from flint import arb


class SmoothPiece(NamedTuple):
    """An interval on which f is convex (curvature 1) or concave (-1), with the formulas that hold there.

    Attributes:
        start, end: Balls around the ends of the piece; None: it does not end.
        value, slope: f and f' by formulas that hold on the closed piece.
    """

    start: arb | None
    end: arb | None
    curvature: int
    value: Callable[[arb], arb]
    slope: Callable[[arb], arb]


class SmoothFunction(ABC):
    """A function f of one variable; subclasses are frozen dataclasses of what the network stores of it."""

    curvatures: tuple[int, ...] = (1,)
    overflow_factor: ClassVar[int] = 2  # how many times the larger of |f| and its scale a step of an evaluation may be
    fixed_scale: ClassVar[int | None] = None  # what `scale` is everywhere, where it is the same

    @abstractmethod
    def value(self, x: arb) -> arb:
        """f at a ball."""

    @abstractmethod
    def slope(self, x: Any) -> Any:
        """f' at a ball, or roughly at the numbers of a tensor."""

    def breakpoints(self) -> list[arb]:
        """Balls around the points between two pieces, in ascending order."""
        return []

    def pieces(self, low: arb, high: arb) -> Sequence[SmoothPiece] | None:
        """Pieces that cover an interval, in order; None: they are too many."""
        ends = [None, *self.breakpoints(), None]
        return [
            SmoothPiece(ends[index], ends[index + 1], curvature, self.value, self.slope)
            for index, curvature in enumerate(self.curvatures)
        ]

    def defined(self, low: arb, high: arb) -> bool:
        """Whether f is defined between two numbers."""
        return True

    def scale(self, low: arb, high: arb) -> arb | None:
        """The size that the error of an evaluation is relative to where |f| is smaller; None: no error is known."""
        return None if self.fixed_scale is None else arb(self.fixed_scale)

    def accurate(self, smallest: arb) -> tuple[arb | None, arb | None]:
        """The interval of arguments at which the error of evaluations is known; None: it has no such end.

        smallest: The least positive number that is far from underflow.
        """
        return None, None
