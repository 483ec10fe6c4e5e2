"""The rectified linear unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relucert.network.activation import Activation
from relucert.network.registry import register

if TYPE_CHECKING:
    from relucert.arithmetic.rigor import Arithmetic


@register
class Relu(Activation):
    """`max(x, 0)`, coordinate by coordinate."""

    name = "relu"
    rectifier = True
    lipschitz = 1.0
    roundings = 0

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].clamp(min=0)

    def image(self, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
        return lower.clamp(min=0), upper.clamp(min=0)

    def least(self, slope: Tensor, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor | None:
        """0 for an unstable neuron with a slope in [0, 1], as for a stable one with its own slope."""
        stable = self.is_affine(lower, upper)
        if bool(torch.where(stable, slope == _own_slope(lower), (slope >= 0) & (slope <= 1)).all()):
            return None
        least = torch.minimum(_above_line(slope, lower), _above_line(slope, upper))
        return arithmetic.down(torch.where(stable, least, least.clamp(max=0)), 3)

    def largest(self, slope: Tensor, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor:
        """max(-s l, (1 - s) u) for an unstable neuron with a slope s in [0, 1]; 0 for a stable one with its own."""
        stable = self.is_affine(lower, upper)
        largest = torch.maximum(_above_line(slope, lower), _above_line(slope, upper))
        largest = torch.where(stable, largest, largest.clamp(min=0))
        return torch.where(stable & (slope == _own_slope(lower)), 0, arithmetic.up(largest, 3))

    def chord(self, lower: Tensor, upper: Tensor) -> Tensor:
        """u / (u - l) for an unstable neuron: the paper's equation 1."""
        stable = self.is_affine(lower, upper)
        width = torch.where(stable, 1, upper - lower)  # where a division by zero would spoil a gradient
        return torch.where(stable, _own_slope(lower), upper / width).clamp(0, 1)

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """The chord above an unstable neuron; below it z where u > -l, else 0: the smaller area."""
        chord = self.chord(lower, upper)
        adaptive = (upper > -lower).to(chord.dtype)
        return torch.where(self.is_affine(lower, upper), chord, adaptive), chord

    def derivatives(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        return _own_slope(lower), ((lower >= 0) | ~(upper <= 0)).to(upper.dtype)

    def derivative(self, points: Tensor) -> Tensor:
        return (points > 0).to(points.dtype)

    def is_affine(self, lower: Tensor, upper: Tensor) -> Tensor:
        return (lower >= 0) | (upper <= 0)


def _own_slope(lower: Tensor) -> Tensor:
    """The slope of a stable neuron: 1 where it is active, 0 where it is inactive."""
    return (lower >= 0).to(lower.dtype)


def _above_line(slope: Tensor, end: Tensor) -> Tensor:
    """`relu(z) - slope z` at one end of an interval."""
    return ((end > 0).to(slope.dtype) - slope) * end
