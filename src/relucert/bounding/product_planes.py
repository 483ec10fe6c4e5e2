"""McCormick's planes around products of two computed values, which networks have in squares.

With p = x + y and m = x - y, `p^2 - m^2` is `4 x y`. A line around either square, of the slopes s and t, gives

    p^2 - m^2 >= s p - t m + (the least p^2 - s p) - (the largest m^2 - t m).

Where x and y lie in intervals the same slopes have another offset: what is left of `4 x y` is bilinear in x and y,

    4 x y - s p + t m = 4 x y - (s - t) x - (s + t) y,

so it is least, and largest, at one of four corners. The better one of both offsets holds. The slopes of tangents at a
corner make a plane of McCormick's; whoever optimises slopes chooses among all such planes and their mixtures.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.interval import Interval


class SquareLines(NamedTuple):
    """One line around the square of p and one around that of m: slopes and offsets, tensors of one shape."""

    plus_slope: Tensor
    plus_offset: Tensor
    minus_slope: Tensor
    minus_offset: Tensor


def gains(factors: tuple[Interval, Interval], lines: SquareLines, positive: Tensor, arithmetic: Arithmetic) -> Tensor:
    """What the offset at the corners gains over that of two lines, per unit of a coefficient on `p^2 - m^2`.

    Args:
        factors: The intervals of x and y.
        lines: Below p^2 and above m^2 where a coefficient is positive, above p^2 and below m^2 elsewhere.
        positive: Where the coefficient is.
    """
    usable = torch.stack([end.isfinite() for factor in factors for end in factor]).all(0)
    least, largest = _at_corners(
        [factor.map(lambda end: torch.where(usable, end, 0)) for factor in factors],
        lines.plus_slope, lines.minus_slope, arithmetic,
    )  # fmt: skip
    offset = lines.plus_offset - lines.minus_offset
    above, below = least - arithmetic.ceil(offset), arithmetic.floor(offset) - largest
    gained = arithmetic.floor(torch.where(positive, above, below))
    return torch.where(usable & offset.isfinite() & (gained > 0), gained, 0)


def _at_corners(
    factors: list[Interval], plus_slope: Tensor, minus_slope: Tensor, arithmetic: Arithmetic
) -> tuple[Tensor, Tensor]:
    """The least and the largest `4 x y - s (x + y) + t (x - y)`."""
    first, second = plus_slope - minus_slope, plus_slope + minus_slope
    corners = [4 * x * y - first * x - second * y for x in factors[0] for y in factors[1]]
    least = torch.minimum(torch.minimum(*corners[:2]), torch.minimum(*corners[2:]))
    largest = torch.maximum(torch.maximum(*corners[:2]), torch.maximum(*corners[2:]))
    if not arithmetic.rigorous:
        return least, largest
    x, y = (factor.largest for factor in factors)
    size = 4 * x * y + (plus_slope.abs() + minus_slope.abs()) * (x + y)
    error = arithmetic.above(arithmetic.gamma(6) * size, 6)
    return arithmetic.floor(least - error), arithmetic.ceil(largest + error)
