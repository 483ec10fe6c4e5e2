"""Two-sided bounds of neurons, and interval arithmetic between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from typing_extensions import assert_never

from relucert.arithmetic.deviation import Deviation
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS, Arithmetic
from relucert.bounding.noise import noise, rounds
from relucert.common.deadline import check_time
from relucert.network import INPUT, Activation, Affine, FlatAffine, Network

if TYPE_CHECKING:
    from relucert.bounding.reference import ReducedPath


class Interval(NamedTuple):
    """Lower and upper bounds of the neurons of one value: (batch, size) each."""

    lower: Tensor
    upper: Tensor

    @classmethod
    def around(cls, centre: Tensor, deviation: Deviation, arithmetic: Arithmetic) -> Interval:
        """What lies within a deviation from a centre; anything where the centre overflowed, which says nothing."""
        if arithmetic.rigorous:
            deviation = deviation.map(lambda moved: torch.where(centre.isfinite(), moved, torch.inf))
        return cls(arithmetic.floor(centre - deviation.below), arithmetic.ceil(centre + deviation.above))

    @property
    def active(self) -> Tensor:
        return self.lower >= 0

    @property
    def unstable(self) -> Tensor:
        """Whether a neuron is unstable, its sign being unknown; it is where bounds are no numbers."""
        return ~(self.active | (self.upper <= 0))

    @property
    def largest(self) -> Tensor:
        """The largest absolute value."""
        return torch.maximum(self.lower.abs(), self.upper.abs())

    @property
    def middle(self) -> Tensor:
        return self.lower + (self.upper - self.lower) / 2

    @property
    def half_width(self) -> Tensor:
        """How far the ends are from the middle as computed, at least."""
        middle = self.middle
        return RIGOROUS.ceil(torch.maximum(self.upper - middle, middle - self.lower))

    def meet(self, other: Interval, where: Tensor | None = None) -> Interval:
        """The intersection of two intervals, of all neurons or of some, (batch, size); it is empty where a lower bound
        is above its upper bound. A bound that is NaN says nothing, so the other one holds."""
        met = Interval(torch.fmax(self.lower, other.lower), torch.fmin(self.upper, other.upper))
        if where is None:
            return met
        return Interval(*(torch.where(where, new, bound) for bound, new in zip(self, met, strict=True)))

    def replaced(self, neurons: Tensor, other: Interval) -> Interval:
        """The bounds, with others of some neurons, (count,): (batch, count) each."""
        return Interval(*(bound.index_copy(1, neurons, new) for bound, new in zip(self, other, strict=True)))

    def select(self, members: Tensor | slice) -> Interval:
        """The bounds of some batch members."""
        return self.map(lambda bound: bound[members])

    def pick(self, neurons: Tensor) -> Interval:
        """The bounds of some neurons, (count,)."""
        return self.map(lambda bound: bound[:, neurons])

    @classmethod
    def join(cls, intervals: Sequence[Interval], dim: int) -> Interval:
        """Concatenates intervals along a dimension."""
        return cls(*(torch.cat(bounds, dim) for bounds in zip(*intervals, strict=True)))

    def map(self, function: Callable[[Tensor], Tensor]) -> Interval:
        """A function of the lower and of the upper bounds."""
        return Interval(function(self.lower), function(self.upper))

    def cast(self, dtype: torch.dtype) -> Interval:
        return self.map(lambda bound: bound.to(dtype))


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


def select(bounds: Bounds, members: Tensor | slice) -> Bounds:
    """The bounds of some batch members, (count,), which know which are tight as before."""
    fewer = {value: interval.select(members) for value, interval in bounds.items()}
    if not isinstance(bounds, TracedBounds):
        return fewer
    return TracedBounds(fewer, {value: tight[members] for value, tight in bounds.tight.items()})


def meet(first: Bounds, second: Bounds) -> Bounds:
    """The intersection of two bounds of the same, and what only one of them has."""
    both = {value: interval.meet(second[value]) for value, interval in first.items() if value in second}
    return {**first, **second, **both}


def copied(bounds: Bounds) -> Bounds:
    """The bounds in tensors of their own: those of PyTorch's inference mode can't be part of a gradient."""
    return {value: interval.map(Tensor.clone) for value, interval in bounds.items()}


def activation_bounds(network: Network, bounds: Bounds, value: int, arithmetic: Arithmetic) -> Interval:
    """The image of an activation, which computes a value, over the bounds of its pre-activation."""
    return Interval(*network.activations[value].image(*bounds[network.source(value)], arithmetic))


def size_within(network: Network, bounds: Bounds, value: int, arithmetic: Arithmetic) -> Tensor | None:
    """How large a value may be in absolute value, (batch, size), where bounds tell it."""
    if value in bounds:
        lower, upper = bounds[value]
    elif value in network.activations and network.source(value) in bounds:
        lower, upper = activation_bounds(network, bounds, value, arithmetic)
    else:
        return None
    return torch.maximum(upper, -lower)


class Centred(NamedTuple):
    """Intervals by their centres and radii, (batch, size) each: what an affine operation maps in two products."""

    centre: Tensor
    radius: Tensor

    @classmethod
    def of(cls, interval: Interval, arithmetic: Arithmetic) -> Centred:
        """The intervals, none narrower."""
        centre = interval.middle
        return cls(centre, arithmetic.above(torch.maximum(interval.upper - centre, centre - interval.lower), 1))

    @classmethod
    def of_input(cls, region: Region, arithmetic: Arithmetic) -> Centred:
        return cls(region.reference, region.spans(arithmetic).largest)

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
    ends = ends or Bounds()
    values = {current: Centred.of(interval, arithmetic) for current, interval in ends.items()}
    for current in sorted(network.ancestors((value,), {*network.activations, *ends}) - set(ends)):
        if current == INPUT:
            values[current] = Centred.of_input(region, arithmetic)
        elif isinstance(operation := network.node(current).operation, Affine):
            operands = [values[source] for source in network.node(current).inputs]
            values[current] = affine_image(network, current, operands, arithmetic)
        elif isinstance(operation, Activation):
            values[current] = Centred.activated(operation, bounds[network.source(current)], arithmetic)
        else:
            assert_never(operation)
    return values[value].interval(arithmetic)


def image(network: Network, value: int, operands: Sequence[Centred], arithmetic: Arithmetic) -> Centred:
    """The value of an operation, from intervals of its operands."""
    operation = network.node(value).operation
    if isinstance(operation, Affine):
        return affine_image(network, value, operands, arithmetic)
    if isinstance(operation, Activation):
        return Centred.activated(operation, operands[0].interval(arithmetic), arithmetic)
    assert_never(operation)


def affine_image(network: Network, value: int, operands: Sequence[Centred], arithmetic: Arithmetic) -> Centred:
    """The value of an affine operation, from intervals of its operands: `W m + b`, and `|W| r` to either side.

    The centre rounds by at most gamma (|W| |m| + |b|); that much, but for |b|, goes through the second product as part
    of the radii.
    """
    check_time()
    affine, terms = FlatAffine.of(network, value), network.affine(value).terms
    gamma = arithmetic.gamma(terms + 2)

    def widened(operand: Centred) -> Tensor:
        return operand.radius + gamma * operand.centre.abs() if arithmetic.rigorous else operand.radius

    centre = affine.apply(*(operand.centre for operand in operands))
    radius = affine.absolute(*map(widened, operands))
    if rounds(network, value):
        sizes = [operand.centre.abs() + operand.radius for operand in operands]
        radius = radius + noise(network, value, sizes, arithmetic)
    if not arithmetic.rigorous:
        return Centred(centre, radius)
    radius = arithmetic.above(affine.plus_constant(radius, gamma), terms + 9)
    return Centred(centre, torch.where(centre.isfinite(), radius, torch.inf))
