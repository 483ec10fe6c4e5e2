"""Activations of one exponential: exp, softplus and ELU.

Errors of formulas are counted in units of u = 2^-53, as in `relucert.arithmetic.elementary`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from relucert.arithmetic.elementary import ElementaryFunctions
from relucert.errors import NetworkError
from relucert.network.curvature import EnclosedPoint
from relucert.network.registry import register
from relucert.network.smooth_activation import SmoothActivation, Terms


@register
class Exp(SmoothActivation):
    """`e^x`, coordinate by coordinate."""

    name = "exp"
    rounding_scale = 0.0

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].exp()

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        value = functions.exp(points)
        return Terms(value, value)

    def tangent_point(self, slope: Tensor, piece: int) -> Tensor:
        return slope.clamp(min=0).log()


@register
class Softplus(SmoothActivation):
    """`log(1 + e^x)`, coordinate by coordinate."""

    name = "softplus"
    rounding_scale = 1.0
    lipschitz = 1.0

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].clamp(min=0) + torch.log1p(torch.exp(-inputs[0].abs()))

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """max(x, 0) + log(1 + e) with e = e^-|x|, off by 8 u: both terms are positive. f' is the sigmoid."""
        fall = functions.exp(-points.abs())
        share = 1 / (1 + fall)
        return Terms(points.clamp(min=0) + functions.log1p(fall), torch.where(points < 0, fall * share, share))

    def tangent_point(self, slope: Tensor, piece: int) -> Tensor:
        return slope.clamp(0, 1).logit()


@register
class Elu(SmoothActivation):
    """`x` where it is positive, else `alpha (e^x - 1)`, coordinate by coordinate; alpha is positive."""

    name = "elu"
    alpha: float

    def __post_init__(self) -> None:
        if type(self.alpha) is not float or not 0 < self.alpha < math.inf:
            raise NetworkError(f"the alpha of an ELU is a positive number, not {self.alpha!r}")

    @property
    def curvatures(self) -> tuple[int, ...]:
        """Convex on either side of 0; f' jumps there from alpha to 1."""
        return (1,) if self.alpha == 1 else (1, 1)

    @property
    def breakpoints(self) -> tuple[EnclosedPoint, ...]:
        return () if self.alpha == 1 else (EnclosedPoint(0.0, 0.0),)

    def apply(self, *inputs: Tensor) -> Tensor:
        return functional.elu(inputs[0], self.alpha)

    def formula(self, points: Tensor, functions: ElementaryFunctions) -> Terms:
        """e^x - 1 is off by 12 u, e^x by 8 u, and a product adds one."""
        negative, left = points.clamp(max=0), points < 0
        value = torch.where(left, self.alpha * functions.expm1(negative), points)
        return Terms(value, torch.where(left, self.alpha * functions.exp(negative), 1))

    @property
    def rounding_scale(self) -> float:
        """alpha: some compute e^x, and then take 1 off."""
        return self.alpha

    def tangent_point(self, slope: Tensor, piece: int) -> Tensor:
        if piece == 1:
            return torch.where(slope < 1, 0, torch.inf)
        point = (slope / self.alpha).clamp(min=0).log()
        return torch.where((self.alpha == 1) & (slope >= 1), torch.inf, point)

    @property
    def lipschitz(self) -> float:
        return max(1.0, self.alpha)
