"""Smooth activations as they are evaluated in floating point: f plus an error of a few units in the last place.

What a library's function returns is not specified. The assumption about it, which is part of the claim: whatever
computes an activation, in one function or in the steps of the formula that it is read from, errs by at most
`ACTIVATION_ULPS` units in the last place of `|f|` or of the activation's scale, whichever is larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import Self

from relucert.network.activation import Activation
from relucert.network.inference import Inference
from relucert.network.smooth_activation import SmoothActivation

if TYPE_CHECKING:
    from relucert.arithmetic.rigor import Arithmetic

ACTIVATION_ULPS = 4


@dataclass(frozen=True, eq=False)
class RoundedActivation(Activation):
    """An activation evaluated in a precision: all bounds are of what is computed of a computed pre-activation.

    Its name and what is stored of it are those of the activation itself.
    """

    exact: SmoothActivation
    inference: Inference

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.exact.name

    def tensors(self) -> dict[str, Tensor]:
        return self.exact.tensors()

    def settings(self) -> dict[str, Any]:
        return self.exact.settings()

    def cast(self, dtype: torch.dtype) -> Self:
        return self

    def apply(self, *inputs: Tensor) -> Tensor:
        return self.exact.apply(*inputs)

    def noise(self, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor:
        """How far what is computed may be from f; infinite where it may overflow, or nothing is assumed."""
        low, high = self.exact.image(lower, upper, arithmetic)
        size = torch.maximum(high, -low).clamp(min=self.exact.rounding_scale)
        if self.exact.is_gate:
            size = torch.maximum(size, torch.maximum(lower.abs(), upper.abs()))
        lost = 2 * ACTIVATION_ULPS * self.inference.unit * size + 4 * self.inference.underflow
        least, largest = self.exact.accurate_range(self.inference)
        usable = (self.exact.overflow_factor * size <= self.inference.largest) & (lower >= least) & (upper <= largest)
        return torch.where(usable, arithmetic.above(lost, 4), torch.inf)

    def image(self, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
        (low, high), noise = self.exact.image(lower, upper, arithmetic), self.noise(lower, upper, arithmetic)
        return arithmetic.floor(low - noise), arithmetic.ceil(high + noise)

    def least(self, slope: Tensor, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor:
        least = self.exact.least(slope, lower, upper, arithmetic)
        return arithmetic.floor(least - self.noise(lower, upper, arithmetic))

    def largest(self, slope: Tensor, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor:
        largest = self.exact.largest(slope, lower, upper, arithmetic)
        return arithmetic.ceil(largest + self.noise(lower, upper, arithmetic))

    def chord(self, lower: Tensor, upper: Tensor) -> Tensor:
        return self.exact.chord(lower, upper)

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        return self.exact.slopes(lower, upper)

    def derivatives(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        return self.exact.derivatives(lower, upper)

    def derivative(self, points: Tensor) -> Tensor:
        return self.exact.derivative(points)

    def is_affine(self, lower: Tensor, upper: Tensor) -> Tensor:
        return self.exact.is_affine(lower, upper)

    @property
    def lipschitz(self) -> float:
        return self.exact.lipschitz

    @property
    def roundings(self) -> int:
        return self.exact.roundings


def evaluated(activation: Activation, inference: Inference) -> Activation | None:
    """An activation as it is evaluated in a precision, or in real arithmetic; None where nothing is known about it."""
    exact = activation.exact if isinstance(activation, RoundedActivation) else activation
    if not inference.rounds or not exact.roundings:
        return exact
    if not isinstance(exact, SmoothActivation) or exact.rounding_scale is None:
        return None
    return RoundedActivation(exact, inference)
