"""Signs that splits imply, and violations that they lead to.

Interval propagation proposes signs. One that seems to be implied becomes a split whose other half is bounded and proven
like every node: a wrong one costs time, not truth, and a recorded search has an ordinary tree.
"""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import FLOAT
from relucert.branch_and_bound.dual_ascent import DualAscent, Nodes, join
from relucert.branch_and_bound.propagation import Implied, Intervals

ROOT_SWEEPS = 3  # at most
MOST_NUMBERS = 2**17  # of all matrices together, for propagation to be tried
NEUTRAL = 0.5  # slope
TRIED = 16  # nodes after which propagation is judged
LEAST_SETTLED = 0.1  # of the unstable neurons need no split at the root where propagation is worth it
LEAST_REFUTED = 0.8  # of the signs that seem to be implied


def with_implied(nodes: Nodes, implied: Implied) -> Nodes:
    """The nodes with all implied signs, whose multipliers are 0."""
    signs = torch.where(implied.signs != 0, implied.signs, nodes.signs)
    return Nodes(nodes.rows, signs, nodes.duals.masked_fill(implied.signs != 0, 0.0))


def refutations(nodes: Nodes, implied: Implied) -> Nodes:
    """The other halves of implied splits: for each sign a node with the signs implied before it and its opposite."""
    batches = [nodes.pick(slice(0, 0))]
    for index in implied.signs.any(1).nonzero().flatten().tolist():
        neurons = implied.signs[index].nonzero().flatten()
        neurons = neurons[implied.sweeps[index, neurons].argsort(stable=True)]
        count = len(neurons)
        signs = nodes.signs[index].repeat(count, 1)
        earlier = torch.ones(count, count, dtype=torch.int8).tril(-1) - torch.eye(count, dtype=torch.int8)
        signs[:, neurons] = earlier * implied.signs[index, neurons]
        duals = torch.where(signs == nodes.signs[index], nodes.duals[index], 0.0)
        batches.append(Nodes(nodes.rows[index].repeat(count), signs, duals))
    return join(batches)


class Propagation:
    """Propagates the signs of nodes, as long as that gains something.

    Attributes:
        worthwhile: Whether the rows settle many signs by themselves, as sums of clauses do, and whether the signs that
            seemed to be implied turned out to be.
    """

    def __init__(self, dual_ascent: DualAscent, region: Region) -> None:
        self.dual_ascent = dual_ascent
        numbers = sum(stage.maps.numbers for stage in dual_ascent.stages)
        small = 0 < numbers <= MOST_NUMBERS and dual_ascent.unstable_count > 0
        self._visits = self._tried = self._proposed = self._refuted = 0
        spans = region.cast(torch.float32).spans(FLOAT)
        units = torch.where(dual_ascent.corners.scale > 0, dual_ascent.corners.scale, 1.0)
        self.low, self.high = -spans.below[0] / units, spans.above[0] / units
        self._settled = self._intervals(dual_ascent.roots()).run(ROOT_SWEEPS).nearly if small else None
        self.worthwhile = self._settled is not None and float(self._settled.float().mean()) >= LEAST_SETTLED

    def _intervals(self, nodes: Nodes) -> Intervals:
        return Intervals(self.dual_ascent, self.low, self.high, nodes)

    def start(self, nodes: Nodes) -> Nodes:
        """Nodes from which the search starts, or starts again, with multipliers of 0.

        Where rows settle the signs of neurons by themselves, bounds are often at the edge of a plateau: there only one
        of a row's terms counts. Then slopes in the middle, behind the first stage, are better.
        """
        if not self.worthwhile:
            return nodes
        duals = self.dual_ascent.roots().duals[nodes.rows]
        first = self.dual_ascent.stages[0].unstable_count
        duals[:, first:].clamp_(min=NEUTRAL)
        return nodes._replace(duals=duals.masked_fill(nodes.signs != 0, 0.0))

    def propose(self, nodes: Nodes) -> Implied:
        """Signs that the nodes imply, other than those that the row implies by itself.

        The latter need no splits: with them the row is 0 where it is not positive, and slopes say the same.
        """
        assert self._settled is not None
        implied, settled = self._intervals(nodes).run(), self._settled[nodes.rows]
        return implied._replace(signs=implied.signs.masked_fill(settled, 0), nearly=implied.nearly | settled)

    def dives(self) -> bool:
        """Whether it is time for a dive: at the first, second, fourth, ... visit of nodes."""
        self._visits += 1
        return self.worthwhile and not self._visits & (self._visits - 1)

    def dive(self, nodes: Nodes) -> Tensor:
        """Points (some, inputs) where nodes may have a violation.

        Split after split takes the sign that leaves the constraints more slack, until signs contradict each other or
        no neuron is left to be split.
        """
        for _ in range(self.dual_ascent.unstable_count):
            implied = self.propose(nodes)
            possible = ~implied.empty
            if not bool(possible.any()):
                break
            left, implied = nodes.pick(possible), implied.pick(possible)
            open_neurons = (left.signs == 0) & (implied.signs == 0) & ~implied.nearly
            nodes, points = with_implied(left, implied), implied.points
            if not bool(open_neurons.any()):
                return self.dual_ascent.corners.point(points)
            neurons = torch.where(open_neurons, implied.influence, -1.0).argmax(1, keepdim=True)
            signs = torch.where(implied.preferred.gather(1, neurons) < 0, -1, 1).to(torch.int8)
            nodes = nodes._replace(signs=nodes.signs.scatter(1, neurons, signs))
        return self.dual_ascent.corners.reference[None]

    def judge(self, implied: Implied, unrefuted: int) -> None:
        """Takes note of what came of proposals; unrefuted: how many other halves of implied splits stayed open."""
        proposed = int(implied.signs.count_nonzero())
        self._tried, self._proposed = self._tried + len(implied.empty), self._proposed + proposed
        self._refuted += proposed - unrefuted
        if self._tried >= TRIED:
            self.worthwhile = self._refuted >= LEAST_REFUTED * self._proposed
