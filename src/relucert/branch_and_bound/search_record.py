"""The record of ReLU splitting, for a proof: the trees of hidden neurons and of the property's rows.

A search that starts again from a tighter root keeps the trees of hidden neurons, bounded anew with what is known there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.bounding.interval import Interval
from relucert.bounding.record import Leaves, Record, Sides, join_leaves, rules_of
from relucert.branch_and_bound.confirm import neuron_rows, proven_bounds, row_bounds
from relucert.branch_and_bound.dual_ascent import Nodes
from relucert.branch_and_bound.refine import improved
from relucert.branch_and_bound.stages import Stages
from relucert.network import Network

CHEAP_RULES = ("fast-lin", "crown")  # that bound all neurons before any search


class _Offer(NamedTuple):
    """Trees of several sides of neurons, and the bound that each of them proves, (count,)."""

    sides: Sides
    bounds: Tensor


_Choice = tuple[tuple[int, int], tuple[float, int, int]]


@dataclass(eq=False)
class SearchRecord:
    """The trees that a search has proven so far from its present root."""

    network: Network
    _kept: dict[int, Sides] = field(default_factory=dict)
    _offers: dict[int, list[_Offer]] = field(default_factory=dict)
    _rows: list[Leaves] = field(default_factory=list)

    def begin(self) -> None:
        """Begins the trees of the property's rows anew, from a new root."""
        self._rows = []

    def repeated(self, stages: Stages, value: int, interval: Interval, ends: float) -> Interval:
        """The intersection of the bounds of a value that is no stage yet with those by trees of an earlier root."""
        self._offers[value] = []
        if value not in self._kept:
            return interval
        sides = self._kept[value]
        nodes = _moved(sides.leaves, stages)
        rows = neuron_rows(stages, value, sides.neurons, sides.signs)
        least = row_bounds(proven_bounds(stages, rows, nodes, ends=ends), nodes, len(sides.neurons))
        self.offer(stages, value, sides.neurons, sides.signs, nodes, least)
        return improved(interval, sides.neurons, sides.signs, least)

    def offer(self, stages: Stages, value: int, neurons: Tensor, signs: Tensor, nodes: Nodes, least: Tensor) -> None:
        """Takes the trees of neurons times signs, (count,), as leaves, and the least bound of each tree."""
        sides = Sides(neurons, signs.to(torch.int8), _leaves(stages, nodes, nodes.rows))
        self._offers[value].append(_Offer(sides, least.nan_to_num(-torch.inf)))

    def settle(self, value: int, ruled: Interval, interval: Interval) -> None:
        """Keeps the best tree of each side of a value's neurons, if it beats the rules and the side matters.

        A side does not matter where the other one shows that the neuron is stable.
        """
        best: dict[tuple[int, int], tuple[float, int, int]] = {}
        offers = self._offers.pop(value, [])
        for number, offer in enumerate(offers):
            columns = offer.sides.neurons.tolist(), offer.sides.signs.tolist(), offer.bounds.tolist()
            for place, (neuron, sign, bound) in enumerate(zip(*columns, strict=True)):
                known = float(ruled.lower[0, neuron]) if sign > 0 else -float(ruled.upper[0, neuron])
                needless = bool((interval.upper if sign > 0 else -interval.lower)[0, neuron] <= 0)
                if not needless and bound > best.get((neuron, sign), (known,))[0]:
                    best[neuron, sign] = bound, number, place
        self._keep(value, offers, list(best.items()))

    def _keep(self, value: int, offers: list[_Offer], chosen: list[_Choice]) -> None:
        """Keeps one tree per side; chosen: neuron and sign, with the bound, the offer and the tree's place in it."""
        if not chosen:
            self._kept.pop(value, None)
            return
        parts = []
        for number, offer in enumerate(offers):
            numbers = torch.full((len(offer.bounds),), -1, dtype=torch.long)
            for place, (_, (_, source, form)) in enumerate(chosen):
                if source == number:
                    numbers[form] = place
            forms = numbers[offer.sides.leaves.forms]
            parts.append(offer.sides.leaves.pick(forms >= 0)._replace(forms=forms[forms >= 0]))
        neurons, signs = torch.tensor([side for side, _ in chosen]).T
        self._kept[value] = Sides(neurons, signs.to(torch.int8), join_leaves(parts))

    def close(self, stages: Stages, rows: Tensor, nodes: Nodes) -> None:
        """Records proven leaves of the property's rows, (count,)."""
        if len(rows):
            self._rows.append(_leaves(stages, nodes, rows))

    def finish(self) -> Record:
        """The record that proves the property, once every leaf of every row is closed."""
        hidden = {value: [sides] for value, sides in self._kept.items()}
        return Record(rules_of(self.network, CHEAP_RULES), hidden, join_leaves(self._rows))


def _leaves(stages: Stages, nodes: Nodes, forms: Tensor) -> Leaves:
    neurons = {stage.value: stage.neurons[: stage.unstable_count] for stage in stages.stages}
    return Leaves(neurons, forms.clone(), nodes.signs.clone(), nodes.duals.clone())


def _moved(leaves: Leaves, stages: Stages) -> Nodes:
    """The leaves of an earlier root as nodes of a tighter one, where neurons that are stable need no split."""
    count = len(leaves.forms)
    places = {stage.value: stage for stage in stages.stages}
    slopes = [(stage.upper > -stage.lower).float() for stage in stages.stages]
    duals = (torch.cat(slopes) if slopes else torch.zeros(0)).repeat(count, 1)
    signs = torch.zeros(duals.shape, dtype=torch.int8)
    nonempty = torch.ones(count, dtype=torch.bool)
    first = 0
    for value, neurons in leaves.neurons.items():
        old = slice(first, first + len(neurons))
        first += len(neurons)
        lower, upper = (side[0, neurons] for side in stages.bounds[value])
        known = leaves.signs[:, old]
        nonempty &= ~(((known < 0) & (lower >= 0)) | ((known > 0) & (upper <= 0) & (lower < 0))).any(1)
        stage = places[value]
        columns = torch.full((stages.exact.sizes[value],), -1)
        columns[stage.neurons[: stage.unstable_count]] = stage.first + torch.arange(stage.unstable_count)
        now = columns[neurons]
        signs[:, now[now >= 0]] = known[:, now >= 0]
        duals[:, now[now >= 0]] = leaves.duals[:, old][:, now >= 0]
    return Nodes(leaves.forms, signs, duals).pick(nonempty.nonzero().flatten())
