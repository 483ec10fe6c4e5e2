"""Two-sided bounds of neurons, and interval arithmetic between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from typing_extensions import assert_never

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.noise import noise, rounds
from relucert.common.deadline import check_time
from relucert.network import INPUT, Activation, Affine, Network, Shape

if TYPE_CHECKING:
    from relucert.bounding.reduced_path import ReducedPath


class Interval(NamedTuple):
    """Lower and upper bounds of the neurons of one value: (batch, size) each."""

    lower: Tensor
    upper: Tensor

    @property
    def active(self) -> Tensor:
        return self.lower >= 0

    @property
    def unstable(self) -> Tensor:
        """Whether a neuron is unstable, its sign being unknown; it is where bounds are no numbers."""
        return ~(self.active | (self.upper <= 0))

    def meet(self, other: Interval) -> Interval:
        """The intersection of two intervals; it is empty where a lower bound is above its upper bound."""
        return Interval(torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper))

    def replaced(self, neurons: Tensor, other: Interval, unstable: Tensor) -> Interval:
        """The bounds, with those of some unstable neurons intersected with others.

        Args:
            neurons: (count,).
            other: Bounds of these neurons, (batch, count) each.
            unstable: The neurons whose bounds may change, (batch, size).
        """
        unstable = unstable[:, neurons]
        met = Interval(self.lower[:, neurons], self.upper[:, neurons]).meet(other)
        pairs = zip(self, met, strict=True)
        return Interval(
            *(bound.index_copy(1, neurons, torch.where(unstable, new, bound[:, neurons])) for bound, new in pairs)
        )

    def select(self, members: Tensor | slice) -> Interval:
        """The bounds of some batch members."""
        return Interval(self.lower[members], self.upper[members])

    @classmethod
    def join(cls, intervals: Sequence[Interval], dim: int) -> Interval:
        """Concatenates intervals along a dimension."""
        return cls(*(torch.cat(bounds, dim) for bounds in zip(*intervals, strict=True)))

    def map(self, function: Callable[[Tensor], Tensor]) -> Interval:
        """A function of the lower and of the upper bounds."""
        return Interval(function(self.lower), function(self.upper))

    def cast(self, dtype: torch.dtype) -> Interval:
        return Interval(self.lower.to(dtype), self.upper.to(dtype))


Bounds = dict[int, Interval]
"""By value, the bounds of its neurons: those of pre-activations, and whatever else was asked for."""


class TracedBounds(Bounds):
    """Bounds that know which of them are tight.

    Attributes:
        tight: By value, which lower and which upper bounds are as tight as the method gives them, (batch, 2, size);
            where bounds only tell a sign they are not. All are tight of values that are missing.
        reduced: The network and reference path that they were computed on, where margins may go on from there.
    """

    def __init__(self, bounds: Bounds, tight: dict[int, Tensor], reduced: ReducedPath | None = None) -> None:
        super().__init__(bounds)
        self.tight, self.reduced = tight, reduced


def select_traced(bounds: Bounds, members: Tensor) -> Bounds:
    """The bounds of some batch members, (count,), which know which are tight as before."""
    fewer = select(bounds, members)
    if not isinstance(bounds, TracedBounds):
        return fewer
    return TracedBounds(fewer, {value: tight[members] for value, tight in bounds.tight.items()})


def select(bounds: Bounds, members: Tensor | slice) -> Bounds:
    """The bounds of some batch members, (count,)."""
    return {value: interval.select(members) for value, interval in bounds.items()}


def copied(bounds: Bounds) -> Bounds:
    """The bounds in tensors of their own: those of PyTorch's inference mode can't be part of a gradient."""
    return {value: Interval(*(bound.clone() for bound in interval)) for value, interval in bounds.items()}


class Centred(NamedTuple):
    """Intervals by their centres and radii, (batch, size) each: what an affine operation maps in two products."""

    centre: Tensor
    radius: Tensor

    @classmethod
    def of(cls, interval: Interval, arithmetic: Arithmetic) -> Centred:
        """The intervals, none narrower."""
        lower, upper = interval
        centre = lower + (upper - lower) / 2
        return cls(centre, arithmetic.above(torch.maximum(upper - centre, centre - lower), 1))

    @classmethod
    def activated(cls, activation: Activation, interval: Interval, arithmetic: Arithmetic) -> Centred:
        """The image of these bounds under an activation."""
        return cls.of(Interval(*activation.image(*interval, arithmetic)), arithmetic)

    def interval(self, arithmetic: Arithmetic) -> Interval:
        return Interval(arithmetic.floor(self.centre - self.radius), arithmetic.ceil(self.centre + self.radius))


def propagate(
    network: Network, region: Region, bounds: Bounds, value: int, arithmetic: Arithmetic, *, ends: Bounds | None = None
) -> Interval:
    """Interval bounds of one value from the known bounds of the pre-activations nearest before it.

    ends: known bounds of other values, which are not computed from what is before these.
    """
    computed: dict[int, Centred] = {}

    def visit(current: int) -> Centred:
        if current not in computed:
            computed[current] = compute(current)
        return computed[current]

    def compute(current: int) -> Centred:
        if ends and current in ends:
            return Centred.of(ends[current], arithmetic)
        if current == INPUT:
            return Centred(region.reference, region.spans(arithmetic).largest)
        node = network.node(current)
        if isinstance(node.operation, Affine):
            return affine_image(network, current, [visit(source) for source in node.inputs], arithmetic)
        if isinstance(node.operation, Activation):
            return Centred.activated(node.operation, bounds[node.inputs[0]], arithmetic)
        assert_never(node.operation)

    return visit(value).interval(arithmetic)


def affine_image(network: Network, value: int, operands: Sequence[Centred], arithmetic: Arithmetic) -> Centred:
    """The value of an affine operation, from intervals of its operands: `W m + b`, and `|W| r` to either side.

    The centre rounds by at most gamma (|W| |m| + |b|); that much, but for |b|, goes through the second product as part
    of the radii.
    """
    node, operation = network.node(value), network.affine(value)
    check_time()
    shapes = [network.shapes[source] for source in node.inputs]
    gamma = arithmetic.gamma(operation.terms + 2)

    def widened(operand: Centred) -> Tensor:
        return operand.radius + gamma * operand.centre.abs() if arithmetic.rigorous else operand.radius

    centre = operation.apply(*_shaped([operand.centre for operand in operands], shapes)).flatten(1)
    radius = operation.absolute.linear(*_shaped(map(widened, operands), shapes)).flatten(1)
    if rounds(network, value):
        radius = radius + noise(
            network, value, [operand.centre.abs() + operand.radius for operand in operands], arithmetic
        )
    if not arithmetic.rigorous:
        return Centred(centre, radius)
    if operation.constant is not None:
        radius = radius + gamma * operation.constant.abs().expand(operation.shape(*shapes)).flatten()
    radius = arithmetic.above(radius, operation.terms + 9)
    return Centred(centre, torch.where(centre.isfinite(), radius, torch.inf))


def _shaped(flat: Iterable[Tensor], shapes: Sequence[Shape]) -> list[Tensor]:
    return [numbers.unflatten(-1, shape) for numbers, shape in zip(flat, shapes, strict=True)]
