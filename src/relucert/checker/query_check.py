"""The check of a proof that a property holds, without any of the code that found it.

The property's text is read anew. Each of its cases must be in one of the proof's boxes ("parts" in the file); the trees
of a box must prove, in integers, that at every input of it one of the inequalities of each of its cases fails. The
largest excess over the inequalities of a case is one more output of the network, by `max(p, q) = p + relu(q - p)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import torch

from relucert.checker.document import BoxProof, Inequality, QueryProof
from relucert.checker.entries import Rejected, require
from relucert.checker.fixed_layers import FixedLayer, FixedLinear, fixed_layers
from relucert.checker.fixed_point import rounded
from relucert.checker.fixed_region import FixedRegion
from relucert.checker.relaxation import FixedRelaxation
from relucert.checker.specification import MOST_CASES, CheckedCase, read_cases
from relucert.checker.tree_check import TreeCheck, check_rows
from relucert.checker.trees import RelaxationEntry
from relucert.checker.walk import Walk
from relucert.network import Add, IndexMap, Layer, Linear, Network, Node, Relu, Reshape

NEVER_MISSED = Inequality((), (), Fraction(0))


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
        return Walk(relaxation, proof.proof, box, progress).run()
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
