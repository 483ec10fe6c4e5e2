"""The record of ReLU splitting, for a proof: the trees of hidden neurons and of the property's rows.

A search that starts again from a tighter root keeps the trees of hidden neurons, bounded anew with that root's bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.bounding.interval import Interval
from relucert.bounding.record import Leaves, NeuronBounds, Record, join_leaves, rules_of
from relucert.branch_and_bound.confirm import neuron_bounds
from relucert.branch_and_bound.dual_ascent import Nodes
from relucert.branch_and_bound.refine import improved
from relucert.branch_and_bound.stages import Stages
from relucert.network import Network

CHEAP_RULES = ("fast-lin", "crown")  # that bound all neurons before any search


class _Offer(NamedTuple):
    """Trees for lower or upper bounds of neurons, the bound that each of them proves, (count,), and their leaves."""

    neurons: Tensor
    signs: Tensor
    bounds: Tensor
    leaves: Leaves


@dataclass(eq=False)
class SearchRecord:
    """The trees that a search has proven so far from its present root."""

    network: Network
    _kept: dict[int, NeuronBounds] = field(default_factory=dict)
    _offers: dict[int, list[_Offer]] = field(default_factory=dict)
    _rows: list[Leaves] = field(default_factory=list)

    def __reduce__(self) -> tuple[type[SearchRecord], tuple[Network]]:
        """In another process the record begins anew: it keeps what that one proves."""
        return SearchRecord, (self.network,)

    def begin(self) -> None:
        """Begins the trees of the property's rows anew, from a new root."""
        self._rows = []

    def repeated(self, stages: Stages, value: int, interval: Interval, ends: float) -> Interval:
        """The intersection of the bounds of a value that is no stage yet with those by trees of an earlier root."""
        self._offers[value] = []
        if value not in self._kept:
            return interval
        trees = self._kept[value]
        nodes = _moved(trees.leaves, stages)
        least = neuron_bounds(stages, value, trees.neurons, trees.signs, nodes, ends)
        self.offer(stages, value, trees.neurons, trees.signs, nodes, least)
        return improved(interval, trees.neurons, trees.signs, least)

    def offer(self, stages: Stages, value: int, neurons: Tensor, signs: Tensor, nodes: Nodes, least: Tensor) -> None:
        """Takes the trees of neurons times signs, (count,), as leaves, and the least bound of each tree."""
        leaves = _leaves(stages, nodes, nodes.rows)
        self._offers[value].append(_Offer(neurons, signs.to(torch.int8), least.nan_to_num(-torch.inf), leaves))

    def settle(self, value: int, ruled: Interval, interval: Interval) -> None:
        """Keeps the best tree for either bound of each neuron of a value, if it beats the rules and the bound matters.

        One bound of a neuron does not matter where the other bound shows that the neuron is stable.
        """
        self._kept.pop(value, None)
        offers = self._offers.pop(value, [])
        if not offers:
            return
        neurons = torch.cat([offer.neurons for offer in offers])
        signs = torch.cat([offer.signs for offer in offers])
        bounds = torch.cat([offer.bounds for offer in offers])
        by_rules = torch.where(signs > 0, ruled.lower[0, neurons], -ruled.upper[0, neurons])
        needless = torch.where(signs > 0, interval.upper[0, neurons], -interval.lower[0, neurons]) <= 0
        best: dict[tuple[int, int], int] = {}  # by neuron and sign, the number of a tree
        for tree in (~needless & (bounds > by_rules)).nonzero().flatten().tolist():
            bound_of = int(neurons[tree]), int(signs[tree])
            if bounds[tree] > bounds[best.setdefault(bound_of, tree)]:
                best[bound_of] = tree
        if not best:
            return
        kept = torch.tensor(list(best.values()))
        numbers = torch.full((len(neurons),), -1)
        numbers[kept] = torch.arange(len(kept))
        first, batches = 0, []
        for offer in offers:
            forms = numbers[first + offer.leaves.forms]
            batches.append(offer.leaves.pick(forms >= 0)._replace(forms=forms[forms >= 0]))
            first += len(offer.neurons)
        self._kept[value] = NeuronBounds(neurons[kept], signs[kept], join_leaves(batches))

    def close(self, stages: Stages, rows: Tensor, nodes: Nodes) -> None:
        """Records proven leaves of the property's rows, (count,)."""
        if len(rows):
            self._rows.append(_leaves(stages, nodes, rows))

    def finish(self) -> Record:
        """The record that proves the property, once every leaf of every row is closed."""
        hidden = {value: [trees] for value, trees in self._kept.items()}
        return Record(rules_of(self.network, CHEAP_RULES), hidden, join_leaves(self._rows))


def _leaves(stages: Stages, nodes: Nodes, forms: Tensor) -> Leaves:
    neurons = {stage.value: stage.neurons[: stage.unstable_count] for stage in stages.stages}
    return Leaves(neurons, forms.clone(), nodes.signs.clone(), nodes.duals.clone())


def _moved(leaves: Leaves, stages: Stages) -> Nodes:
    """The leaves of an earlier root as nodes of a tighter one, where neurons that are stable need no split."""
    count = len(leaves.forms)
    by_value = {stage.value: stage for stage in stages.stages}
    slopes = [(stage.upper > -stage.lower).float() for stage in stages.stages]
    duals = (torch.cat(slopes) if slopes else torch.zeros(0)).repeat(count, 1)
    signs = torch.zeros(duals.shape, dtype=torch.int8)
    nonempty = torch.ones(count, dtype=torch.bool)
    first = 0
    for value, neurons in leaves.neurons.items():
        old = slice(first, first + len(neurons))
        first += len(neurons)
        lower, upper = (bound[0, neurons] for bound in stages.bounds[value])
        split = leaves.signs[:, old]
        nonempty &= ~(((split < 0) & (lower >= 0)) | ((split > 0) & (upper <= 0) & (lower < 0))).any(1)
        stage = by_value[value]
        columns = torch.full((stages.exact.sizes[value],), -1)
        columns[stage.neurons[: stage.unstable_count]] = stage.first + torch.arange(stage.unstable_count)
        now = columns[neurons]
        signs[:, now[now >= 0]] = split[:, now >= 0]
        duals[:, now[now >= 0]] = leaves.duals[:, old][:, now >= 0]
    return Nodes(leaves.forms, signs, duals).pick(nonempty.nonzero().flatten())
