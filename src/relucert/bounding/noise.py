"""The rounding noise of a network's evaluation in floating point: of each affine operation, in any order of summation.

A computed value is the real value of the computed inputs plus noise of at most `gamma(n) (|W| |v| + |b|)`, with n
roundings and the unit of the network's inference, plus what underflow may add. Every bound here is about computed
values, so the noise widens pre-activations and is charged wherever a form leaves an operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.network import FlatAffine, Network


def rounds(network: Network, value: int) -> bool:
    """Whether computing this value, of an affine operation, may add noise."""
    return network.roundings[value] > 0


class InputSize(NamedTuple):
    """How large the inputs of balls that nothing cuts may be: `|points[which]| + radius`.

    Attributes:
        points: The absolute values of the centres, without repetition, (points, size).
        which: Which of them is each region's, (batch,); None: each its own.
        radius: (batch, 1).
    """

    points: Tensor
    which: Tensor | None
    radius: Tensor

    @classmethod
    def within(cls, region: Region, arithmetic: Arithmetic) -> InputSize | Tensor:
        """The size of a region's inputs; where the region is cut or scaled, for every coordinate: (batch, size)."""
        if region.box is None and region.scale is None:
            return cls(region.points.abs(), region.which, region.radius[:, None])
        return region.reference.abs().add_(region.spans(arithmetic).largest)

    def of_regions(self, by_point: Tensor) -> Tensor:
        return by_point if self.which is None else by_point[self.which]

    def through(self, affine: FlatAffine, addend: float) -> Tensor:
        """The sizes after the operation with absolute coefficients; inputs are larger by an addend: (batch, size)."""
        unit = affine.absolute(torch.ones_like(self.points[:1]))
        return self.of_regions(affine.absolute(self.points)) + (self.radius + addend) * unit

    @property
    def largest(self) -> Tensor:
        """(batch, 1)"""
        return self.of_regions(self.points.amax(1, keepdim=True)) + self.radius

    def everywhere(self) -> Tensor:
        """The size of every coordinate, (batch, size)."""
        return self.of_regions(self.points) + self.radius


def noise(network: Network, value: int, sizes: Sequence[Tensor | InputSize], arithmetic: Arithmetic) -> Tensor:
    """The noise of a value that `rounds`: (batch, size); infinite where an intermediate result might overflow.

    sizes: upper bounds of the absolute values of the operation's computed inputs, (batch, size) each, up to three
    roundings of their own.
    """
    affine, inference = FlatAffine.of(network, value), network.inference
    # An operand below the normal range may be flushed to zero: gamma times the addend is more than that loses.
    addend = inference.underflow / inference.unit
    if isinstance(sizes[0], InputSize) and len(sizes) == 1:
        total, largest = sizes[0].through(affine, addend), sizes[0].largest
    else:
        wide = [size.everywhere() if isinstance(size, InputSize) else size for size in sizes]
        total = affine.absolute(*(size + addend for size in wide))
        largest = torch.cat([size.amax(1, keepdim=True) for size in wide], 1).amax(1, keepdim=True)
    total = arithmetic.above(affine.plus_constant(total, 1.0), affine.operation.terms + 9)
    roundings = network.roundings[value]
    underflow = inference.underflow * (roundings + 4) * (4 + largest)
    lost = arithmetic.above(inference.gamma(roundings) * total + underflow, 9)
    fits = (2 * total <= inference.largest) & largest.isfinite()  # where weights are zero, nothing else tells
    return torch.where(fits, lost, torch.inf)
