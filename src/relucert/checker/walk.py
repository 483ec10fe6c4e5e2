"""The walk over trees of cuts at inputs: their leaves cover the box, and in each of them a row stays positive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import torch

from relucert.checker.document import CutNode, LeafNode
from relucert.checker.entries import require
from relucert.checker.fixed_region import FixedRegion
from relucert.checker.lines import SLOPE_BITS, ChosenLines, IntegerInterval
from relucert.checker.relaxation import FixedRelaxation
from relucert.checker.rules import rule_bounds
from relucert.checker.trees import BoundingRule

KEPT = 2**12  # boxes whose bounds are remembered for other rows


Cuts = dict[int, tuple[Fraction, Fraction]]
"""The new ends of the coordinates that were cut on the way to a node."""


@dataclass(eq=False)
class Walk:
    """Visits the nodes from the roots, one for each of the network's outputs, and every leaf's box.

    relaxation: the network over the whole box, whose ends are `box`.
    """

    relaxation: FixedRelaxation
    nodes: Sequence[CutNode | LeafNode]
    box: tuple[Sequence[Fraction], Sequence[Fraction]]
    progress: Callable[[int, int], None] | None = None
    _bounds: dict[object, tuple[FixedRelaxation, dict[int, IntegerInterval]]] = field(default_factory=dict)

    def run(self) -> int:
        """Checks all leaves and returns their number; raises Rejected unless all hold and every node is in a tree."""
        count = self.relaxation.network.classes
        require(len(self.nodes) >= count, "a row without a tree")
        waiting = [(index, index, Cuts()) for index in range(count)]
        seen, leaves = set(range(len(waiting))), 0
        while waiting:
            index, row, cuts = waiting.pop()
            node = self.nodes[index]
            if isinstance(node, LeafNode):
                self._check_leaf(index, node, row, cuts)
                leaves += 1
                if self.progress is not None:
                    self.progress(leaves, (len(self.nodes) + count) // 2)
                continue
            self._check_halves(index, node, seen)
            seen.update(node.halves)
            ends = self._cut(index, node, cuts)
            waiting += [
                (half, row, {**cuts, node.coordinate: pair}) for half, pair in zip(node.halves, ends, strict=True)
            ]
        require(len(seen) == len(self.nodes), "some nodes belong to no tree")
        return leaves

    def _cut(self, index: int, node: CutNode, cuts: Cuts) -> tuple[tuple[Fraction, Fraction], ...]:
        """The ends of the coordinate that a node cuts, in each of its halves."""
        require(0 <= node.coordinate < len(self.box[0]), f"node {index} is cut at an input that can't be cut")
        low, high = cuts.get(node.coordinate, [ends[node.coordinate] for ends in self.box])
        at = Fraction(node.at)
        require(low <= at <= high, f"node {index} is cut outside its box")
        return (low, at), (at, high)

    def _check_halves(self, index: int, node: CutNode, seen: set[int]) -> None:
        first, second = node.halves
        inside = all(0 <= half < len(self.nodes) for half in node.halves)
        own = first != second and not seen & {first, second}
        require(own and inside, f"node {index} has no two halves of its own")

    def _check_leaf(self, index: int, leaf: LeafNode, row: int, cuts: Cuts) -> None:
        network = self.relaxation.network
        relus = {(value, network.sizes[value]) for value, node in network.steps() if node.operation.name == "relu"}
        listed = {(value, len(numbers)) for value, numbers in leaf.slopes.items()}
        require(listed <= relus, f"leaf {index} has slopes of ReLUs that the network does not have")
        relaxation, bounds = self._bounded(cuts)
        slopes = {
            value: torch.floor(torch.tensor(numbers, dtype=torch.float64).clamp(0, 1) * 2.0**SLOPE_BITS + 0.5).long()
            for value, numbers in leaf.slopes.items()
        }
        form = torch.eye(network.classes, dtype=torch.float64)[row][None]
        (least,) = relaxation.least(network.output, form, bounds, ChosenLines(slopes))
        require(least > 0, f"leaf {index} does not prove that its row is positive")

    def _bounded(self, cuts: Cuts) -> tuple[FixedRelaxation, dict[int, IntegerInterval]]:
        """A leaf's box, and the bounds of its neurons with CROWN's lines."""
        key = tuple(sorted(cuts.items()))
        if key not in self._bounds:
            low, high = map(list, self.box)
            for coordinate, ends in cuts.items():
                low[coordinate], high[coordinate] = ends
            relaxation = self.relaxation.over(FixedRegion.between(low, high))
            if len(self._bounds) >= KEPT:
                self._bounds.pop(next(iter(self._bounds)))
            self._bounds[key] = relaxation, rule_bounds(relaxation, BoundingRule("crown", "all"), "real")
        return self._bounds[key]
