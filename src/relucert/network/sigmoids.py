"""S-shaped activations, convex below zero and concave above: sigmoid, tanh, the error function and softsign.

Errors of formulas are counted in units of u = 2^-53, as in `relucert.arithmetic.elementary`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from relucert.arithmetic.elementary import ROOT_PI, ElementaryFunctions, logistic
from relucert.network.curvature import EnclosedPoint
from relucert.network.registry import register
from relucert.network.smooth_activation import SmoothActivation, Terms


class _Sigmoidal(SmoothActivation):
    """One inflection point, at 0, where f' is largest; f' is even."""

    curvatures = (1, -1)
    breakpoints = (EnclosedPoint(0.0, 0.0),)
    rounding_scale = 1.0

    def tangent_point(self, slope: Tensor, piece: int) -> Tensor:
        distance = self.distance(slope)
        return -distance if piece == 0 else distance

    def distance(self, slope: Tensor) -> Tensor:
        """How far from 0 f' is about the slope."""
        raise NotImplementedError


@register
class Sigmoid(_Sigmoidal):
    """`1 / (1 + e^-x)`, coordinate by coordinate."""

    name = "sigmoid"
    lipschitz = 0.25

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].sigmoid()

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        return Terms(*logistic(points, functions))

    def distance(self, slope: Tensor) -> Tensor:
        root = (1 - 4 * slope.clamp(0, 0.25)).sqrt()
        return torch.log1p(root) - torch.log1p(-root)


@register
class Tanh(_Sigmoidal):
    """`tanh x`, coordinate by coordinate."""

    name = "tanh"
    lipschitz = 1.0

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].tanh()

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """f is off by 32 u of itself, and f' = 1 - f^2 by 66 u of 1."""
        value = functions.tanh(points)
        return Terms(value, 1 - value * value, slope_size=torch.ones_like(value))

    def distance(self, slope: Tensor) -> Tensor:
        return (1 - slope.clamp(0, 1)).sqrt().atanh()


@register
class Erf(_Sigmoidal):
    """The error function, coordinate by coordinate."""

    name = "erf"
    lipschitz = math.nextafter(2 / ROOT_PI, 2)

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].erf()

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """f' = 2 e^(-x^2) / sqrt(pi): x^2 is rounded, which costs x^2 u; beyond 30 it is below 2^-1000."""
        near = points.clamp(-30, 30)
        square = near * near
        slope = functions.exp(-square) * (2 / ROOT_PI)
        return Terms(functions.erf(points), slope, slope_size=slope * (1 + square))

    def distance(self, slope: Tensor) -> Tensor:
        return (-(slope * (ROOT_PI / 2)).clamp(0, 1).log()).sqrt()


@register
class Softsign(_Sigmoidal):
    """`x / (1 + |x|)`, coordinate by coordinate."""

    name = "softsign"
    lipschitz = 1.0

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0] / (1 + inputs[0].abs())

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """The value, rounded twice, and its derivative, rounded four times."""
        share = 1 / (1 + points.abs())
        return Terms(points * share, share * share)

    def distance(self, slope: Tensor) -> Tensor:
        return slope.clamp(0, 1).rsqrt() - 1
