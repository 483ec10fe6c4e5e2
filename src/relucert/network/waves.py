"""Sine and cosine: their inflection points are their zeros, of which an interval may hold any number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from relucert.arithmetic.elementary import LARGEST_ANGLE, ElementaryFunctions
from relucert.network.curvature import CurvedPiece, EnclosedPoint
from relucert.network.inference import Inference
from relucert.network.registry import register
from relucert.network.smooth_activation import SmoothActivation, Terms

if TYPE_CHECKING:
    from relucert.arithmetic.rigor import Arithmetic

PIECES = 4  # from zero to zero, which cover intervals of up to two half periods
LARGEST_ACCURATE = 2.0**13  # of arguments of which something is assumed about evaluations in floating point
ANGLE_ERROR = 1e-6  # in half periods, far above the rounding of an angle in half periods


class _Wave(SmoothActivation):
    """sin(x + quarter pi / 2). On wider intervals than two half periods, and far from 0, it lies in [-1, 1] and nothing
    more is said."""

    quarter: ClassVar[int]
    curvatures = (1, -1) * (PIECES // 2)
    lipschitz = 1.0
    rounding_scale = 1.0

    def is_covered(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Whether the pieces cover the interval."""
        far = torch.maximum(lower.abs(), upper.abs()) > LARGEST_ANGLE / 2
        return ~far & (upper - lower <= 2 * math.pi)

    def pieces(self, lower: Tensor, upper: Tensor) -> Sequence[CurvedPiece]:
        """From zero k to zero k + 1 it is concave for even k, convex for odd k."""
        first = torch.floor(lower / math.pi + self.quarter / 2 - ANGLE_ERROR).nan_to_num(0)
        numbers = [first + index for index in range(PIECES)]
        zeros = [self._zero(number) for number in numbers[1:]]
        ends = [None, *zeros, None]
        return [
            CurvedPiece(2 * (number % 2) - 1, ends[index], ends[index + 1], self._tangent_point_after(number))
            for index, number in enumerate(numbers)
        ]

    def image(self, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
        """The values at the ends, and 1 or -1 where a maximum or a minimum may be between them."""
        ends = torch.stack([lower, upper])
        low, high = self._values(ends, arithmetic)
        is_covered, periods = self.is_covered(lower, upper), ends / (2 * math.pi) + (self.quarter - 1) / 4
        least, largest = low.amin(0).clamp(min=-1), high.amax(0).clamp(max=1)
        top = torch.floor(periods[1] + ANGLE_ERROR) >= torch.ceil(periods[0] - ANGLE_ERROR)
        bottom = torch.floor(periods[1] + ANGLE_ERROR + 0.5) >= torch.ceil(periods[0] - ANGLE_ERROR + 0.5)
        unknown = torch.where(lower.isnan() | upper.isnan(), torch.nan, 1)
        return torch.where(is_covered & ~bottom, least, -unknown), torch.where(is_covered & ~top, largest, unknown)

    def derivatives(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        least, largest = super().derivatives(lower, upper)
        is_covered = self.is_covered(lower, upper)
        return torch.where(is_covered, least.clamp(min=-1), -1), torch.where(is_covered, largest.clamp(max=1), 1)

    def accurate_range(self, inference: Inference) -> tuple[float, float]:
        return -LARGEST_ACCURATE, LARGEST_ACCURATE

    def _least(self, sign: int, slope: Tensor, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor:
        slope, lower, upper = torch.broadcast_tensors(slope, lower, upper)
        low, high = self.image(lower, upper, arithmetic)
        value = low if sign > 0 else -high
        moved = torch.maximum(sign * slope * lower, sign * slope * upper)
        apart = arithmetic.floor(value - arithmetic.up(moved, 1))
        near = super()._least(sign, slope, lower, upper, arithmetic)
        return torch.where(self.is_covered(lower, upper), near, torch.where(slope == 0, value, apart))

    def _zero(self, number: Tensor) -> EnclosedPoint:
        """A zero by its number, off by 4 units of roundoff at most."""
        zero = (number - self.quarter / 2) * math.pi
        error = 2.0**-50 * zero.abs()
        return EnclosedPoint(zero - error, zero + error)

    def _tangent_point_after(self, number: Tensor) -> Callable[[Tensor], Tensor]:
        zero, rising = (number - self.quarter / 2) * math.pi, 1 - 2 * (number % 2)
        return lambda slope: zero + (rising * slope).clamp(-1, 1).acos()

    def tangent_point(self, slope: Tensor, piece: int) -> Tensor:
        raise NotImplementedError("the pieces of a wave have tangent points of their own")


@register
class Sin(_Wave):
    """The sine, coordinate by coordinate."""

    name = "sin"
    quarter = 0

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].sin()

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        ones = torch.ones_like(points)
        return Terms(functions.sin(points), functions.cos(points), ones, ones)


@register
class Cos(_Wave):
    """The cosine, coordinate by coordinate."""

    name = "cos"
    quarter = 1

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].cos()

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        ones = torch.ones_like(points)
        return Terms(functions.cos(points), -functions.sin(points), ones, ones)
