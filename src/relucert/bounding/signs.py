"""Bounds of pre-activations as far as it takes to tell the signs of their neurons.

What comes after a stable neuron does not depend on how tight its bounds are. So a form is pulled back only until its
sign is known: where all of it has reached one activation, the intervals of that activation may tell it. Where the two
bounds of a neuron take a back-substitution each, the one comes first that is more likely to show it stable.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.deviation import Deviation
from relucert.bounding.backward import Pull
from relucert.bounding.interval import Interval
from relucert.bounding.layerwise import in_chunks, neuron_forms
from relucert.bounding.reference import ReferencePath
from relucert.network import LinearForms, Network

WORTH_DROPPING = 0.2  # of the forms: fewer that are done are pulled along


class SignedBounds(NamedTuple):
    """Bounds that tell signs.

    Attributes:
        interval: The bounds of all neurons of a pre-activation.
        tight: Which lower and which upper bounds are those of forms pulled back to the input, (batch, 2, size).
    """

    interval: Interval
    tight: Tensor


def bound_signs(path: ReferencePath, value: int, prior: Interval, *, numbers: int | None = None) -> SignedBounds:
    """Bounds of a pre-activation by the path's lines, where prior bounds leave a neuron unstable.

    numbers: As in the network's `pull_counts`, where they are known.
    """
    unstable = ~path.network.stable(value, *prior)
    if path.relaxer.parallel:
        interval, tight = _pulled(path, value, unstable, prior, numbers)
        return SignedBounds(interval, torch.stack([tight, tight], 1))
    upwards = prior.lower + prior.upper > 0
    interval, first = _pulled(path, value, torch.cat([unstable & upwards, unstable & ~upwards], 1), prior, numbers)
    unstable = unstable & ~path.network.stable(value, *interval)
    wanted = torch.cat([unstable & ~upwards, unstable & upwards], 1)
    interval, second = _pulled(path, value, wanted, interval, numbers)
    return SignedBounds(interval, (first | second).unflatten(1, (2, -1)))


def _pulled(
    path: ReferencePath, value: int, wanted: Tensor, interval: Interval, numbers: int | None
) -> tuple[Interval, Tensor]:
    """Bounds of a pre-activation, better where they are wanted, and which of these come of forms that were pulled back
    to the input. Every batch member takes what it would get alone.

    wanted: by positions as in `_SignPull`, (batch, positions), like the result.
    """
    tight = torch.zeros_like(wanted)

    def pull(chunk: Tensor) -> int:
        nonlocal interval
        signed = _SignPull(path, value, chunk, wanted[:, chunk], interval)
        interval = signed.bounds()
        tight[:, chunk] = wanted[:, chunk] & ~signed.stopped
        return signed.largest

    in_chunks(path, wanted.any(0).nonzero().flatten(), numbers, pull)
    return interval, tight


class _SignPull(Pull):
    """One back-substitution whose forms stop once their signs are known in every batch member in which they are wanted.

    Neurons, by their positions, stand for their lower bounds; where one back-substitution does not give both bounds,
    positions beyond the last neuron stand for upper bounds, those of the negatives.

    positions: (count,); wanted: (batch, count).
    """

    def __init__(self, path: ReferencePath, value: int, positions: Tensor, wanted: Tensor, prior: Interval) -> None:
        size = path.network.sizes[value]
        self.neurons, self.negative = positions % size, positions >= size
        signs = None if path.relaxer.parallel else 1 - 2 * self.negative.to(path.arithmetic.dtype)
        super().__init__(path)
        self.start = neuron_forms(path, value, self.neurons, signs)
        self.value, self.wanted, self.prior = value, wanted, prior
        self.open = torch.arange(len(positions))  # the forms that are still pulled back
        self.stopped = ~wanted
        anything = torch.full_like(self.start.constant, torch.inf)
        self.form_bounds = Interval(-anything, anything)
        self.bottlenecks = _bottlenecks(path.network, self.start.value)

    def bounds(self) -> Interval:
        """The prior bounds of all neurons with those of the wanted forms, where these are better."""
        pulled = self.run(self.start)
        upper = torch.full_like(pulled.lower, torch.inf) if pulled.upper is None else pulled.upper
        self._keep(Interval(pulled.lower, upper), ~self.stopped[:, self.open])
        return self._improved(self.form_bounds, torch.arange(len(self.neurons)))

    def activation(self, value: int, source: int, form: LinearForms) -> LinearForms | None:
        if value in self.bottlenecks:
            form = self._without_known(value, form)
            if not form.count:
                return None
        pulled = super().activation(value, source, form)
        self.met.clear()  # nobody asks for these forms, and their memory is wanted
        return pulled

    def _without_known(self, value: int, form: LinearForms) -> LinearForms:
        """The forms on an activation whose signs its intervals leave open in some batch member."""
        interval = self._on_intervals(value, form)
        stable = self._stable(interval) & ~self.stopped[:, self.open]
        self._keep(interval, stable)
        self.stopped[:, self.open] |= stable
        remaining = (~self.stopped[:, self.open]).any(0).nonzero().flatten()
        if len(remaining) > (1 - WORTH_DROPPING) * len(self.open):
            return form
        self.open, self.constant = self.open[remaining], self.constant[:, remaining]
        self.slack = self.slack[:, remaining]
        return form.pick(remaining)

    def _on_intervals(self, value: int, form: LinearForms) -> Interval:
        """The bounds of forms on an activation's value that follow from its intervals, (batch, forms) each."""
        arithmetic = self.arithmetic
        centre, spread = self.path.interval_about_reference(value)
        middle = self.constant + form.dot(centre)
        moved = self.slack + arithmetic.above(form.absolute_dot(spread), form.terms + 2)
        if arithmetic.rigorous:
            moved = arithmetic.above(moved + arithmetic.gamma(2) * (middle.abs() + self.constant.abs()), 4)
        return Interval.around(middle, Deviation(moved, moved), arithmetic)

    def _stable(self, interval: Interval) -> Tensor:
        """A mask of the forms still pulled back whose bounds show their neurons stable, (batch, forms)."""
        return self.network.stable(self.value, *self._improved(interval, self.open))[:, self.neurons[self.open]]

    def _improved(self, interval: Interval, forms: Tensor) -> Interval:
        """The prior bounds met with bounds of some forms, (count,), in the batch members in which they are wanted:
        (batch, count) to (batch, size) each."""
        (lower, upper), wanted = self.prior, self.wanted[:, forms]
        neurons, negative = self.neurons[forms], self.negative[forms]
        if self.two_sided:
            return self.prior.replaced(neurons, self.prior.pick(neurons).meet(interval, wanted))
        above, below = neurons[~negative], neurons[negative]
        least = torch.where(wanted, interval.lower, -torch.inf)
        return Interval(
            lower.index_copy(1, above, torch.maximum(lower[:, above], least[:, ~negative])),
            upper.index_copy(1, below, torch.minimum(upper[:, below], -least[:, negative])),
        )

    def _keep(self, interval: Interval, where: Tensor) -> None:
        """Notes the bounds of forms still pulled back."""
        for bound, new in zip(self.form_bounds, interval, strict=True):
            bound[:, self.open] = torch.where(where, new, bound[:, self.open])


def _bottlenecks(network: Network, value: int) -> set[int]:
    """The activations that all of a form on a value reaches at once, but for the first if it is the only nearest one:
    its intervals have told all that they can."""
    pending, bottlenecks, met = {value}, set(), 0
    for current in range(value, 0, -1):
        if current not in pending:
            continue
        pending.remove(current)
        if current in network.activations:
            if not pending and met:
                bottlenecks.add(current)
            met += 1
        pending.update(network.node(current).inputs)
    return bottlenecks
