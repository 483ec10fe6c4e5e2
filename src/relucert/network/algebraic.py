"""Activations that are powers or a logarithm.

Most are not defined everywhere: where an interval leaves their domain there are no bounds.

Errors of formulas are counted in units of u = 2^-53, as in `relucert.arithmetic.elementary`.
"""

from __future__ import annotations

import math

from torch import Tensor

from relucert.arithmetic.elementary import ElementaryFunctions
from relucert.errors import NetworkError
from relucert.network.curvature import EnclosedPoint
from relucert.network.inference import Inference
from relucert.network.registry import register
from relucert.network.smooth_activation import SmoothActivation, Terms

LARGEST_EXPONENT = 64


@register
class Power(SmoothActivation):
    """`x^exponent` for a whole exponent from 2 to 64, coordinate by coordinate."""

    name = "power"
    exponent: int

    def __post_init__(self) -> None:
        if type(self.exponent) is not int or not 2 <= self.exponent <= LARGEST_EXPONENT:
            raise NetworkError(f"an exponent is a whole number from 2 to {LARGEST_EXPONENT}, not {self.exponent!r}")

    @property
    def curvatures(self) -> tuple[int, ...]:
        return (-1, 1) if self.exponent % 2 else (1,)

    @property
    def breakpoints(self) -> tuple[EnclosedPoint, ...]:
        return (EnclosedPoint(0.0, 0.0),) if self.exponent % 2 else ()

    @property
    def stationary_points(self) -> tuple[EnclosedPoint, ...]:
        return () if self.exponent % 2 else (EnclosedPoint(0.0, 0.0),)

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0] ** self.exponent

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """The power and its derivative, each with at most as many roundings as the exponent."""
        before = _power(points, self.exponent - 1)
        return Terms(before * points, self.exponent * before)

    def tangent_point(self, slope: Tensor, piece: int) -> Tensor:
        if self.exponent == 2:
            return slope / 2
        if self.exponent % 2:
            size = (slope.clamp(min=0) / self.exponent) ** (1 / (self.exponent - 1))
            return -size if piece == 0 else size
        return slope.sign() * (slope.abs() / self.exponent) ** (1 / (self.exponent - 1))


@register
class Reciprocal(SmoothActivation):
    """`1 / x`, coordinate by coordinate; not defined at 0."""

    name = "reciprocal"
    curvatures = (-1, 1)
    breakpoints = (EnclosedPoint(0.0, 0.0),)

    def inside(self, lower: Tensor, upper: Tensor) -> Tensor:
        return (lower > 0) | (upper < 0)

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].reciprocal()

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """The reciprocal, rounded once, and its derivative, rounded twice."""
        value = 1 / points
        return Terms(value, -value * value)

    def tangent_point(self, slope: Tensor, piece: int) -> Tensor:
        size = (-slope).clamp(min=0).rsqrt()
        return -size if piece == 0 else size


@register
class Sqrt(SmoothActivation):
    """The square root, coordinate by coordinate; not defined below 0."""

    name = "sqrt"
    curvatures = (-1,)
    rounding_scale = 0.0

    def inside(self, lower: Tensor, upper: Tensor) -> Tensor:
        return (lower >= 0) & (upper >= 0)

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].sqrt()

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """The root, off by 4 u, and its derivative, off by 5 u."""
        value = functions.sqrt(points)
        return Terms(value, 0.5 / value)

    def accurate_range(self, inference: Inference) -> tuple[float, float]:
        return inference.least_operand, math.inf

    def tangent_point(self, slope: Tensor, piece: int) -> Tensor:
        return (2 * slope).clamp(min=0) ** -2


@register
class Log(SmoothActivation):
    """The natural logarithm, coordinate by coordinate; not defined at 0 and below."""

    name = "log"
    curvatures = (-1,)
    rounding_scale = 1.0

    def inside(self, lower: Tensor, upper: Tensor) -> Tensor:
        return (lower > 0) & (upper > 0)

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].log()

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """The logarithm, off by 12 u, and its derivative, off by 1 u."""
        return Terms(functions.log(points), 1 / points)

    def accurate_range(self, inference: Inference) -> tuple[float, float]:
        return inference.least_operand, math.inf

    def tangent_point(self, slope: Tensor, piece: int) -> Tensor:
        return 1 / slope.clamp(min=0)


def _power(points: Tensor, exponent: int) -> Tensor:
    """A power by repeated squaring, which rounds at most once per unit of the exponent."""
    if exponent == 1:
        return points
    half = _power(points, exponent // 2)
    square = half * half
    return square * points if exponent % 2 else square
