"""The check that nodes marked as exact only select numbers: then floating point rounds nothing there.

Every coordinate of a value is read as a sum of signed atoms: numbers that an evaluation has, such as what a layer
computes, and constants. An exact node may add two of them, as in `p - q`, but no evaluation has such a sum, nor its
ReLU: only what `q + relu(p - q) = max(p, q)` and the like make of them is a number again. Whatever else takes a value
must find numbers in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.errors import NetworkError
from relucert.network import Add, Affine, BatchScale, Convolution, Network, Node, Operation, Relu, Scale, Shift


def check_selections(network: Network) -> None:
    """Raises NetworkError where nodes are marked as exact that do not only select numbers."""
    if any(node.exact for node in network.nodes):
        _Reader(network).check()


class _Reading(NamedTuple):
    """A value: at every coordinate the sum of two atoms, or twice the first.

    Atoms are told by their numbers, negative where the atom is negated; 0 is zero.
    """

    first: Tensor
    second: Tensor
    doubled: bool = False


class _Atoms:
    """The properties of every atom, by its number.

    left, right: it is the ReLU of the sum of these two atoms; zeros for one that is no ReLU.
    rival: an atom next to which it is zero, wherever that is not zero; 0 for none.
    """

    def __init__(self) -> None:
        self.left, self.right, self.rival = (torch.zeros(1, dtype=torch.long) for _ in range(3))
        self._constants: dict[float, int] = {}

    def fresh(self, where: Tensor, terms: tuple[Tensor, Tensor] | None = None, rival: Tensor | None = None) -> Tensor:
        """New atoms at these coordinates of a value, zero elsewhere; terms: the atoms whose sum's ReLU they are."""
        begin, count = len(self.left), int(where.sum())
        nothing = torch.zeros(count, dtype=torch.long)
        left, right = (nothing, nothing) if terms is None else (terms[0][where], terms[1][where])
        self.left, self.right = torch.cat([self.left, left]), torch.cat([self.right, right])
        self.rival = torch.cat([self.rival, nothing if rival is None else rival[where]])
        return torch.zeros(where.shape, dtype=torch.long).masked_scatter(where, torch.arange(begin, begin + count))

    def constants(self, numbers: Tensor) -> Tensor:
        """The atoms of stored numbers."""
        sizes, positions = numbers.double().abs().unique(return_inverse=True)
        for size in sizes.tolist():
            if size and size not in self._constants:
                self._constants[size] = int(self.fresh(torch.ones(1, dtype=torch.bool)))
        atoms = torch.tensor([self._constants.get(size, 0) for size in sizes.tolist()])
        return atoms[positions] * numbers.sign().long()

    def is_number(self, atoms: Tensor) -> Tensor:
        """Whether atoms are numbers that an evaluation computes exactly: the ReLU of a difference is not."""
        index = atoms.abs()
        return (self.left[index] == 0) | (self.right[index] == 0)


class _Reader:
    """Reads the values of a network that exact nodes depend on."""

    def __init__(self, network: Network) -> None:
        self.network, self.atoms = network, _Atoms()
        self._readings: dict[int, _Reading] = {}

    def check(self) -> None:
        network = self.network
        open_values = {0: False}  # whether a value may be none that an evaluation has
        for value, node in network.steps():
            moves = isinstance(node.operation, Relu) or _moves(node)
            open_values[value] = node.exact or (moves and any(open_values[source] for source in node.inputs))
            if open_values[value]:
                self.read(value)
            elif not moves and not all(self._has_numbers(source) for source in node.inputs if open_values[source]):
                raise _refused(value, node)
        if open_values[network.output] and not self._has_numbers(network.output):
            raise _refused(network.output, network.nodes[-1])

    def _has_numbers(self, value: int) -> bool:
        reading = self.read(value)
        single = not reading.doubled and not bool(reading.second.any())
        return single and bool(self.atoms.is_number(reading.first).all())

    def read(self, value: int) -> _Reading:
        if value not in self._readings:
            self._readings[value] = self._read(value)
        return self._readings[value]

    def _read(self, value: int) -> _Reading:
        shape = self.network.shapes[value]
        node = self.network.node(value) if value else None
        everywhere = torch.ones(shape, dtype=torch.bool)
        if node is None or (not node.exact and not isinstance(node.operation, Relu) and not _moves(node)):
            return _single(self.atoms.fresh(everywhere, rival=None if node is None else self._rivals(node)))
        sources = [self.read(source) for source in node.inputs]
        if isinstance(node.operation, Relu):
            return self._rectified(value, node, sources[0])
        if _moves(node):
            (first, second, doubled) = sources[0]
            return _Reading(_mapped(node.operation, first), _mapped(node.operation, second), doubled)
        return self._selected(value, node, sources)

    def _rivals(self, node: Node) -> Tensor | None:
        """The rivals of products and of sums of products: a product is zero where its factor is."""
        if not isinstance(node.operation, Scale | BatchScale | Add):
            return None
        sources = [self.read(source).first.abs() for source in node.inputs]
        rivals = [self.atoms.rival[source] for source in sources]
        return torch.where(rivals[0] == rivals[-1], rivals[0], 0)

    def _rectified(self, value: int, node: Node, source: _Reading) -> _Reading:
        if source.doubled or not all(bool(self.atoms.is_number(atoms).all()) for atoms in source[:2]):
            raise _refused(value, node)
        present = (source.first != 0) | (source.second != 0)
        return _single(self.atoms.fresh(present, (source.first, source.second)))

    def _selected(self, value: int, node: Node, sources: Sequence[_Reading]) -> _Reading:
        """The atoms after an exact operation that adds or doubles its operands."""
        operation, (first, second, doubled) = node.operation, sources[0]
        if isinstance(operation, Add) and any(source.doubled for source in sources):
            return self._absolute(value, node, sources)
        if doubled:
            raise _refused(value, node)
        if isinstance(operation, Add):
            return self._sum(value, node, [first, second, *sources[1][:2]])
        if isinstance(operation, Shift):
            offsets = self.atoms.constants(operation.offset.expand(first.shape))
            return self._sum(value, node, [first, second, offsets])
        if isinstance(operation, Convolution) and not bool(second.any()) and _is_difference(operation):
            kernels = operation.weight.clamp(min=0), operation.weight.clamp(max=0)
            signed = [_mapped(replace(operation, weight=weight), first) for weight in kernels]
            bias = operation.bias[:, None, None].expand(self.network.shapes[value])
            return self._sum(value, node, [*signed, self.atoms.constants(bias)])
        doubles = isinstance(operation, Scale) and not operation.divide and bool((operation.factor == 2).all())
        if doubles and not bool(second.any()):
            return _Reading(first, second, doubled=True)
        raise _refused(value, node)

    def _absolute(self, value: int, node: Node, sources: Sequence[_Reading]) -> _Reading:
        """The atoms of an absolute value, `2 relu(x) - x`."""
        twice, negated = sources if sources[0].doubled else sources[::-1]
        left, right = self.atoms.left[twice.first.abs()], self.atoms.right[twice.first.abs()]
        rectified = (twice.first == 0) | ((twice.first > 0) & (left != 0) & (right == 0))
        right_form = rectified & (negated.first == -left) & (negated.second == 0)
        if negated.doubled or not bool(right_form.all()):
            raise _refused(value, node)
        return _single(self.atoms.fresh(twice.first != 0))

    def _sum(self, value: int, node: Node, terms: Sequence[Tensor]) -> _Reading:
        stacked = torch.stack(tuple(terms))
        order = (stacked == 0).long().argsort(dim=0, stable=True)  # zeros last
        first, second, *further = stacked.gather(0, order)
        if any(bool(term.any()) for term in further):
            raise _refused(value, node)
        for term, partner in ((first, second), (second, first)):
            index = partner.abs()
            left, right, sign = self.atoms.left[index], self.atoms.right[index], partner.sign()
            written = (left != 0) & (term != 0) & ((term == -sign * left) | (term == -sign * right))
            half = written & (right == 0)  # x - relu(x), or relu(x) - x, which is zero where relu(x) is not
            apart = (partner != 0) & (term != 0) & (self.atoms.rival[term.abs()] == index)  # one of both is zero
            numbers = self.atoms.fresh(written | apart, rival=torch.where(half, index, 0))
            first, second = torch.where(written | apart, numbers, first), torch.where(written | apart, 0, second)
        return _Reading(first, second)


def _single(atoms: Tensor) -> _Reading:
    return _Reading(atoms, torch.zeros_like(atoms))


def _moves(node: Node) -> bool:
    """Whether an affine operation only moves numbers, and changes signs."""
    return isinstance(node.operation, Affine) and node.operation.roundings == 0


def _mapped(operation: Operation, atoms: Tensor) -> Tensor:
    """The atoms after an operation that moves numbers, negated where it changes signs."""
    assert isinstance(operation, Affine)
    return operation.cast(torch.float64).linear(atoms.double()[None])[0].round().long()


def _is_difference(operation: Convolution) -> bool:
    """Whether every kernel has one weight of 1 and one of -1, at most, and no others."""
    kernels = operation.weight.flatten(1)
    single = all(bool((kernels == weight).sum(1).le(1).all()) for weight in (1, -1))
    return single and bool(((kernels == 0) | (kernels.abs() == 1)).all())


def _refused(value: int, node: Node) -> NetworkError:
    return NetworkError(
        f"node {value} ({node.operation.name}) rounds, or takes what would be rounded: "
        "exact nodes have to select numbers, as a maximum does"
    )
