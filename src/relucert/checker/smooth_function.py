"""The contract of a smooth activation in the check of proofs: formulas of f and f', and where f is convex or concave.

Formulas are computed in arb's balls, which enclose what they stand for. The derivative's is also computed in float64,
where it only finds the points that tangents touch: any are sound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from flint import arb

Formula = Callable[[Any], Any]


class SmoothPiece(NamedTuple):
    """An interval on which f is convex (curvature 1) or concave (-1), with the formulas that hold there.

    Attributes:
        start, end: Balls around the ends of the piece; None: it does not end.
        value, slope: f and f' by formulas that hold on the closed piece.
    """

    start: arb | None
    end: arb | None
    curvature: int
    value: Formula
    slope: Formula


@dataclass(frozen=True, eq=False)
class SmoothFunction:
    """A function f of one variable. What gives balls gives them in the precision that is set when it is called.

    Attributes:
        name: That of the network's operation.
        value: f at a ball.
        slope: f' roughly at the numbers of a tensor; and at a ball, unless there are `formulas`.
        curvatures: The curvatures of the pieces, in order.
        breakpoints: Gives balls around the points between two pieces, in ascending order.
        formulas: By piece, f and f' as they are there; None: `value` and `slope` everywhere.
        pieces_between: Gives the pieces that cover an interval, where these depend on it, or None if they are too many.
        scale: Gives the size that the error of an evaluation between two numbers is relative to where |f| is smaller;
            None: no error is known.
        defined: Whether f is defined between two numbers.
        accurate: Gives the interval of arguments at which the error of evaluations is known, None for no such end, from
            the least positive number that is far from underflow.
        overflow_factor: How many times the larger of |f| and its scale a step of an evaluation may be.
    """

    name: str
    value: Formula
    slope: Formula
    curvatures: tuple[int, ...] = (1,)
    breakpoints: Callable[[], list[arb]] = list
    formulas: Sequence[tuple[Formula, Formula]] | None = None
    pieces_between: Callable[[arb, arb], Sequence[SmoothPiece] | None] | None = None
    scale: Callable[[arb, arb], arb] | None = None
    defined: Callable[[arb, arb], bool] = lambda low, high: True
    accurate: Callable[[arb], tuple[arb | None, arb | None]] = lambda smallest: (None, None)
    overflow_factor: int = 2

    def pieces(self, low: arb, high: arb) -> Sequence[SmoothPiece] | None:
        """Pieces that cover an interval, in order; None: they are too many."""
        if self.pieces_between is not None:
            return self.pieces_between(low, high)
        ends = pairwise([None, *self.breakpoints(), None])
        formulas = self.formulas or [(self.value, self.slope)] * len(self.curvatures)
        return [
            SmoothPiece(start, end, curvature, value, slope)
            for (start, end), curvature, (value, slope) in zip(ends, self.curvatures, formulas, strict=True)
        ]
