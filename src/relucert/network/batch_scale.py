"""The scale of a batch normalisation, whose mean and variance are fixed."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from relucert.arithmetic.forms import Shape
from relucert.errors import NetworkError
from relucert.network.inference import Inference
from relucert.network.operation import differentiable
from relucert.network.registry import register
from relucert.network.scale import FOLDED_ROUNDINGS, Scale, Scaling

SMALLEST = torch.finfo(torch.float64).smallest_normal


@register
class BatchScale(Scaling):
    """`x * gain / sqrt(variance + epsilon)`, with the true square root: `terms` counts its rounding, too."""

    name = "batch scale"
    gain: Tensor
    variance: Tensor
    epsilon: float
    divide = False
    terms = 5  # a sum, a square root, a quotient and a product
    roundings = FOLDED_ROUNDINGS + 5

    def shape(self, *inputs: Shape) -> Shape:
        if not self.epsilon >= 0 or not bool((self.variance.double() + self.epsilon > 0).all()):
            raise NetworkError("batch scale: a variance plus epsilon is not positive")
        for factor in (self.gain, self.variance):
            Scale(factor, divide=False).shape(*inputs)
        factors = self.cast(torch.float64).factor.abs()  # whose rounding is relative only in the normal range
        if not bool((((factors >= SMALLEST) & factors.isfinite()) | (self.gain == 0)).all()):
            raise NetworkError("batch scale: a gain over the root of its variance is too small or too large")
        return inputs[0]

    @cached_property
    @differentiable
    def absolute(self) -> BatchScale:
        return replace(self, gain=self.gain.abs())  # a variance may be negative, down to epsilon

    def can_be_evaluated(self, inference: Inference) -> bool:
        if inference.rounds and bool((self.variance < 0).any()):  # roundings are no share of its sum with epsilon
            return False
        spread = self.variance.double() + self.epsilon
        factors = self.cast(torch.float64).factor
        in_range = all(inference.divides_by(divisors) for divisors in (spread, spread.sqrt(), factors[factors != 0]))
        return in_range and super().can_be_evaluated(inference)

    @cached_property
    @differentiable
    def factor(self) -> Tensor:  # type: ignore[override]
        return self.gain / (self.variance + self.epsilon).sqrt()
