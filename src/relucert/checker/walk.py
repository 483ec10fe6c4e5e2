"""The walk over a proof's trees: its leaves cover the region, and in each of them a row stays positive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from flint import arb, ctx

from relucert.checker.ball_arithmetic import Bounder, Bounds
from relucert.checker.document import Cut, Leaf, Rejected, Split
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
    """What is known on the way to a node: signs by value and neuron, and the ends of coordinates that were cut."""

    signs: dict[tuple[int, int], int]
    low: dict[int, Fraction]
    high: dict[int, Fraction]


@dataclass(frozen=True)
class Walk:
    """Visits the nodes from the roots, one for each form, and every leaf's region with the signs on the way to it.

    forms, offsets: what stays positive: forms on the network's outputs, plus offsets.
    bounder_of: makes the bounds of a leaf's region, given its place and the leaf.
    box: the ends of the region, where it is a box that may be cut.
    """

    network: Network
    nodes: Sequence[Split | Cut | Leaf]
    forms: Sequence[Row]
    offsets: Sequence[arb]
    bounder_of: Callable[[int, Leaf], Bounder]
    progress: Callable[[int, int], None] | None = None
    box: tuple[Sequence[Fraction], Sequence[Fraction]] | None = None

    def run(self) -> int:
        """How many leaves there are; all of them hold, and nothing is left over."""
        if len(self.nodes) < len(self.forms):
            raise Rejected("a row without a tree")
        waiting = [(place, place, _Path({}, {}, {})) for place in range(len(self.forms))]
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
            paths = self._cut(place, node, path) if isinstance(node, Cut) else self._split(place, node, path)
            waiting += [(half, row, taken) for half, taken in zip(node.halves, paths, strict=True)]
        if len(seen) != len(self.nodes):
            raise Rejected("some nodes belong to no tree")
        return leaves

    def _split(self, place: int, node: Split, path: _Path) -> list[_Path]:
        if node.value not in self.network.rectified or not 0 <= node.neuron < self.network.sizes[node.value]:
            raise Rejected(f"node {place} is split by a neuron that the network does not have")
        return [path._replace(signs={**path.signs, (node.value, node.neuron): sign}) for sign in (1, -1)]

    def _cut(self, place: int, node: Cut, path: _Path) -> list[_Path]:
        if self.box is None or not 0 <= node.coordinate < len(self.box[0]):
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

    def _check_halves(self, place: int, node: Split | Cut, seen: set[int]) -> None:
        first, second = node.halves
        inside = all(0 <= half < len(self.nodes) for half in node.halves)
        if first == second or seen & {first, second} or not inside:
            raise Rejected(f"node {place} has no two halves of its own")

    def _check_leaf(self, place: int, leaf: Leaf, row: int, path: _Path) -> None:
        bounder = self.bounder_of(place, leaf)
        if path.low or leaf.adaptive:
            bounder = bounder.within(path.low, path.high)
        bounds = bounder.enclose(path.signs, leaf.adaptive)
        if bounds is None:
            return  # no point has these signs
        if leaf.empty:
            raise Rejected(f"leaf {place} is not empty")
        if not self._least(place, bounder, bounds, row, leaf) > 0:
            raise Rejected(f"leaf {place} does not prove that its row is positive")

    def _least(self, place: int, bounder: Bounder, bounds: Bounds, row: int, leaf: Leaf) -> arb:
        relus = {
            (value, self.network.sizes[value]) for value, node in self.network.steps() if node.operation.name == "relu"
        }
        for table in (leaf.slopes, leaf.multipliers):
            if not {(value, len(numbers)) for value, numbers in table.items()} <= relus:
                raise Rejected(f"leaf {place} has slopes or multipliers of ReLUs that the network does not have")
        (least,) = bounder.lower([self.forms[row]], self.network.output, bounds, leaf.slopes, leaf.multipliers)
        return least + self.offsets[row]
