"""The region of a quadratic certificate in exact numbers: a centre, radii, and a unit ball that a box may cut."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from flint import fmpq

from relucert.checker.claim import RadiusClaim
from relucert.checker.fixed_point import Fixed, rounded
from relucert.checker.fixed_region import FixedRegion

ROOT_BITS = 96  # behind the point, of square roots that are rounded up
Numbers = list[fmpq]


@dataclass(frozen=True)
class BallRegion:
    """The region as `x = centre + radii y` with y in the unit ball of the norm; radius 0: the coordinate stays.

    Attributes:
        confined: The region of y where a box cuts a ball that is no box itself, else None.
        walls: Upper bounds of |y| where a box cuts such a ball, else None.
    """

    norm: float
    centre: Numbers
    radii: Numbers
    confined: FixedRegion | None = None
    walls: Numbers | None = None

    @classmethod
    def of(cls, proof: RadiusClaim) -> BallRegion:
        centre = [fraction(number) for number in proof.image]
        scale = proof.scale or [1.0] * len(centre)
        radii = [fraction(proof.radius) * fraction(unit) for unit in scale]
        if proof.box is None:
            return cls(proof.norm, centre, radii)
        if proof.norm != math.inf:
            walls = [_rooms(ends, centre, radii) for ends in proof.box]
            confined = FixedRegion.ball([0.0] * len(centre), proof.norm, 1.0, ([-room for room in walls[0]], walls[1]))
            farthest = [fraction(max(both)) for both in zip(*walls, strict=True)]
            return cls(proof.norm, centre, radii, confined, farthest)
        ends = []
        for point, step, low, high in zip(centre, radii, *proof.box, strict=True):
            lowest = point - step if low == -math.inf else max(point - step, fraction(low))
            highest = point + step if high == math.inf else min(point + step, fraction(high))
            ends.append((lowest, highest))
        return cls(proof.norm, [(low + high) / 2 for low, high in ends], [(high - low) / 2 for low, high in ends])

    def most_squares(self, weights: Numbers) -> fmpq:
        """An upper bound of the sum of squared coordinates of y with weights >= 0."""
        if self.norm == math.inf:
            return sum(weights, fmpq(0))
        largest = max(weights, default=fmpq(0))
        if self.walls is None:
            return largest
        within = (weight * wall * wall for weight, wall in zip(weights, self.walls, strict=True))
        return min(largest, sum(within, fmpq(0)))

    def fall(self, form: Numbers) -> fmpq:
        """An upper bound of how far a form on y falls below 0."""
        if self.confined is not None:
            (least,) = self.confined.least(fixed(form))
            return fmpq(-least.numerator, least.denominator)
        sizes = [abs(number) for number in form]
        if self.norm == math.inf:
            return sum(sizes, fmpq(0))
        if self.norm == 1:
            return max(sizes, default=fmpq(0))
        squares = sum((size * size for size in sizes), fmpq(0))
        whole = int((squares * (1 << 2 * ROOT_BITS)).ceil())
        return fmpq(math.isqrt(whole) + 1, 1 << ROOT_BITS)


def fixed(numbers: Numbers) -> Fixed:
    """Numbers in fixed point, (1, count), with the error that this makes."""
    return rounded([as_fraction(number) for number in numbers]).reshaped(1, len(numbers))


def _rooms(walls: list[float], centre: Numbers, radii: Numbers) -> list[float]:
    """How far every coordinate may move towards its wall, in units of its radius, rounded up."""
    rooms = []
    for wall, point, step in zip(walls, centre, radii, strict=True):
        distance = abs(fraction(wall) - point) if math.isfinite(wall) else step
        inside = math.nextafter(float(distance / step), math.inf) if 0 < distance < step else 1.0
        rooms.append(0.0 if step == 0 or distance == 0 else inside)
    return rooms


def as_fraction(number: fmpq) -> Fraction:
    return Fraction(int(number.p), int(number.q))


def fraction(number: float) -> fmpq:
    """Exactly a float64 number."""
    return fmpq(*number.as_integer_ratio())
