"""Fast-Lin's bounds in nested regions, of one centre and several radii, at little more than the price of the largest.

A neuron that is stable in the largest region is stable in all of them: an active one is the linear map that it is, an
inactive one is 0. So the forward driver carries every value as an affine function of the input and of the outputs of
the unstable neurons before it, once for all regions. In each region these outputs are then replaced by their relaxation
there, from the last layer to the first: products whose sides are numbers of unstable neurons, not of neurons. And of
a layer only those neurons are looked at in a smaller region that are unstable in the larger ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from relucert.arithmetic.deviation import Deviation
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import TINY, Arithmetic
from relucert.bounding.forward import forward, propagate_zonotope
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.layerwise import backward
from relucert.bounding.relaxers import FAST_LIN, Relaxation
from relucert.bounding.zonotope import Zonotope
from relucert.network import INPUT, Network, Relu, Rows
from relucert.network.batching import EFFICIENT_BYTES, coefficient_bytes

CHUNK_BYTES = 2**22  # of coefficients on the input, for the regions that are looked at together
LEAST_UNIT = 2.0**-20  # the least power of two that symbols are counted in
SPARSE = 8  # of so many regions all unstable neurons are looked at in one, where no other neuron depends on them


def nested_bounds(network: Network, region: Region, radii: Tensor, arithmetic: Arithmetic) -> Bounds:
    """Bounds of every pre-activation in regions of several radii, side by side: (batch, regions * size).

    radii: (batch, regions) in ascending order; the last are the radii of `region`. Small networks are bounded in all
    regions at once. Networks for which the forward driver is not made, as large convolutions, are bounded in one region
    after the other, from the largest on: only neurons that are unstable in one are looked at in the next.
    """
    count, regions = radii.shape
    if regions == 1:
        return hidden_bounds(network, region, FAST_LIN, arithmetic)
    if count * regions * coefficient_bytes(network) <= EFFICIENT_BYTES:
        return _at_once(network, region, radii, arithmetic)
    if not network.suits_forward or not network.rectifiers_only:
        return _one_by_one(network, region, radii, arithmetic)
    nest = _Nest(network, region, radii, arithmetic)
    propagate_zonotope(network, region, arithmetic, network.preactivations, nest, whole=True)
    return {value: interval.map(lambda ends: ends.flatten(1)) for value, interval in nest.bounds.items()}


def _at_once(network: Network, region: Region, radii: Tensor, arithmetic: Arithmetic) -> Bounds:
    bounds = forward(network, _resized(region, radii), FAST_LIN, arithmetic, network.preactivations)
    return {value: interval.map(lambda ends: ends.reshape(len(radii), -1)) for value, interval in bounds.items()}


def _one_by_one(network: Network, region: Region, radii: Tensor, arithmetic: Arithmetic) -> Bounds:
    by_region = [hidden_bounds(network, region, FAST_LIN, arithmetic)]
    for column in reversed(radii.unbind(1)[:-1]):
        inside = region.resized(column)
        by_region.append(
            backward(network, inside, FAST_LIN, arithmetic, network.preactivations[-1:], prior=by_region[-1])
        )
    return {value: Interval.join([bounds[value] for bounds in reversed(by_region)], 1) for value in by_region[0]}


@dataclass(frozen=True, eq=False)
class _Neurons:
    """Neurons before their ReLU, as affine functions of the input and of symbols.

    Attributes:
        centre: (batch, neurons).
        doubt: What rounding may have moved each, and may move of what is made of it: (batch, neurons).
        blocks: For the input and every ReLU before, the coefficients (batch or 1, neurons, symbols).
    """

    centre: Tensor
    doubt: Tensor
    blocks: dict[int, Tensor]

    def select(self, neurons: Tensor) -> _Neurons:
        blocks = {source: block[:, neurons] for source, block in self.blocks.items()}
        return _Neurons(self.centre[:, neurons], self.doubt[:, neurons], blocks)


@dataclass(frozen=True, eq=False)
class _Symbols:
    """The outputs of unstable neurons, in units of powers of two, so that they lie in [0, 1].

    In each region they lie between `slope * pre-activation` and that plus `2 * half`: (batch, regions, symbols) each.
    """

    neurons: _Neurons
    slope: Tensor
    half: Tensor

    def within(self, some: slice) -> Iterator[tuple[Tensor, _Symbols]]:
        """Which of them matter in some of the regions, and what they are there: as one region for all, those of neurons
        that are active in the largest, and those of unstable ones."""
        largest = slice(some.stop - 1, some.stop)
        unstable = (self.half[:, some.stop - 1] != 0).any(0)
        active = ~unstable & (self.slope[:, some.stop - 1] != 0).any(0)
        for mask, regions in ((active, largest), (unstable, some)):
            if len(neurons := mask.nonzero().squeeze(1)):
                slope, half = self.slope[:, regions, neurons], self.half[:, regions, neurons]
                yield neurons, _Symbols(self.neurons.select(neurons), slope, half)


@dataclass(eq=False)
class _Nest:
    """The driver of the walk through the network; what it learns of pre-activations is kept by their value."""

    network: Network
    region: Region
    radii: Tensor
    arithmetic: Arithmetic
    bounds: Bounds = field(default_factory=dict)  # (batch, regions, size)
    neurons: dict[int, _Neurons] = field(default_factory=dict)
    symbols: dict[int, _Symbols] = field(default_factory=dict)

    def measure(self, value: int, zonotope: Zonotope) -> Interval:
        """Bounds in the largest region; those in the others are kept."""
        neurons, end = self._neurons(zonotope), self.radii.shape[1] - 1
        intervals = [self._substitute(neurons, slice(end, end + 1))]
        self.neurons[value] = neurons
        indices = torch.arange(neurons.centre.shape[1])  # of those neurons that are unstable in all regions so far
        while end:
            widest = intervals[-1].map(lambda ends: ends[:, :1])  # of the smallest region so far, which hold within it
            unstable = widest.unstable[:, 0, indices].any(0).nonzero().squeeze(1)
            indices, neurons = indices[unstable], neurons.select(unstable)
            start = max(0, end - (SPARSE if value in self.final else self._regions_at_once(len(indices))))
            intervals += self._inside(value, neurons, indices, widest, slice(start, end))
            end = start
        self.bounds[value] = Interval.join(intervals[::-1], 1)
        return intervals[0].map(lambda ends: ends[:, 0])

    def _inside(
        self, value: int, neurons: _Neurons, indices: Tensor, widest: Interval, some: slice
    ) -> Iterator[Interval]:
        """Bounds in some regions, the largest first; those of neurons with other indices are the widest.

        Where nothing is made of bounds but whether neurons are stable, only those neurons are looked at in all of the
        regions that are stable in the smallest.
        """
        if value not in self.final:
            yield self._met(neurons, indices, widest, some)
            return
        smallest = self._met(neurons, indices, widest, slice(some.start, some.start + 1))
        stable = (~smallest.unstable[:, 0, indices]).any(0).nonzero().squeeze(1)
        neurons, indices, end = neurons.select(stable), indices[stable], some.stop
        while end > some.start + 1:
            start = max(some.start + 1, end - self._regions_at_once(len(indices)))
            yield self._met(neurons, indices, widest, slice(start, end))
            end = start
        yield smallest

    def _met(self, neurons: _Neurons, indices: Tensor, widest: Interval, some: slice) -> Interval:
        """The widest bounds, (batch, 1, size), in smaller regions, with closer ones of neurons with these indices."""
        count = some.stop - some.start
        bounds = widest.map(lambda ends: ends.expand(-1, count, -1).flatten(0, 1))
        if len(indices):
            closer = self._substitute(neurons, some).map(lambda ends: ends.flatten(0, 1))
            wider = bounds.pick(indices)
            bounds = bounds.replaced(indices, wider.meet(closer, wider.unstable))
        return bounds.map(lambda ends: ends.unflatten(0, (len(self.radii), -1)))

    @cached_property
    def final(self) -> set[int]:
        """The pre-activations that no other pre-activation depends on."""
        preactivations = self.network.preactivations
        return {
            value
            for value in preactivations
            if not any(value in self.network.ancestors((later,)) for later in preactivations if later != value)
        }

    def relax(self, value: int, bounds: Interval) -> Relaxation:
        """Active neurons as they are, inactive ones 0, and a symbol for the whole output of an unstable one."""
        unstable = bounds.unstable
        unit = torch.where(unstable, bounds.upper / torch.frexp(bounds.upper).mantissa, 0)  # a power of two above it
        unit = torch.where(unstable, unit.clamp(min=LEAST_UNIT), 0)
        neurons = unstable.any(0).nonzero().squeeze(1)
        source = self.network.source(value)
        self.symbols[source] = self._symbols(source, neurons, unit[:, None, neurons])
        slope = bounds.active.to(unit.dtype)
        return Relaxation(slope, -unit, slope, unit)

    def _symbols(self, source: int, neurons: Tensor, unit: Tensor) -> _Symbols:
        lines = FAST_LIN(Relu(), self.bounds[source].map(lambda ends: ends[..., neurons]), self.arithmetic)
        present = unit != 0
        slope, half = (
            torch.where(present, line / unit.where(present, 1), 0) for line in (lines.slope_below, lines.half_width)
        )
        return _Symbols(self.neurons[source].select(neurons), slope, half)

    def _neurons(self, zonotope: Zonotope) -> _Neurons:
        doubt = zonotope.error.expand_as(zonotope.centre)
        if self.arithmetic.rigorous:
            extent = zonotope.centre.abs() + zonotope.deviation.absolute
            gamma = self.arithmetic.gamma(self._terms)
            doubt = self.arithmetic.above(doubt + gamma * extent, 4) + TINY * (extent + self.region.widest)
        blocks = {source: block.mT for source, block in zonotope.dense().items()}
        return _Neurons(zonotope.centre, doubt, blocks)

    @property
    def _terms(self) -> int:
        """The terms of all sums on the way from a neuron to the input, with a few factors each."""
        return sum(self.network.sizes) + 8 * len(self.network.sizes)

    def _regions_at_once(self, neurons: int) -> int:
        need = len(self.radii) * max(1, neurons) * self.network.sizes[INPUT] * self.radii.element_size()
        return max(1, CHUNK_BYTES // need)

    def _substitute(self, neurons: _Neurons, some: slice) -> Interval:
        """Bounds of neurons in some of the regions, (batch, some regions, neurons): every symbol is replaced by its
        lines, the latest first.

        Rounding moves a coefficient by at most gamma times the absolute values that were summed for it. What those
        amount to, symbols being within [-1, 1] and the input within the region, is in the doubts.
        """
        centre, slack, radius = neurons.centre[:, None], neurons.doubt[:, None], neurons.centre.new_zeros(1, 1, 1)
        forms = {source: block[:, None] for source, block in neurons.blocks.items()}
        while (source := max(forms, default=INPUT)) != INPUT:
            whole, preceding = forms.pop(source), self.network.source(source)
            for indices, symbols in self.symbols[preceding].within(some):
                form, inner = whole[..., indices], symbols.neurons
                pulled = form * symbols.slope[:, :, None]
                centre = centre + _dot(form, symbols.half) + _dot(pulled, inner.centre[:, None])
                radius = radius + _dot(form.abs(), symbols.half)
                if self.arithmetic.rigorous:
                    slack = slack + _dot(pulled.abs(), inner.doubt[:, None])
                for before, block in inner.blocks.items():
                    product = torch.einsum("brnm,bmk->brnk", pulled, block)
                    forms[before] = _sum(product, forms[before]) if before in forms else product
        shift, moved = self._on_input(forms.get(INPUT), some)
        moved = moved.map(lambda ends: ends + radius + slack)
        if self.arithmetic.rigorous:
            lost = TINY * (1 + self.region.widest[..., None])  # coefficients that underflowed
            moved = moved.map(lambda ends: self.arithmetic.above(ends + lost, self._terms))
        return Interval.around(centre + shift, moved, self.arithmetic)

    def _on_input(self, form: Tensor | None, some: slice) -> tuple[Tensor, Deviation]:
        """Concretises forms on the input: how far they move the centres, and how far they may deviate from there."""
        count, regions = len(self.radii), some.stop - some.start
        if form is None:
            still = self.radii.new_zeros(count, regions, 1)
            return still, Deviation(still, still)
        nested = _resized(self.region, self.radii[:, some])
        shared = form.shape[:2] == (1, 1)
        forms = form[0] if shared else form.expand(count, regions, -1, -1).flatten(0, 1)
        on_input = Rows(forms, (forms.shape[-1],))
        moved = nested.deviation(on_input, self.arithmetic).map(lambda ends: ends.unflatten(0, (count, regions)))
        step = nested.reference.unflatten(0, (count, regions)) - self.region.reference[:, None]
        return _dot(form, step) if bool(step.any()) else torch.zeros_like(moved.below), moved


def _resized(region: Region, radii: Tensor) -> Region:
    """The regions with each of several radii, (batch, regions), one after the other."""
    count, regions = radii.shape
    which = torch.arange(count) if region.which is None else region.which
    return replace(region, radius=radii.flatten(), which=which.repeat_interleave(regions))


def _dot(forms: Tensor, values: Tensor) -> Tensor:
    """Forms (batch, regions, forms, size) at values (batch, regions, size), either of which may be 1 where the other
    is more: (batch, regions, forms)."""
    return torch.einsum("brns,brs->brn", forms, values)


def _sum(fresh: Tensor, other: Tensor) -> Tensor:
    """The sum of two tensors, either of which may be 1 where the other is more; in place where it fits the first."""
    fits = all(size >= least for size, least in zip(fresh.shape, other.shape, strict=True))
    return fresh.add_(other) if fits else fresh + other
