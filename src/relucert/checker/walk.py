"""The walk over a proof's trees: its leaves cover the region, and in each of them a row stays positive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from flint import arb, ctx

from relucert.checker.ball_arithmetic import Bounder, Bounds
from relucert.checker.document import Cut, Leaf, Rejected
from relucert.checker.layers import Row
from relucert.network import Network

BITS = 80  # of the midpoints of balls


@contextmanager
def precision() -> Iterator[None]:
    """Within, balls have as many bits as a check takes."""
    before = ctx.prec
    ctx.prec = BITS
    try:
        yield
    finally:
        ctx.prec = before


class _Path(NamedTuple):
    """What is known on the way to a node: the ends of coordinates that were cut."""

    low: dict[int, Fraction]
    high: dict[int, Fraction]


@dataclass(frozen=True)
class Walk:
    """Visits the nodes from the roots, one for each form, and every leaf's box.

    forms: what stays positive, on the network's outputs.
    bounder: the bounds in the whole box.
    box: its ends.
    """

    network: Network
    nodes: Sequence[Cut | Leaf]
    forms: Sequence[Row]
    bounder: Bounder
    box: tuple[Sequence[Fraction], Sequence[Fraction]]
    progress: Callable[[int, int], None] | None = None

    def run(self) -> int:
        """How many leaves there are; all of them hold, and nothing is left over."""
        if len(self.nodes) < len(self.forms):
            raise Rejected("a row without a tree")
        waiting = [(place, place, _Path({}, {})) for place in range(len(self.forms))]
        seen, leaves = set(range(len(waiting))), 0
        while waiting:
            place, row, path = waiting.pop()
            node = self.nodes[place]
            if isinstance(node, Leaf):
                self._check_leaf(place, node, row, path)
                leaves += 1
                if self.progress is not None:
                    self.progress(leaves, (len(self.nodes) + len(self.forms)) // 2)
                continue
            self._check_halves(place, node, seen)
            seen.update(node.halves)
            paths = self._cut(place, node, path)
            waiting += [(half, row, taken) for half, taken in zip(node.halves, paths, strict=True)]
        if len(seen) != len(self.nodes):
            raise Rejected("some nodes belong to no tree")
        return leaves

    def _cut(self, place: int, node: Cut, path: _Path) -> list[_Path]:
        if not 0 <= node.coordinate < len(self.box[0]):
            raise Rejected(f"node {place} is cut at an input that can't be cut")
        low = path.low.get(node.coordinate, self.box[0][node.coordinate])
        high = path.high.get(node.coordinate, self.box[1][node.coordinate])
        at = Fraction(node.at)
        if not low <= at <= high:
            raise Rejected(f"node {place} is cut outside its box")
        ends = ((low, at), (at, high))
        return [
            path._replace(low={**path.low, node.coordinate: one}, high={**path.high, node.coordinate: other})
            for one, other in ends
        ]

    def _check_halves(self, place: int, node: Cut, seen: set[int]) -> None:
        first, second = node.halves
        inside = all(0 <= half < len(self.nodes) for half in node.halves)
        if first == second or seen & {first, second} or not inside:
            raise Rejected(f"node {place} has no two halves of its own")

    def _check_leaf(self, place: int, leaf: Leaf, row: int, path: _Path) -> None:
        bounder = self.bounder.within(path.low, path.high)
        if not self._least(place, bounder, bounder.enclose(), row, leaf) > 0:
            raise Rejected(f"leaf {place} does not prove that its row is positive")

    def _least(self, place: int, bounder: Bounder, bounds: Bounds, row: int, leaf: Leaf) -> arb:
        relus = {
            (value, self.network.sizes[value]) for value, node in self.network.steps() if node.operation.name == "relu"
        }
        if not {(value, len(numbers)) for value, numbers in leaf.slopes.items()} <= relus:
            raise Rejected(f"leaf {place} has slopes of ReLUs that the network does not have")
        (least,) = bounder.lower([self.forms[row]], self.network.output, bounds, leaf.slopes)
        return least
