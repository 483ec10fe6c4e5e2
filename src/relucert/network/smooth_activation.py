"""Smooth activations: bounds by tangents, from a formula of f and f' and the points where f changes its curvature.

The theorem: where f is convex on [a, b], for any t in it

    f(z) - s z >= f(t) - s t + min((f'(t) - s) (b - t), (f'(t) - s) (a - t)),

and where f is concave the least value is at an end. So any line's offset follows from enclosures of f and f' at a point
t that may be found roughly: where f'(t) is about s. Inflection points and kinks cut the interval into such pieces.
A cut that is no number of float64 is enclosed in an interval of its own, on which f's Lipschitz constant bounds it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.elementary import PLAIN, PROVEN, RELATIVE, TINY, ElementaryFunctions
from relucert.network.activation import Activation
from relucert.network.curvature import CurvedPiece, EnclosedPoint, parallel_slope, past, supporting_slopes
from relucert.network.inference import Inference

if TYPE_CHECKING:
    from relucert.arithmetic.rigor import Arithmetic

TANGENT_STEPS = 5  # that find the tangent through a point of the graph; each squares the error


class Terms(NamedTuple):
    """f and f' at points, and the sums of the absolute terms that they were computed from: with `PROVEN` functions
    either is off by at most `RELATIVE` times its sum. None: its own absolute value."""

    value: Tensor
    slope: Tensor
    value_size: Tensor | None = None
    slope_size: Tensor | None = None

    @property
    def value_error(self) -> Tensor:
        return RELATIVE * (self.value.abs() if self.value_size is None else self.value_size) + TINY

    @property
    def slope_error(self) -> Tensor:
        return RELATIVE * (self.slope.abs() if self.slope_size is None else self.slope_size) + TINY


class SmoothActivation(Activation):
    """An activation by its formula; subclasses supply that, the breakpoints, and where f' has a given value."""

    smooth_breakpoints: ClassVar[bool] = True
    """Whether f' is continuous at the breakpoints."""
    overflow_factor: ClassVar[int] = 2
    """How many times the larger of |f| and its scale a step of an evaluation may be."""
    is_gate: ClassVar[bool] = False
    """Whether f is x times a gate, which may be 1 less something that is nearly 1: its scale is |x| at the least."""

    @property
    def curvatures(self) -> tuple[int, ...]:
        """1 (convex) or -1 (concave) for every piece in order, one more than there are breakpoints."""
        return (1,)

    @property
    def breakpoints(self) -> tuple[EnclosedPoint, ...]:
        """Inflection points and kinks, in ascending order."""
        return ()

    @property
    def stationary_points(self) -> tuple[EnclosedPoint, ...]:
        """Where f' is zero and changes its sign."""
        return ()

    @abstractmethod
    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """f and f' at points."""

    @abstractmethod
    def tangent_point(self, slope: Tensor, piece: int) -> Tensor:
        """The point of a piece where f' is about the slope; where it is nowhere, the end or infinity nearest to it."""

    def inside(self, lower: Tensor, upper: Tensor) -> Tensor | None:
        """Whether f is defined on all of [lower, upper]; None: it is everywhere."""
        return None

    def pieces(self, lower: Tensor, upper: Tensor) -> Sequence[CurvedPiece]:
        """Pieces that cover [lower, upper], in order."""
        ends = (None, *self.breakpoints, None)
        return [
            CurvedPiece(curvature, ends[number], ends[number + 1], partial(self.tangent_point, piece=number))
            for number, curvature in enumerate(self.curvatures)
        ]

    def image(self, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
        ends = torch.stack([lower, upper])
        low, high = self._values(ends, arithmetic)
        least, largest = low.amin(0), high.amax(0)
        for stationary in self.stationary_points:
            turned_low, turned_high = self._values_at(stationary, arithmetic, lower)
            met = stationary.met(lower, upper)
            least = torch.where(met, torch.minimum(least, turned_low), least)
            largest = torch.where(met, torch.maximum(largest, turned_high), largest)
        return self._defined(lower, upper, least), self._defined(lower, upper, largest)

    def least(self, slope: Tensor, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor:
        return self._least(1, slope, lower, upper, arithmetic)

    def largest(self, slope: Tensor, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor:
        return -self._least(-1, slope, lower, upper, arithmetic)

    def _least(self, sign: int, slope: Tensor, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor:
        """The least `sign (f(z) - slope z)`: at an end, at a cut, or where `sign f` is convex and has that slope."""
        slope, lower, upper = torch.broadcast_tensors(slope, lower, upper)
        pieces = self.pieces(lower, upper)
        convex = [piece for piece in pieces if isinstance(piece.curvature, Tensor) or piece.curvature == sign]
        with torch.no_grad():
            touching = [piece.touching(slope, lower, upper) for piece in convex]
        points = torch.stack([lower, upper, *touching])
        terms = self.formula(points, PROVEN if arithmetic.rigorous else PLAIN)
        heights = _heights(sign, terms, slope, points, arithmetic)
        least = heights[:2].amin(0)
        steepness = _steepness(sign, terms, slope, arithmetic) if arithmetic.rigorous else None  # 0, or at an end
        for row, piece in enumerate(convex, start=2):
            start, end = piece.within(lower, upper)
            tangent = heights[row]
            if steepness is not None:
                falls = (end - points[row]) * steepness[0][row], (start - points[row]) * steepness[1][row]
                fall = torch.minimum(*falls).clamp(max=0)
                tangent = arithmetic.floor(tangent + arithmetic.down(fall, 4))
            relevant = (end > start) & (sign * piece.curvature > 0)
            least = torch.where(relevant, torch.minimum(least, tangent), least)
        for before, after in pairwise(pieces):
            cut = before.end
            assert cut is not None
            if cut.exact and any(piece is before or piece is after for piece in convex):
                continue
            low, high = self._values_at(cut, arithmetic, lower)
            moved = torch.maximum(sign * slope * cut.low, sign * slope * cut.high)
            at_cut = arithmetic.floor((low if sign > 0 else -high) - arithmetic.up(moved, 1))
            least = torch.where(cut.met(lower, upper), torch.minimum(least, at_cut), least)
        flat = slope == 0
        if bool(flat.any()):
            low, high = self.image(lower, upper, arithmetic)
            least = torch.where(flat, low if sign > 0 else -high, least)
        return self._defined(lower, upper, least)

    def chord(self, lower: Tensor, upper: Tensor) -> Tensor:
        """The slope of the nearest two parallel lines: where f is convex or concave the secant's; where f is S-shaped
        the smaller one of both tangents through an end; else the best of a few at samples."""
        if not self._s_shaped:
            return parallel_slope(self.apply, lower, upper)
        secant = self._secant(lower, upper)
        if len(self.curvatures) == 1:
            return secant
        mixed, nearest = self._mixed(lower, upper), torch.minimum if self.curvatures[0] > 0 else torch.maximum
        if not bool(mixed.any()):
            return secant
        return torch.where(mixed, nearest(*self._tangents(lower, upper, secant)), secant)

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Where f is convex the tangent in the middle and the secant; where it is S-shaped the tangents through the
        ends, as in CROWN's paper; else the lines that support samples of f in the middle of the interval."""
        if not self._s_shaped:
            return supporting_slopes(self.apply, lower, upper)
        secant = self._secant(lower, upper)
        middle = self.formula((lower + upper) / 2, PLAIN).slope
        if len(self.curvatures) == 1:
            return (middle, secant) if self.curvatures[0] > 0 else (secant, middle)
        left, mixed = upper <= self.breakpoints[0].low, self._mixed(lower, upper)
        before, after = torch.where(left, middle, secant), torch.where(left, secant, middle)
        if bool(mixed.any()):
            tangents = self._tangents(lower, upper, secant)
            before, after = torch.where(mixed, tangents[0], before), torch.where(mixed, tangents[1], after)
        return (before, after) if self.curvatures[0] > 0 else (after, before)

    def _mixed(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Whether the only inflection point lies inside of intervals."""
        return (lower < self.breakpoints[0].low) & (upper > self.breakpoints[0].low)

    def _tangents(self, lower: Tensor, upper: Tensor, secant: Tensor) -> Tensor:
        """The slopes of the tangents of the piece before the cut through the graph's point at the upper end, and of the
        piece after it through that at the lower end: (2, ...). Where one touches beyond the interval, the secant's.

        The secants from an end are steepest where they touch, which is no farther from the cut than the end is: so
        steps from a secant's slope to the point that has it as its tangent's converge quadratically.
        """
        cut = torch.full_like(lower, float(self.breakpoints[0].low))
        ends, low, high = torch.stack([upper, lower]), torch.stack([lower, cut]), torch.stack([cut, upper])
        values = self.apply(ends)
        with torch.no_grad():
            touching = torch.clamp(2 * cut - ends, low, high)
            for _ in range(TANGENT_STEPS):
                slopes = (self.apply(touching) - values) / (touching - ends)
                points = torch.stack([self.tangent_point(slopes[piece], piece) for piece in (0, 1)])
                touching = torch.clamp(points, low, high)
            touching = torch.where(touching.isnan(), low, touching)
        apart = touching - ends
        narrow = apart.abs() <= _narrow(lower, upper)
        return torch.where(narrow, secant, (self.apply(touching) - values) / torch.where(narrow, 1, apart))

    def _secant(self, lower: Tensor, upper: Tensor) -> Tensor:
        """The slope between both ends; f' in the middle where they are too near to each other to tell it."""
        width = upper - lower
        narrow = ~(width > _narrow(lower, upper))
        rise = self.apply(upper) - self.apply(lower)
        return torch.where(narrow, self.formula((lower + upper) / 2, PLAIN).slope, rise / torch.where(narrow, 1, width))

    def derivatives(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """The range of f', proven in float64: it is monotone between breakpoints, extreme at these or at ends."""
        ends = torch.stack([lower, upper])
        terms = self.formula(ends, PROVEN if lower.dtype == torch.float64 else PLAIN)
        low, high = terms.slope - terms.slope_error, terms.slope + terms.slope_error
        least, largest = low.amin(0), high.amax(0)
        for before in self.pieces(lower, upper)[:-1]:
            cut = before.end
            assert cut is not None
            cut_low, cut_high = self._derivatives_at(cut, lower)
            met = cut.met(lower, upper)
            least = torch.where(met, torch.minimum(least, cut_low), least)
            largest = torch.where(met, torch.maximum(largest, cut_high), largest)
        inside = self.inside(lower, upper)
        usable = ~(lower.isnan() | upper.isnan() | least.isnan() | largest.isnan())
        usable = usable if inside is None else usable & inside
        return torch.where(usable, least, -torch.inf), torch.where(usable, largest, torch.inf)

    def derivative(self, points: Tensor) -> Tensor:
        return self.formula(points, PLAIN).slope

    def is_affine(self, lower: Tensor, upper: Tensor) -> Tensor:
        return torch.zeros_like(lower, dtype=torch.bool)

    @property
    def lipschitz(self) -> float:
        """Infinite, unless an activation says a number."""
        return math.inf

    @property
    def roundings(self) -> int:
        """Unknown: what a library's function is off by is not specified."""
        return 2**20

    @property
    def rounding_scale(self) -> float | None:
        """What the error of a library's function is relative to, where |f| is smaller; None, unless an activation says
        a number: nothing is assumed about evaluations in floating point."""
        return None

    def accurate_range(self, inference: Inference) -> tuple[float, float]:
        """Between which numbers something is assumed about evaluations in that precision."""
        return -math.inf, math.inf

    @property
    def _s_shaped(self) -> bool:
        """Whether f is convex, concave, or one before a single inflection point and the other after it."""
        return self.curvatures in ((1,), (-1,), (1, -1), (-1, 1)) and self.smooth_breakpoints

    def _values(self, points: Tensor, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
        """f at points, from below and from above."""
        if not arithmetic.rigorous:
            value = self.apply(points)
            return value, value
        terms = self.formula(points, PROVEN)
        return terms.value - terms.value_error, terms.value + terms.value_error

    def _values_at(self, cut: EnclosedPoint, arithmetic: Arithmetic, like: Tensor) -> tuple[Tensor, Tensor]:
        """f from below and from above wherever the cut may be."""
        low, high = self._values(torch.as_tensor(cut.low, dtype=like.dtype), arithmetic)
        if cut.exact or not arithmetic.rigorous:
            return low, high
        spread = 2 * self.lipschitz * (cut.high - cut.low)
        return arithmetic.floor(low - spread), arithmetic.ceil(high + spread)

    def _derivatives_at(self, cut: EnclosedPoint, like: Tensor) -> tuple[Tensor, Tensor]:
        """f' from below and from above wherever the cut may be, and at both sides of it.

        Where breakpoints are not exact f'' is at most 4 near them.
        """
        ends = past(cut.low, -1), cut.low, past(cut.high, 1)
        sides = torch.stack([torch.as_tensor(end, dtype=like.dtype) for end in ends])
        terms = self.formula(sides, PROVEN if like.dtype == torch.float64 else PLAIN)
        error = terms.slope_error.amax(0) + 8 * (cut.high - cut.low)
        return terms.slope.amin(0) - error, terms.slope.amax(0) + error

    def _defined(self, lower: Tensor, upper: Tensor, bound: Tensor) -> Tensor:
        """A bound, and no number where f is not defined on the whole interval."""
        inside = self.inside(lower, upper)
        return bound if inside is None else torch.where(inside, bound, torch.nan)


def _heights(sign: int, terms: Terms, slope: Tensor, points: Tensor, arithmetic: Arithmetic) -> Tensor:
    """`sign (f(z) - slope z)` at points, from below."""
    products = slope * points
    heights = sign * (terms.value - products)
    if not arithmetic.rigorous:
        return heights
    return heights - (terms.value_error + arithmetic.gamma(4) * (terms.value.abs() + products.abs()))


def _steepness(sign: int, terms: Terms, slope: Tensor, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
    """`sign (f' - slope)` at points, from below and from above."""
    steepness = sign * (terms.slope - slope)
    error = terms.slope_error + arithmetic.gamma(4) * (terms.slope.abs() + slope.abs())
    return steepness - error, steepness + error


def _narrow(lower: Tensor, upper: Tensor) -> Tensor:
    """How near two ends may be for the difference of values to tell less than a derivative."""
    share: float = torch.finfo(lower.dtype).eps ** (1 / 3)
    return share * (1 + lower.abs() + upper.abs())
