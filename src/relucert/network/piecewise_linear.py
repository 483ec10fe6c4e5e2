"""Any activation of straight pieces, such as LeakyReLU, Abs and Clip, as one operation.

No file stores it: an import writes such activations as affine operations and ReLUs, which methods for ReLU and proofs
need, and `fuse_activations` makes one operation of them again where bounds gain by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from relucert.network.activation import Activation

if TYPE_CHECKING:
    from relucert.arithmetic.rigor import Arithmetic


class Corners(NamedTuple):
    """The ends of an interval, the lower one first, and between them the breaks of a function, and the pieces
    `factors * z + offsets` there: (corners, batch, size) each. A break that is not within is one of the ends.
    """

    points: Tensor
    factors: Tensor
    offsets: Tensor

    def above_line(self, slope: Tensor) -> Tensor:
        """`f(z) - slope z`, not rounded outwards."""
        return (self.factors - slope) * self.points + self.offsets

    def bounds(self, slope: Tensor, rounded: Callable[[Tensor], Tensor]) -> Tensor:
        """`f(z) - slope z`, where `rounded` sums a product and the offset; the offset itself where the product is 0."""
        differences = self.factors - slope
        exact = (self.points == 0) | ((differences == 0) & (self.points == self.points))  # and no NaN
        return torch.where(exact, self.offsets, rounded(differences * self.points))

    def chords(self) -> Iterator[Tensor]:
        """The slopes between any two corners, (batch, size) each; between two at one point that of the piece there."""
        heights = self.factors * self.points + self.offsets
        for first, second in combinations(range(len(self.points)), 2):
            width = self.points[second] - self.points[first]
            slope = (heights[second] - heights[first]) / torch.where(width > 0, width, 1)
            yield torch.where(width > 0, slope, self.factors[first])


@dataclass(frozen=True, eq=False)
class PiecewiseLinear(Activation):
    """`factors[i] z + offsets[i]` between `breaks[i - 1]` and `breaks[i]`, continuous in real arithmetic.

    Attributes:
        breaks: In ascending order, (pieces - 1, size), or (pieces - 1, 1) for one function of all coordinates.
        factors: The slopes of the pieces, (pieces, size or 1).
        offsets: Their values at zero, (pieces, size or 1).
    """

    name = "piecewise-linear"
    breaks: Tensor
    factors: Tensor
    offsets: Tensor

    def apply(self, *inputs: Tensor) -> Tensor:
        flat = inputs[0].reshape(-1, self.breaks.shape[1])
        factor, offset = (table.to(flat.dtype) for table in self._piece(flat))
        return (factor * flat + offset).reshape(inputs[0].shape)

    def image(self, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
        flat = torch.zeros_like(lower)
        least = self.least(flat, lower, upper, arithmetic)
        return flat if least is None else least, self.largest(flat, lower, upper, arithmetic)

    def least(self, slope: Tensor, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor | None:
        """The least `f(z) - slope z`: this has straight pieces, too, so it is at an end or at a break."""
        corners = self._corners(lower, upper)
        bounds = corners.bounds(slope, lambda product: arithmetic.floor(arithmetic.down(product, 3) + corners.offsets))
        least = bounds.amin(0)
        return least if bool(least.any()) else None

    def largest(self, slope: Tensor, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor:
        corners = self._corners(lower, upper)
        bounds = corners.bounds(slope, lambda product: arithmetic.ceil(arithmetic.up(product, 3) + corners.offsets))
        return bounds.amax(0)

    def chord(self, lower: Tensor, upper: Tensor) -> Tensor:
        """The slope of the two closest parallel lines around the graph, each through corners of it."""
        if len(self.breaks) == 1:
            return self._secant(lower, upper)
        corners = self._corners(lower, upper)
        best, distance = corners.factors[0], torch.full_like(lower, torch.inf)
        for chord in corners.chords():
            heights = corners.above_line(chord)
            apart = heights.amax(0) - heights.amin(0)
            best, distance = torch.where(apart < distance, chord, best), torch.fmin(apart, distance)
        return torch.where(self.is_affine(lower, upper), corners.factors[0], best)

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """The slopes of a line below the graph and of one above it, through two of its corners each.

        They are the lines nearest to each other in the middle of the interval: the area between them is the smallest.
        """
        middle = (lower + upper) / 2
        if len(self.breaks) == 1:
            (left, right), secant = self.factors, self._secant(lower, upper)
            nearer = torch.where(middle > self.breaks[0], right, left)
            nearer = torch.where(self.is_affine(lower, upper), secant, nearer)
            convex = right >= left
            return torch.where(convex, nearer, secant), torch.where(convex, secant, nearer)
        corners = self._corners(lower, upper)
        below = above = own = corners.factors[0]
        highest, lowest = torch.full_like(lower, -torch.inf), torch.full_like(lower, torch.inf)
        for chord in corners.chords():
            heights = corners.above_line(chord)
            low, high = heights.amin(0) + chord * middle, heights.amax(0) + chord * middle
            below, highest = torch.where(low > highest, chord, below), torch.fmax(low, highest)
            above, lowest = torch.where(high < lowest, chord, above), torch.fmin(high, lowest)
        stable = self.is_affine(lower, upper)
        return torch.where(stable, own, below), torch.where(stable, own, above)

    def derivatives(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        least = largest = self._piece(lower)[0].expand_as(lower)
        for end, factor in zip(self.breaks, self.factors[1:], strict=True):
            met = ~(lower >= end) & ~(upper <= end)
            least = torch.where(met, torch.minimum(least, factor), least)
            largest = torch.where(met, torch.maximum(largest, factor), largest)
        return least, largest

    def derivative(self, points: Tensor) -> Tensor:
        return self._piece(points)[0].expand_as(points)

    def is_affine(self, lower: Tensor, upper: Tensor) -> Tensor:
        affine = torch.ones_like(lower, dtype=torch.bool)
        for end in self.breaks:
            affine = affine & ((lower >= end) | (upper <= end))
        return affine

    @property
    def lipschitz(self) -> float:
        return float(self.factors.abs().max())

    @property
    def roundings(self) -> int:
        """So many that nothing is proven by the count: terms of the sum may cancel, `apply` is not for evaluations."""
        return 2**20

    def _secant(self, lower: Tensor, upper: Tensor) -> Tensor:
        """The slope between both ends, which no other is better than where f is convex or concave."""
        (first, low), (last, high) = self._piece(lower), self._piece(upper)
        stable = self.is_affine(lower, upper)
        width = torch.where(stable, 1, upper - lower)
        return torch.where(stable, first, (last * upper + high - first * lower - low) / width)

    def _piece(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Factor and offset of the piece at points, (..., size); at a break those of the piece after it."""
        factor, offset = self.factors[0], self.offsets[0]
        for end, next_factor, next_offset in zip(self.breaks, self.factors[1:], self.offsets[1:], strict=True):
            after = points >= end
            factor, offset = torch.where(after, next_factor, factor), torch.where(after, next_offset, offset)
        return factor, offset

    def _corners(self, lower: Tensor, upper: Tensor) -> Corners:
        points = torch.stack([lower, *(torch.clamp(end, lower, upper) for end in self.breaks), upper])
        pieces, stable = self._piece(points), self.is_affine(lower, upper)  # where the upper end may be a break, too
        return Corners(points, *(torch.where(stable, table[0], table) for table in pieces))
