"""Two-sided bounds of neurons, and interval arithmetic between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.bounding.noise import noise, rounds
from relucert.network import Affine, Network
from relucert.region import Region
from relucert.rigor import Arithmetic


class Interval(NamedTuple):
    """Lower and upper bounds of the neurons of one value: (batch, size) each."""

    lower: Tensor
    upper: Tensor

    @property
    def active(self) -> Tensor:
        return self.lower >= 0

    @property
    def unstable(self) -> Tensor:
        """Whether a neuron's sign is not known; where bounds are no numbers it is not."""
        return ~(self.active | (self.upper <= 0))

    def meet(self, other: Interval) -> Interval:
        """What lies in both; a lower bound above its upper one: nothing."""
        return Interval(torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper))

    def replaced(self, neurons: Tensor, other: Interval) -> Interval:
        """With the bounds of some neurons, (count,), met with others, (batch, count) each, where they are unstable."""
        unstable = self.unstable[:, neurons]
        met = Interval(self.lower[:, neurons], self.upper[:, neurons]).meet(other)
        sides = zip(self, met, strict=True)
        return Interval(
            *(side.index_copy(1, neurons, torch.where(unstable, new, side[:, neurons])) for side, new in sides)
        )

    def select(self, chosen: Tensor | slice) -> Interval:
        """Those of some batch members."""
        return Interval(self.lower[chosen], self.upper[chosen])

    @classmethod
    def join(cls, parts: Sequence[Interval], dim: int) -> Interval:
        """Those of several parts along a dimension."""
        return cls(*(torch.cat(sides, dim) for sides in zip(*parts, strict=True)))

    def map(self, function: Callable[[Tensor], Tensor]) -> Interval:
        """The function of both sides."""
        return Interval(function(self.lower), function(self.upper))

    def cast(self, dtype: torch.dtype) -> Interval:
        return Interval(self.lower.to(dtype), self.upper.to(dtype))


Bounds = dict[int, Interval]
"""By value, the bounds of its neurons: those of pre-activations, and whatever else was asked for."""


def select(bounds: Bounds, chosen: Tensor | slice) -> Bounds:
    """The bounds of some batch members."""
    return {value: interval.select(chosen) for value, interval in bounds.items()}


def propagate(network: Network, region: Region, bounds: Bounds, value: int, arithmetic: Arithmetic) -> Interval:
    """Interval bounds of one value from the known bounds of the pre-activations nearest before it."""
    known: dict[int, tuple[Tensor, Tensor]] = {}  # middles and half-widths

    def visit(current: int) -> tuple[Tensor, Tensor]:
        if current not in known:
            known[current] = compute(current)
        return known[current]

    def compute(current: int) -> tuple[Tensor, Tensor]:
        if current == 0:
            return region.reference, region.spans(arithmetic).largest
        node = network.nodes[current - 1]
        if isinstance(node.operation, Affine):
            return _affine(network, current, [visit(source) for source in node.inputs], arithmetic)
        upper = bounds[node.inputs[0]].upper.clamp(min=0)
        lower = bounds[node.inputs[0]].lower.clamp(min=0)
        middle = lower + (upper - lower) / 2
        return middle, arithmetic.above(torch.maximum(upper - middle, middle - lower), 1)

    middle, half = visit(value)
    return Interval(arithmetic.floor(middle - half), arithmetic.ceil(middle + half))


def _affine(
    network: Network, value: int, operands: list[tuple[Tensor, Tensor]], arithmetic: Arithmetic
) -> tuple[Tensor, Tensor]:
    node = network.nodes[value - 1]
    operation = node.operation
    assert isinstance(operation, Affine)
    shapes = [network.shapes[source] for source in node.inputs]
    middles, halves = (
        [side.unflatten(-1, shape) for side, shape in zip(sides, shapes, strict=True)]
        for sides in zip(*operands, strict=True)
    )
    middle = operation.apply(*middles).flatten(1)
    half = operation.absolute.linear(*halves).flatten(1)
    if rounds(network, value):
        half = half + noise(network, value, [one.abs() + other for one, other in operands], arithmetic)
    if not arithmetic.rigorous:
        return middle, half
    gamma = arithmetic.gamma(operation.terms + 2)
    rounding = operation.magnitude(*(gamma * (one.abs() + other) for one, other in zip(middles, halves, strict=True)))
    total = half + rounding.flatten(1)
    if operation.constant is not None:
        total = total + gamma * operation.constant.abs().expand(operation.shape(*shapes)).flatten()
    total = arithmetic.above(total, 2 * operation.terms + 12)
    return middle, torch.where(middle.isfinite(), total, torch.inf)
