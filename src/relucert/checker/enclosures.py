"""Smooth activations between the bounds of their pre-activation: offsets of lines of any slope, proven in balls.

The theorem: where f is convex on a piece, for any t of the piece and any z between a and b in it,

    f(z) - s z >= f(t) - s t + min((f'(t) - s) (a - t), (f'(t) - s) (b - t)),

and where f is concave the least value is at a or b. The largest value is the least one of the negative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, reduce

import torch
from flint import arb, ctx, fmpq
from torch import Tensor

from relucert.checker.activations import SmoothFunction, SmoothPiece
from relucert.checker.entries import require
from relucert.checker.fixed_point import Fixed, of_integers
from relucert.checker.noise import ActivationError

BOUND_BITS = 64  # of bounds of neurons
OFFSET_BITS = 160  # of offsets, which are then rounded to what a `Fixed` has
PRECISION = 192  # bits of balls
STEPS = 64  # of the bisection for a tangent point
LARGEST = 1024  # bits before the point of values of activations

Key = tuple[int, int, float]
"""Sign, neuron and slope of a line."""


class Enclosed:
    """One activation of all neurons of a pre-activation, between bounds that are integers over 2**64."""

    def __init__(
        self, function: SmoothFunction, lower: Sequence[int], upper: Sequence[int], error: ActivationError | None = None
    ) -> None:
        """error: what an evaluation of f may be off, where bounds are of what is computed."""
        self.function, self._error = function, error
        self._offsets: dict[Key, int] = {}
        with ctx.workprec(PRECISION):
            self._ends = [(_ball(low), _ball(high)) for low, high in zip(lower, upper, strict=True)]
            defined = all(function.defined(low, high) for low, high in self._ends)
            require(defined, f"a neuron may leave the domain of {function.name}")
            self._pieces = [self._met(*ends) for ends in self._ends]
            self._noise = self._noises()

    def offsets(self, slopes: Tensor, sign: int, where: Tensor | None = None) -> Fixed:
        """The offsets of lines with these slopes below f, or with the sign -1 above it, rounded outwards.

        Args:
            slopes: float64, (size,) or (forms, size).
            where: Which offsets are needed, in the shape of the slopes; the result has zeros elsewhere.
        """
        needed = torch.ones_like(slopes, dtype=torch.bool) if where is None else where
        indices = needed.reshape(-1).nonzero().flatten().tolist()
        numbers, size = slopes.reshape(-1).tolist(), slopes.shape[-1]
        keys = {index: (sign, index % size, numbers[index]) for index in indices}
        self._find({key for key in keys.values() if key not in self._offsets})
        offsets = [0] * len(numbers)
        for index, key in keys.items():
            offsets[index] = self._offsets[key]
        return of_integers(offsets, OFFSET_BITS, up=sign < 0).reshaped(*slopes.shape)

    @cached_property
    def image(self) -> tuple[Fixed, Fixed]:
        """Lower and upper bounds of the activations, rounded outwards."""
        flat = torch.zeros(len(self._ends), dtype=torch.float64)
        return self.offsets(flat, 1), self.offsets(flat, -1)

    @cached_property
    def sizes(self) -> list[int]:
        """How large the activations may be in absolute value, over 2**64."""
        low, high = (fixed.units.tolist() for fixed in self.image)
        bits = self.image[0].bits, self.image[1].bits
        ends = zip(low, high, strict=True)
        return [max(_over(-lowest, bits[0]), _over(highest, bits[1]), 0) for lowest, highest in ends]

    @cached_property
    def total(self) -> int:
        """The sum of the sizes."""
        return sum(self.sizes)

    def _find(self, keys: set[Key]) -> None:
        """Computes the offsets of neurons' lines, by sign and slope."""
        wanted = sorted(keys)
        if not wanted:
            return
        with ctx.workprec(PRECISION):
            touching = self._touching(wanted)
            for sign, neuron, slope in wanted:
                least = self._least(sign, neuron, slope, touching) - self._noise[neuron]
                self._offsets[sign, neuron, slope] = sign * _floor(least)

    def _noises(self) -> list[arb]:
        """What an evaluation may add to f, by neuron."""
        if self._error is None:
            return [arb(0)] * len(self._ends)
        keys = [(sign, neuron, 0.0) for neuron in range(len(self._ends)) for sign in (1, -1)]
        touching = self._touching(keys)
        least = [-self._least(*key, touching) for key in keys]
        sizes = [arb.max(*both) for both in zip(least[::2], least[1::2], strict=True)]
        return [self._error.noise(self.function, *ends, size) for ends, size in zip(self._ends, sizes, strict=True)]

    def _least(self, sign: int, neuron: int, slope: float, touching: dict[tuple[Key, int], float]) -> arb:
        """A ball whose lower end bounds `sign (f(z) - slope z)` of a neuron from below."""
        number, (low, high) = arb(slope), self._ends[neuron]
        pieces = self._pieces[neuron]
        if pieces is None:  # a wave over many periods
            return -1 - arb.max(sign * number * low, sign * number * high)
        candidates: list[arb] = []
        for index, (piece, start, end) in enumerate(pieces):
            if piece.curvature != sign:
                candidates += [sign * (piece.value(point) - number * point) for point in (start, end)]
                continue
            point = arb(touching[(sign, neuron, slope), index])
            inside = (piece.start is None or point >= piece.start) and (piece.end is None or point <= piece.end)
            if not inside:  # the intersection is too short for float64
                whole = start.union(end)
                candidates.append(sign * (piece.value(whole) - number * whole))
                continue
            tilt = sign * (piece.slope(point) - number)
            falls = arb.min(tilt * (start - point), tilt * (end - point))
            candidates.append(sign * (piece.value(point) - number * point) + falls)
        return reduce(arb.min, candidates)

    def _met(self, low: arb, high: arb) -> list[tuple[SmoothPiece, arb, arb]] | None:
        """The pieces that an interval may meet, each with the ends of its intersection with the interval."""
        pieces = self.function.pieces(low, high)
        if pieces is None:
            return None
        met = []
        for piece in pieces:
            if (piece.start is not None and high < piece.start) or (piece.end is not None and low > piece.end):
                continue
            start = low if piece.start is None or low > piece.start else piece.start
            end = high if piece.end is None or high < piece.end else piece.end
            met.append((piece, start, end))
        return met

    def _touching(self, wanted: Sequence[Key]) -> dict[tuple[Key, int], float]:
        """Points of convex pieces where f' is about the slope, by bisection in float64."""
        keys, starts, ends = [], [], []
        for sign, neuron, slope in wanted:
            for index, (piece, start, end) in enumerate(self._pieces[neuron] or ()):
                if piece.curvature == sign:
                    keys.append(((sign, neuron, slope), index))
                    starts.append(math.nextafter(float(start.upper()), math.inf))
                    ends.append(math.nextafter(float(end.lower()), -math.inf))
        low, high = (torch.tensor(numbers, dtype=torch.float64) for numbers in (starts, ends))
        signs, slopes = (torch.tensor([key[field] for key, _ in keys], dtype=torch.float64) for field in (0, 2))
        for _ in range(STEPS):
            middle = low + (high - low) / 2
            before = signs * self.function.slope(middle) < signs * slopes
            low, high = torch.where(before, middle, low), torch.where(before, high, middle)
        return dict(zip(keys, low.tolist(), strict=True))


def _ball(units: int) -> arb:
    return arb(fmpq(units, 1 << BOUND_BITS))


def _floor(ball: arb) -> int:
    """An integer over 2**OFFSET_BITS that no number of the ball is below."""
    low = ball.lower()
    small = bool(low.is_finite()) and abs(low) < arb(2) ** LARGEST
    require(small, "an activation's bounds are too large or no numbers")
    mantissa, exponent = low.man_exp()
    shift = int(exponent) + OFFSET_BITS
    return int(mantissa) << shift if shift >= 0 else int(mantissa) >> -shift


def _over(units: int, bits: int) -> int:
    """An integer over 2**bits as one over 2**64, rounded up."""
    shift = BOUND_BITS - bits
    return units << shift if shift >= 0 else -(-units >> -shift)
