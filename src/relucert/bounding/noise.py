"""The rounding noise of a network's evaluation in floating point: of each affine operation, in any order of summation.

A computed value is the real value of the computed inputs plus noise of at most `gamma(n) (|W| |v| + |b|)`, with n
roundings and the unit of the network's inference, plus what underflow may add. Every bound here is about computed
values, so the noise widens pre-activations and is charged wherever a form leaves an operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.network import Affine, Network, Shape

if TYPE_CHECKING:
    from relucert.bounding.interval import Bounds


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

    def through(self, operation: Affine, shape: Shape, addend: float) -> Tensor:
        """The sizes after the operation with absolute coefficients; inputs are larger by an addend: (batch, size)."""
        unit = operation.absolute.linear(self.points.new_ones(1, *shape)).flatten(1)
        at_points = operation.absolute.linear(self.points.unflatten(-1, shape)).flatten(1)
        return self.of_regions(at_points) + (self.radius + addend) * unit

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
    node, inference = network.node(value), network.inference
    operation = node.operation
    assert isinstance(operation, Affine)
    shapes = [network.shapes[source] for source in node.inputs]
    # An operand below the normal range may be flushed to zero: gamma times the addend is more than that loses.
    addend = inference.underflow / inference.unit
    if isinstance(sizes[0], InputSize) and len(sizes) == 1:
        total, largest = sizes[0].through(operation, shapes[0], addend), sizes[0].largest
    else:
        wide = [size.everywhere() if isinstance(size, InputSize) else size for size in sizes]
        operands = [(size + addend).unflatten(-1, shape) for size, shape in zip(wide, shapes, strict=True)]
        total = operation.absolute.linear(*operands).flatten(1)
        largest = torch.cat([size.amax(1, keepdim=True) for size in wide], 1).amax(1, keepdim=True)
    if operation.constant is not None:
        total = total + operation.constant.abs().expand(network.shapes[value]).flatten()
    total = arithmetic.above(total, operation.terms + 9)
    roundings = network.roundings[value]
    underflow = inference.underflow * (roundings + 4) * (4 + largest)
    lost = arithmetic.above(inference.gamma(roundings) * total + underflow, 9)
    return torch.where(2 * total <= inference.largest, lost, torch.inf)


def size_within(network: Network, bounds: Bounds, value: int, arithmetic: Arithmetic) -> Tensor | None:
    """How large a value may be in absolute value, (batch, size), where bounds tell it."""
    if value in bounds:
        lower, upper = bounds[value]
        return torch.maximum(upper, -lower)
    if value not in network.activations or (source := network.source(value)) not in bounds:
        return None
    lower, upper = network.activations[value].image(*bounds[source], arithmetic)
    return torch.maximum(upper, -lower)
