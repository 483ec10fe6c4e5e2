"""Bounds of pre-activations as far as it takes to tell the signs of their neurons.

What comes after a stable neuron does not depend on how tight its bounds are. So a form is pulled back only until its
sign is known: where all of it has reached one activation, the intervals of that activation may tell it. Where the two
bounds of a neuron take a back-substitution each, the one comes first that is more likely to show it stable.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relucert.bounding.backward import CHUNK_BYTES, FIRST_FORMS, NO_DUALS, Pull, first_chunk, neuron_forms
from relucert.bounding.interval import Interval
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


def bound_signs(path: ReferencePath, value: int, known: Interval, *, numbers: int | None = None) -> SignedBounds:
    """Bounds of a pre-activation by the path's lines, where bounds that are known leave a neuron unstable.

    numbers: As in the network's `pull_counts`, where they are known.
    """
    bounds = _Bounds(path, value, known, numbers or max(path.network.sizes))
    unstable = ~path.network.stable(value, *known)
    if path.relaxer.parallel:
        bounds.pull(unstable, sign=1)
        return SignedBounds(bounds.interval, torch.stack([bounds.walked[1]] * 2, 1))
    upwards = known.lower + known.upper > 0
    bounds.pull(unstable & upwards, sign=1)
    bounds.pull(unstable & ~upwards, sign=-1)
    unstable = unstable & ~path.network.stable(value, *bounds.interval)
    bounds.pull(unstable & ~upwards, sign=1)
    bounds.pull(unstable & upwards, sign=-1)
    return SignedBounds(bounds.interval, torch.stack([bounds.walked[1], bounds.walked[-1]], 1))


class _Bounds:
    """The bounds of a pre-activation while they get better; every batch member takes what it would get alone.

    Attributes:
        interval: The bounds so far.
        walked: By sign, whose form, or negative form, was pulled back to the input, (batch, size).
    """

    def __init__(self, path: ReferencePath, value: int, known: Interval, numbers: int) -> None:
        self.path, self.value, self.interval, self.numbers = path, value, known, numbers
        self.walked = {sign: torch.zeros_like(known.lower, dtype=torch.bool) for sign in (1, -1)}

    def pull(self, wanted: Tensor, sign: int) -> None:
        """Pulls back the wanted neurons, (batch, size), or with the sign -1 their negatives."""
        neurons, sample = wanted.any(0).nonzero().flatten(), _sample(wanted.shape[1])
        first, step = 0, first_chunk(self.path, self.numbers)
        if len(neurons) > step:
            neurons = torch.cat([neurons[sample[neurons]], neurons[~sample[neurons]]])
        stops: dict[int, Tensor] = {}
        while first < len(neurons):
            chosen = neurons[first : first + step]
            pull = _SignPull(self.path, self.value, chosen, wanted[:, chosen], sign, self.interval)
            pull.stop_where(stops, sample[chosen])
            self._take(chosen, wanted[:, chosen], pull, sign)
            first += len(chosen)
            step = max(1, CHUNK_BYTES * len(chosen) // pull.largest)

    def _take(self, neurons: Tensor, wanted: Tensor, pull: _SignPull, sign: int) -> None:
        found = pull.bounds()
        met = Interval(*(side[:, neurons] for side in self.interval)).meet(found)
        self.interval = Interval(
            *(
                side.index_copy(1, neurons, torch.where(wanted, new, side[:, neurons]))
                for side, new in zip(self.interval, met, strict=True)
            )
        )
        self.walked[sign][:, neurons] |= wanted & ~pull.stopped


class _SignPull(Pull):
    """One back-substitution of neurons, (count,), or their negatives, whose forms stop once their signs are known, in
    every batch member in which they are wanted, (batch, count)."""

    def __init__(
        self, path: ReferencePath, value: int, neurons: Tensor, wanted: Tensor, sign: int, known: Interval
    ) -> None:
        self.place, self.forms, constant, slack = neuron_forms(path, value, neurons, sign)
        super().__init__(path, NO_DUALS, constant, slack)
        self.value, self.sign, self.neurons, self.known = value, sign, neurons, known
        self.open = torch.arange(len(neurons))  # the forms that are still pulled back
        self.stopped = ~wanted
        self.found = Interval(torch.full_like(constant, -torch.inf), torch.full_like(constant, torch.inf))
        self.bottlenecks = _bottlenecks(path.network, self.place)

    def stop_where(self, stops: dict[int, Tensor], sample: Tensor) -> None:
        """Forms stop only where enough of a sample do.

        Args:
            stops: By bottleneck, in which batch members that is so, (batch,); what is missing is added.
            sample: Whether a form is part of the sample, (count,).
        """
        self.stops, self.sample = stops, sample
        self.bottlenecks = self.bottlenecks - {value for value, worth in stops.items() if not bool(worth.any())}

    def bounds(self) -> Interval:
        """Bounds of the neurons, (batch, count) each; infinite where nothing is proven."""
        pulled = self.run(self.forms, self.place)
        upper = torch.full_like(pulled.lower, torch.inf) if pulled.upper is None else pulled.upper
        self._keep(Interval(pulled.lower, upper), ~self.stopped[:, self.open])
        if self.sign > 0:
            return self.found
        return Interval(-self.found.upper, -self.found.lower)

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
        still = ~self.stopped[:, self.open]
        stable = self._stable(interval) & still
        if value not in self.stops:
            sampled = still & self.sample[self.open]
            self.stops[value] = (stable & sampled).sum(1) >= WORTH_DROPPING * sampled.sum(1)
        stable &= self.stops[value][:, None]
        self._keep(interval, stable)
        self.stopped[:, self.open] |= stable
        left = (~self.stopped[:, self.open]).any(0).nonzero().flatten()
        if len(left) > (1 - WORTH_DROPPING) * len(self.open):
            return form
        self.open, self.constant, self.slack = self.open[left], self.constant[:, left], self.slack[:, left]
        return form.pick(left)

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
        """Where bounds of the forms still pulled back show their neurons stable, (batch, forms)."""
        neurons = self.neurons[self.open]
        sides = interval if self.sign > 0 else Interval(-interval.upper, -interval.lower)
        met = Interval(*(side[:, neurons] for side in self.known)).meet(sides)
        whole = [side.index_copy(1, neurons, new) for side, new in zip(self.known, met, strict=True)]
        return self.network.stable(self.value, *whole)[:, neurons]

    def _keep(self, interval: Interval, where: Tensor) -> None:
        """Notes the bounds of forms still pulled back."""
        for side, new in zip(self.found, interval, strict=True):
            side[:, self.open] = torch.where(where, new, side[:, self.open])


def _bottlenecks(network: Network, value: int) -> set[int]:
    """The activations that all of a form on a value reaches at once, but for the first if it is the only nearest one:
    its intervals have told all that they can."""
    pending, found, met = {value}, set(), 0
    for current in range(value, 0, -1):
        if current not in pending:
            continue
        pending.remove(current)
        if current in network.activations:
            if not pending and met:
                found.add(current)
            met += 1
        pending.update(network.node(current).inputs)
    return found


def _sample(size: int) -> Tensor:
    """A mask of some neurons of a layer, (size,), not more than the first chunk has room for."""
    sample = torch.zeros(size, dtype=torch.bool)
    sample[:: -(-size // FIRST_FORMS)] = True
    return sample
