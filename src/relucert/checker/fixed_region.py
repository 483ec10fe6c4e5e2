"""Concretisation in fixed point: the least values of linear forms over the region of the inputs.

All ends are rounded outwards once; the values of forms are then computed without an error. In a ball that a box cuts, a
form is split into a sum: one summand is bounded by the dual norm, the other one by the box. Any split gives a bound,
a good one is chosen in floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from relucert.checker.fixed_point import BITS, Fixed, multiply, of_fractions, row_sums, sums

ROUNDS = 8  # of the active-set iteration that splits forms for p = 2: any number is sound
ROOT_BITS = 64  # behind the point, of square roots
Ends = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True, eq=False)
class FixedRegion:
    """The x with `||(x - centre) / scale||_p <= radius`, none of them beyond the ends of a box.

    Attributes:
        low, high: The ends of each coordinate: of the region for p = infinity, else of the centre.
        norm: p, which is 1, 2 or infinity.
        scale: How far each coordinate may move per unit of radius, rounded up; None for ones.
        rooms: For p = 1 and 2 and a box, how far each coordinate may go down and up from the centre.
        sizes: The absolute values of the coordinates, at most.
    """

    low: Fixed
    high: Fixed
    norm: float
    radius: Fraction
    scale: Fixed | None
    rooms: tuple[Fixed, Fixed] | None
    sizes: list[Fraction]

    @classmethod
    def ball(
        cls, centre: Sequence[float], norm: float, radius: float, box: Ends | None = None,
        scale: Sequence[float] | None = None,
    ) -> FixedRegion:  # fmt: skip
        """A ball, cut by a box where there is one, whose infinite ends cut nothing."""
        point, exact_radius = [Fraction(number) for number in centre], Fraction(radius)
        steps = [exact_radius] * len(point) if scale is None else [exact_radius * Fraction(number) for number in scale]
        low = [number - step for number, step in zip(point, steps, strict=True)]
        high = [number + step for number, step in zip(point, steps, strict=True)]
        if box is not None:
            low = [max(end, Fraction(wall)) if wall > -math.inf else end for end, wall in zip(low, box[0], strict=True)]
            high = [
                min(end, Fraction(wall)) if wall < math.inf else end for end, wall in zip(high, box[1], strict=True)
            ]
        around = cls.between(low, high)
        if norm == math.inf:
            return around
        rooms = None
        if box is not None:
            falls, rises = ([abs(end - wall) for end, wall in zip(point, ends, strict=True)] for ends in (low, high))
            rooms = of_fractions(falls, up=True), of_fractions(rises, up=True)
        units = None if scale is None else of_fractions([Fraction(number) for number in scale], up=True)
        return cls(of_fractions(point), of_fractions(point, up=True), norm, exact_radius, units, rooms, around.sizes)

    @classmethod
    def between(cls, low: Sequence[Fraction], high: Sequence[Fraction]) -> FixedRegion:
        """A box with these ends."""
        sizes = [max(abs(lowest), abs(highest)) for lowest, highest in zip(low, high, strict=True)]
        return cls(of_fractions(low), of_fractions(high, up=True), math.inf, Fraction(0), None, None, sizes)

    def least(self, forms: Fixed) -> list[Fraction]:
        """Lower bounds of forms, (forms, size), on the inputs."""
        charge = forms.error * self.total / Fraction(2) ** forms.bits
        columns = forms.support
        return [number - charge for number in self._at(columns)._least(forms.at(columns))]

    def _at(self, columns: Tensor | None) -> FixedRegion:
        """The region in some coordinates alone, None for all; others must have coefficient 0 in the forms."""
        if columns is None:
            return self
        return replace(
            self,
            low=self.low.at(columns),
            high=self.high.at(columns),
            scale=None if self.scale is None else self.scale.at(columns),
            rooms=None if self.rooms is None else (self.rooms[0].at(columns), self.rooms[1].at(columns)),
        )

    def _least(self, forms: Fixed) -> list[Fraction]:
        if not forms.units.shape[1]:
            return [Fraction(0)] * len(forms.units)
        values = _worth(forms, self.low, self.high)
        if self.norm == math.inf:
            return values
        return [value - fall for value, fall in zip(values, self._falls(forms), strict=True)]

    def _falls(self, forms: Fixed) -> list[Fraction]:
        """How far forms fall below their values at the centre, at most, by the dual norm."""
        forms = forms.filled()
        sizes = forms.absolute
        if self.rooms is None:
            return [self.radius * norm for norm in self._dual(sizes)]
        norm_units = torch.minimum(self._norm_shares(forms), sizes.units)
        walled_units = sizes.units - norm_units
        down, up = self.rooms
        falling, rising = walled_units * (forms.units > 0), walled_units * (forms.units < 0)
        falls, rises = _sums(forms, falling, down), _sums(forms, rising, up)
        by_walls = [fall + rise for fall, rise in zip(falls, rises, strict=True)]
        by_norm = self._dual(replace(forms, units=norm_units))
        return [wall + self.radius * norm for wall, norm in zip(by_walls, by_norm, strict=True)]

    def _dual(self, sizes: Fixed) -> list[Fraction]:
        """The dual norms of forms with coefficients >= 0 that are scaled first, at most."""
        moved, unit = replace(sizes, error=0).filled(), 0
        if self.scale is not None:
            moved = multiply(moved, self.scale, torch.mul, 1).filled()
            unit = 1 if moved.error else 0  # products are rounded down
        largest = [int(number) for number in moved.units.amax(1).tolist()]
        if self.norm == 1:
            return [Fraction(number + unit) / Fraction(2) ** moved.bits for number in largest]
        moved = replace(moved, units=moved.units + unit)
        squares = row_sums(moved, moved)
        return [_root(square) / Fraction(2) ** moved.bits for square in squares]

    def _norm_shares(self, forms: Fixed) -> Tensor:
        """The share of each coefficient that the dual norm bounds, in the units of the forms: about the best split."""
        coefficients, scale = forms.units.double() * 2.0**-BITS, self._float_scale
        sizes = coefficients.abs() * scale
        down, up = self._float_rooms
        room = torch.where(coefficients > 0, down, up)
        radius = float(self.radius)
        if self.norm == 1:
            ordered, order = sizes.sort(dim=1, descending=True)
            spent = room.gather(1, order).cumsum(1)
            last = (spent < radius).sum(1, keepdim=True)
            level = torch.where(last < sizes.shape[1], ordered.gather(1, last.clamp(max=sizes.shape[1] - 1)), 0.0)
            limit = level.expand_as(sizes)
        else:
            limit = _limits(sizes, room, radius)
        share = torch.where(sizes > 0, (limit / sizes).clamp(0, 1), 1.0).nan_to_num(1.0)
        return (share * coefficients.abs() * 2.0**BITS).to(torch.int64)

    @cached_property
    def total(self) -> Fraction:
        """The sum of the absolute values of all coordinates, at most."""
        return sum(self.sizes, Fraction(0))

    @cached_property
    def _float_scale(self) -> Tensor:
        return torch.ones(1, dtype=torch.float64) if self.scale is None else self.scale.floats()

    @cached_property
    def _float_rooms(self) -> list[Tensor]:
        """The distances to the walls in units of the scale; 0 where a coordinate does not move."""
        assert self.rooms is not None
        return [torch.where(self._float_scale > 0, room.floats() / self._float_scale, 0.0) for room in self.rooms]


def _limits(sizes: Tensor, room: Tensor, radius: float) -> Tensor:
    """How much of each coefficient the 2-norm is charged for: coordinates move in proportion to it, up to a wall."""
    walled = torch.zeros_like(sizes, dtype=torch.bool)
    level = sizes.new_zeros(len(sizes), 1)
    for _ in range(ROUNDS):
        remaining = (radius * radius - (room.square() * walled).sum(1, keepdim=True)).clamp(min=0).sqrt()
        moving = (sizes * ~walled).norm(dim=1, keepdim=True)
        level = torch.where(remaining > 0, moving / remaining, 0.0)
        walled = walled | (sizes > level * room)
    return level * room


def _root(square: int) -> Fraction:
    """The square root, rounded up."""
    return Fraction(math.isqrt((square << (2 * ROOT_BITS)) - 1) + 1, 1 << ROOT_BITS) if square else Fraction(0)


def _worth(forms: Fixed, low: Fixed, high: Fixed) -> list[Fraction]:
    """The least values of forms on a box, without the forms' errors."""
    positive = _sums(forms, forms.units.clamp(min=0), low)
    negative = _sums(forms, forms.units.clamp(max=0), high)
    return [below + above for below, above in zip(positive, negative, strict=True)]


def _sums(forms: Fixed, units: Tensor, vector: Fixed) -> list[Fraction]:
    unit = Fraction(2) ** -(forms.bits + vector.bits)
    return [total * unit for total in sums(Fixed(units, forms.bits), vector)]
