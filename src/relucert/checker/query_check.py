"""The check of a proof that a property holds, without any of the code that found it.

The property's text is read anew. Each of its cases must be in one of the proof's boxes ("parts" in the file); the trees
of a box must prove, in integers, that at every input of it one of the inequalities of each of its cases fails. The
largest excess over the inequalities of a case is one more output of the network, by `max(p, q) = p + relu(q - p)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod

import torch

from relucert.checker.document import BoxProof, CutNode, Inequality, LeafNode, QueryProof
from relucert.checker.entries import Rejected, require
from relucert.checker.fixed_layers import FixedLayer, FixedLinear, fixed_layers
from relucert.checker.fixed_point import rounded
from relucert.checker.fixed_region import FixedRegion
from relucert.checker.lines import SLOPE_BITS, ChosenLines, IntegerInterval
from relucert.checker.relaxation import FixedRelaxation
from relucert.checker.rules import rule_bounds
from relucert.checker.specification import MOST_CASES, CheckedCase, read_cases
from relucert.checker.tree_check import TreeCheck, check_rows
from relucert.checker.trees import BoundingRule, RelaxationEntry
from relucert.network import Add, IndexMap, Layer, Linear, Network, Node, Relu, Reshape

NEVER_MISSED = Inequality((), (), Fraction(0))
KEPT = 2**12  # boxes whose bounds are remembered for other rows


@dataclass(frozen=True)
class QueryClaim:
    """Result of the check of a proof: a property of a network, by the SHA-256 of its text."""

    network: str
    sha256: str
    property: str
    cases: int
    nodes: int
    leaves: int

    def __str__(self) -> str:
        return f"the property of SHA-256 {self.property} holds: none of its {self.cases} cases of a violation is met"


def check_query(proof: QueryProof, network: Network, progress: Callable[[int, int], None] | None = None) -> QueryClaim:
    """What a proof about a property proves; raises `Rejected` where it does not."""
    try:
        cases = read_cases(proof.text, network.sizes[0], network.classes)
    except RecursionError:
        raise Rejected("the formulas of its property are nested too deep") from None
    require(sum(len(box.cases) for box in proof.boxes) <= MOST_CASES, f"its parts have more than {MOST_CASES} cases")
    proven = set()
    leaves = 0
    for box in proof.boxes:
        covered = {CheckedCase(box.low, box.high, frozenset(case)) for case in box.cases}
        require(covered <= cases, "a part is about a case that its property does not have")
        leaves += _check_box(box, network, progress)
        proven |= covered
    if missing := len(cases - proven):
        raise Rejected(f"{missing} of {len(cases)} cases of a violation are in none of its parts")
    nodes = sum(_nodes(box) for box in proof.boxes)
    return QueryClaim(network.name, proof.sha256, proof.text_sha256, len(cases), nodes, leaves)


def _nodes(box: BoxProof) -> int:
    return box.proof.nodes if isinstance(box.proof, RelaxationEntry) else len(box.proof)


def _check_box(proof: BoxProof, network: Network, progress: Callable[[int, int], None] | None) -> int:
    """Checks the proof of one box and returns the number of its leaves; raises Rejected unless all of them hold."""
    extended = _Extended(network, [case or (NEVER_MISSED,) for case in proof.cases])
    count = len(proof.cases)
    box = proof.low, proof.high
    relaxation = FixedRelaxation(extended.network, extended.fixed, FixedRegion.between(*box))
    if not isinstance(proof.proof, RelaxationEntry):
        return _Walk(relaxation, proof.proof, box, progress).run()
    rows = torch.eye(count, dtype=torch.float64)
    check_rows(TreeCheck(relaxation, proof.proof, rows, [Fraction(0)] * count, progress=progress).margins())
    return count if proof.proof.rows is None else len(proof.proof.rows.scales)


Rows = list[list[tuple[int, Fraction]]]


class _Extended:
    """A network with the largest excess over the inequalities of every case as its outputs.

    exact: by value the layers whose exact numbers the network can't hold, only rounded ones.
    """

    def __init__(self, network: Network, cases: Sequence[Sequence[Inequality]]) -> None:
        self.nodes = list(network.nodes)
        self.exact: dict[int, FixedLayer] = {}
        inequalities = [inequality for case in cases for inequality in case]
        scales = [_scale(inequality) for inequality in inequalities]
        rows = [_terms(constraint.outputs, scale) for constraint, scale in zip(inequalities, scales, strict=True)]
        bounds = [-scale * constraint.bound for constraint, scale in zip(inequalities, scales, strict=True)]
        value = self._excess(network.output, rows, network.classes, bounds)
        if any(constraint.inputs for constraint in inequalities):
            shape, source = network.input_shape, 0
            if len(shape) > 1:
                source = self._append(Reshape(shape, (prod(shape),)), 0)
            rows = [_terms(constraint.inputs, scale) for constraint, scale in zip(inequalities, scales, strict=True)]
            value = self._append(Add(), value, self._excess(source, rows, prod(shape)))
        groups = [len(case) for case in cases]
        while max(groups) > 1:
            value = self._halve(value, groups)
            groups = [-(-size // 2) for size in groups]
        self.network = Network(network.input_shape, tuple(self.nodes), network.name)

    @property
    def fixed(self) -> dict[int, FixedLayer]:
        """The fixed-point forms of all layers."""
        return {**fixed_layers(self.network), **self.exact}

    def _append(self, operation: Layer, *inputs: int) -> int:
        self.nodes.append(Node(operation, inputs))
        return len(self.nodes)

    def _excess(self, source: int, rows: Rows, size: int, constants: Sequence[Fraction] | None = None) -> int:
        """Forms on a value of a size, by the terms of every row; what the network stores of them is never used."""
        numbers = [Fraction(0)] * (len(rows) * size)
        for row, terms in enumerate(rows):
            for index, number in terms:
                numbers[row * size + index] += number
        nothing = torch.zeros(len(rows), size, dtype=torch.float64)
        value = self._append(Linear(nothing, nothing.new_zeros(len(rows))), source)
        bias = None if constants is None else rounded(constants)
        self.exact[value] = FixedLinear(bias, rounded(numbers).reshaped(len(rows), size))
        return value

    def _halve(self, value: int, groups: Sequence[int]) -> int:
        """The larger of every two neighbours in a group."""
        differences: Rows = []
        first, larger = [], []
        begin, size = 0, sum(groups)
        for group in groups:
            for row in range(begin, begin + group, 2):
                paired = row + 1 < begin + group
                first.append(row)
                larger.append(len(differences) if paired else -1)
                if paired:
                    differences.append([(row, Fraction(-1)), (row + 1, Fraction(1))])
            begin += group
        rise = self._append(Relu(), self._excess(value, differences, size))
        kept = self._append(IndexMap.of(torch.tensor(first), (size,)), value)
        raised = self._append(IndexMap.of(torch.tensor(larger), (len(differences),)), rise)
        return self._append(Add(), kept, raised)


def _scale(inequality: Inequality) -> Fraction:
    """A positive number that changes no sign, and makes the numbers those that the search had."""
    longest = max((abs(number).bit_length() for _, number in inequality.inputs + inequality.outputs), default=1)
    return Fraction(1, 2 ** (longest - 1))


def _terms(numbers: tuple[tuple[int, int], ...], scale: Fraction) -> list[tuple[int, Fraction]]:
    return [(index, scale * number) for index, number in numbers]


Cuts = dict[int, tuple[Fraction, Fraction]]
"""The new ends of the coordinates that were cut on the way to a node."""


@dataclass(eq=False)
class _Walk:
    """The walk over trees of cuts at inputs, one for each of the network's outputs: their leaves cover the box, and in
    each of them the output stays positive.

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
            relaxation = replace(self.relaxation, region=FixedRegion.between(low, high))
            if len(self._bounds) >= KEPT:
                self._bounds.pop(next(iter(self._bounds)))
            self._bounds[key] = relaxation, rule_bounds(relaxation, BoundingRule("crown", "all"), "real")
        return self._bounds[key]
