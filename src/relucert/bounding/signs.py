"""Bounds of pre-activations as far as it takes to tell the signs of their neurons.

What comes after a stable neuron does not depend on how tight its bounds are. So a form is pulled back only until its
sign is known: where all of it has reached one activation, the intervals of that activation may tell it. Where the two
bounds of a neuron take a back-substitution each, the one comes first that is more likely to show it stable.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relucert.bounding.backward import NO_DUALS, Pull
from relucert.bounding.interval import Interval
from relucert.bounding.layerwise import CHUNK_BYTES, first_chunk, neuron_forms
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
    bounds = _Bounds(path, value, prior, numbers or max(path.network.sizes))
    unstable = ~path.network.stable(value, *prior)
    if path.relaxer.parallel:
        bounds.pull(unstable)
        return SignedBounds(bounds.interval, torch.stack([bounds.walked] * 2, 1))
    upwards = prior.lower + prior.upper > 0
    bounds.pull(torch.cat([unstable & upwards, unstable & ~upwards], 1))
    unstable = unstable & ~path.network.stable(value, *bounds.interval)
    bounds.pull(torch.cat([unstable & ~upwards, unstable & upwards], 1))
    return SignedBounds(bounds.interval, bounds.walked.unflatten(1, (2, -1)))


class _Bounds:
    """The bounds of a pre-activation while they get better; every batch member takes what it would get alone.

    Neurons, by their positions, stand for their lower bounds; where one back-substitution does not give both bounds,
    positions beyond the last neuron stand for upper bounds, those of the negatives.

    Attributes:
        interval: The bounds so far.
        walked: Which bounds come of forms that were pulled back to the input, (batch, size), or (batch, 2 * size).
    """

    def __init__(self, path: ReferencePath, value: int, prior: Interval, numbers: int) -> None:
        self.path, self.value, self.interval, self.numbers = path, value, prior, numbers
        self.walked = prior.lower.new_zeros(
            len(prior.lower), path.network.sizes[value] * (1 if path.relaxer.parallel else 2), dtype=torch.bool
        )

    def pull(self, wanted: Tensor) -> None:
        """Pulls back what is wanted, a mask like `walked`."""
        positions = wanted.any(0).nonzero().flatten()
        first, step = 0, first_chunk(self.path, self.numbers)
        while first < len(positions):
            chunk = positions[first : first + step]
            pull = _SignPull(self.path, self.value, chunk, wanted[:, chunk], self.interval)
            self.interval = pull.bounds()
            self.walked[:, chunk] |= wanted[:, chunk] & ~pull.stopped
            first += len(chunk)
            step = max(1, CHUNK_BYTES * len(chunk) // pull.largest)


class _SignPull(Pull):
    """One back-substitution of neurons, or their negatives, by positions, (count,), as in `_Bounds`, whose forms stop
    once their signs are known, in every batch member in which they are wanted, (batch, count)."""

    def __init__(self, path: ReferencePath, value: int, positions: Tensor, wanted: Tensor, prior: Interval) -> None:
        size = path.network.sizes[value]
        self.neurons, self.negative = positions % size, positions >= size
        signs = None if path.relaxer.parallel else 1 - 2 * self.negative.to(path.arithmetic.dtype)
        self.start, self.forms, constant, slack = neuron_forms(path, value, self.neurons, signs)
        super().__init__(path, NO_DUALS, constant, slack)
        self.value, self.wanted, self.prior = value, wanted, prior
        self.open = torch.arange(len(positions))  # the forms that are still pulled back
        self.stopped = ~wanted
        self.form_bounds = Interval(torch.full_like(constant, -torch.inf), torch.full_like(constant, torch.inf))
        self.bottlenecks = _bottlenecks(path.network, self.start)

    def bounds(self) -> Interval:
        """The prior bounds of all neurons with those of the wanted forms, where these are better."""
        pulled = self.run(self.forms, self.start)
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
            moved = torch.where(middle.isfinite(), moved, torch.inf)
        upper = arithmetic.ceil(middle + moved) if self.two_sided else torch.full_like(middle, torch.inf)
        return Interval(arithmetic.floor(middle - moved), upper)

    def _stable(self, interval: Interval) -> Tensor:
        """A mask of the forms still pulled back whose bounds show their neurons stable, (batch, forms)."""
        return self.network.stable(self.value, *self._improved(interval, self.open))[:, self.neurons[self.open]]

    def _improved(self, interval: Interval, forms: Tensor) -> Interval:
        """The prior bounds met with bounds of some forms, (count,), in the batch members in which they are wanted:
        (batch, count) to (batch, size) each."""
        (lower, upper), wanted = self.prior, self.wanted[:, forms]
        neurons, negative = self.neurons[forms], self.negative[forms]
        interval = Interval(
            torch.where(wanted, interval.lower, -torch.inf), torch.where(wanted, interval.upper, torch.inf)
        )
        if self.two_sided:
            met = Interval(lower[:, neurons], upper[:, neurons]).meet(interval)
            return Interval(lower.index_copy(1, neurons, met.lower), upper.index_copy(1, neurons, met.upper))
        above, below = neurons[~negative], neurons[negative]
        return Interval(
            lower.index_copy(1, above, torch.maximum(lower[:, above], interval.lower[:, ~negative])),
            upper.index_copy(1, below, torch.minimum(upper[:, below], -interval.lower[:, negative])),
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
