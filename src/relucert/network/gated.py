"""Activations that are x times a gate between 0 and 1: SiLU, both forms of GELU, Mish and hard swish.

All but the last are concave, convex, concave. Errors of formulas are counted in units of u = 2^-53, as in
`relucert.arithmetic.elementary`; that these are all inflection and turning points is proven in the tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from relucert.arithmetic.elementary import PLAIN, TAIL, ElementaryFunctions, logistic
from relucert.network.curvature import EnclosedPoint
from relucert.network.registry import register
from relucert.network.smooth_activation import SmoothActivation, Terms

NODES = 4096  # of f' in each piece, for tangent points
STEPS = 2  # of the secant method: each makes the error a hundredth
REACH = 40.0  # how far the tables of the outer pieces go
ROOT_HALF = math.sqrt(0.5)
ROOT_TWO_PI = math.sqrt(2 * math.pi)
TANH_FACTOR, TANH_CUBE = 2 * math.sqrt(2 / math.pi), 2 * math.sqrt(2 / math.pi) * 0.044715


@dataclass(frozen=True, eq=False)
class _Inverse:
    """Tangent points of a piece by a table of f', and steps of the secant method within a cell."""

    activation: SmoothActivation
    points: Tensor
    slopes: Tensor

    @classmethod
    def of(cls, activation: SmoothActivation, start: float, end: float) -> _Inverse:
        points = torch.linspace(start, end, NODES, dtype=torch.float64)
        slopes = activation.formula(points, PLAIN).slope
        order = slopes.argsort(stable=True)
        return cls(activation, points[order], slopes[order])

    def __call__(self, slope: Tensor) -> Tensor:
        wanted = slope.double().contiguous().clamp(self.slopes[0], self.slopes[-1])
        after = torch.searchsorted(self.slopes, wanted).clamp(1, NODES - 1)
        (left, right), (low, high) = ((table[after - 1], table[after]) for table in (self.points, self.slopes))
        rate = (right - left) / torch.where(high > low, high - low, torch.inf)
        point = left + rate * (wanted - low)
        for _ in range(STEPS):
            point = point + rate * (wanted - self.activation.formula(point, PLAIN).slope)
        point = torch.where(point.isfinite(), point, left)
        return torch.clamp(point, torch.minimum(left, right), torch.maximum(left, right)).to(slope.dtype)


class _Gated(SmoothActivation):
    """Concave, convex, concave, and without parameters."""

    curvatures = (-1, 1, -1)
    rounding_scale = 0.0
    is_gate = True

    def tangent_point(self, slope: Tensor, piece: int) -> Tensor:
        return _inverses(type(self))[piece](slope)


@cache
def _inverses(kind: type[_Gated]) -> tuple[_Inverse, ...]:
    """The tables of every piece."""
    breakpoints = [float(cut.low) for cut in kind().breakpoints]
    with torch.inference_mode(False):
        return tuple(
            _Inverse.of(kind(), start, end)
            for start, end in zip([-REACH, *breakpoints], [*breakpoints, REACH], strict=True)
        )


@register
class Silu(_Gated):
    """`x / (1 + e^-x)`, coordinate by coordinate; also known as swish."""

    name = "silu"
    breakpoints = (EnclosedPoint.near(-2.3993572805154675), EnclosedPoint.near(2.3993572805154675))
    stationary_points = (EnclosedPoint.near(-1.2784645427610737),)
    lipschitz = 1.0998393201288671

    def apply(self, *inputs: Tensor) -> Tensor:
        return functional.silu(inputs[0])

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """f' = g + x g (1 - g), where g is the gate."""
        gate, rise = logistic(points, functions)
        change = points * rise
        return Terms(points * gate, gate + change, slope_size=gate + change.abs())


@register
class Gelu(_Gated):
    """`x (1 + erf(x / sqrt 2)) / 2`, coordinate by coordinate."""

    name = "gelu"
    breakpoints = (EnclosedPoint.near(-1.4142135623730951), EnclosedPoint.near(1.4142135623730951))
    stationary_points = (EnclosedPoint.near(-0.7517915246935645),)
    lipschitz = 1.128904145185155

    def apply(self, *inputs: Tensor) -> Tensor:
        return functional.gelu(inputs[0])

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """The gate is erfc(-x / sqrt 2) / 2, whose argument is off by 2 u: by 65 u in all, in the tail by (64 + 2 x^2)
        u of itself. f' = gate + x e^(-x^2 / 2) / sqrt(2 pi), where x^2 is rounded. Beyond 60 both are below 2^-1000."""
        near = points.clamp(-60, 60)
        argument, square = -near * ROOT_HALF, near * near
        gate = functions.erfc(argument) / 2
        change = near * (functions.exp(-square / 2) / ROOT_TWO_PI)
        size = torch.where(argument > TAIL, gate * (1 + square), 1)
        return Terms(points * gate, gate + change, points.abs() * size, size + change.abs() * (1 + square))


@register
class GeluTanh(_Gated):
    """`x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`, coordinate by coordinate."""

    name = "gelu tanh"
    breakpoints = (EnclosedPoint.near(-1.4185040087908283), EnclosedPoint.near(1.4185040087908283))
    stationary_points = (EnclosedPoint.near(-0.7524614220710163),)
    lipschitz = 1.128993068658772

    def apply(self, *inputs: Tensor) -> Tensor:
        return functional.gelu(inputs[0], approximate="tanh")

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """The gate is the sigmoid of y = x (a + b x^2), which is off by 8 u, so e^-|y| by (8 + 8 |y|) u; that counts
        where the gate is small. Beyond 30 the gate is 0 or 1 up to 2^-1000."""
        near = points.clamp(-30, 30)
        square = near * near
        argument = near * (TANH_FACTOR + TANH_CUBE * square)
        gate, rise = logistic(argument, functions)
        error_factor = 1 + argument.abs()
        change = near * rise * (TANH_FACTOR + 3 * TANH_CUBE * square)
        size = torch.where(points < 0, gate * error_factor, 2)
        return Terms(points * gate, gate + change, points.abs() * size, size + change.abs() * error_factor)


@register
class Mish(_Gated):
    """`x tanh(log(1 + e^x))`, coordinate by coordinate."""

    name = "mish"
    breakpoints = (EnclosedPoint.near(-2.256376396360793), EnclosedPoint.near(1.4905711794854284))
    stationary_points = (EnclosedPoint.near(-1.1924312145154952),)
    lipschitz = 1.0884981612517283

    def apply(self, *inputs: Tensor) -> Tensor:
        return functional.mish(inputs[0])

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """With w = e^x the gate is n / (n + 2), n = w (w + 2), and its derivative 4 w (1 + w) / (n + 2)^2; for x > 0
        both are divided through by powers of w. All terms are positive: the gate is off by 40 u, the other by 70 u."""
        small, negative = functions.exp(-points.abs()), points < 0
        square = small * small
        top = torch.where(negative, square + 2 * small, 1 + 2 * small)
        bottom = torch.where(negative, top + 2, top + 2 * square)
        gate = top / bottom
        change = points * (4 * torch.where(negative, small, square) * (1 + small) / (bottom * bottom))
        return Terms(points * gate, gate + change, slope_size=gate + change.abs())


@register
class HardSwish(SmoothActivation):
    """`x min(max(x + 3, 0), 6) / 6`, coordinate by coordinate: a parabola between two straight pieces."""

    name = "hard swish"
    curvatures = (1, 1, 1)
    overflow_factor = 8  # it is a sixth of a product of up to 6 |x|
    breakpoints = (EnclosedPoint(-3.0, -3.0), EnclosedPoint(3.0, 3.0))
    stationary_points = (EnclosedPoint(-1.5, -1.5),)
    smooth_breakpoints = False
    rounding_scale = 0.0
    is_gate = True
    lipschitz = 1.5

    def apply(self, *inputs: Tensor) -> Tensor:
        return functional.hardswish(inputs[0])

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """4 roundings."""
        gate = (points + 3).clamp(0, 6) / 6
        inner = (points > -3) & (points < 3)
        slope = torch.where(inner, (2 * points + 3) / 6, gate)
        return Terms(points * gate, slope, slope_size=torch.where(inner, (2 * points.abs() + 3) / 6, gate))

    def tangent_point(self, slope: Tensor, piece: int) -> Tensor:
        if piece == 1:
            return 3 * slope - 1.5
        return torch.where(slope < (0 if piece == 0 else 1), -torch.inf, torch.inf)
