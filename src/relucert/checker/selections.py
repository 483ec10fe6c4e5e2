"""Whether nodes that are marked as exact only select numbers, for the check of proofs about floating point.

Every coordinate of a value is a linear combination of atoms: numbers that an evaluation has. What it computes, with
roundings, are new atoms; constants are atoms, too. Exact nodes combine atoms, and a ReLU of a combination is an atom
that no evaluation has, until `b + relu(c)`, which is the larger of `b` and `b + c`, selects one of two numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import torch
from torch.nn import functional

from relucert.checker.entries import Rejected, require
from relucert.network import Network, Node

Combination = dict[int, Fraction]
Shape = tuple[int, ...]
KEEPS_ZEROS = ("scale", "batch scale", "add")


def check_exact(network: Network) -> None:
    """Refuses a network with exact nodes that do not only select numbers."""
    if any(node.exact for node in network.nodes):
        _Selections(network).run()


class _Selections:
    """The coordinates of values as combinations, as far as exact nodes are concerned."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.values: dict[int, list[Combination]] = {}
        self.count = 0
        self.constants: dict[Fraction, int] = {}
        self.rectified: dict[int, Combination] = {}  # by atoms that are ReLUs
        self.unknown: set[int] = set()  # atoms that no evaluation has
        self.zero_beside: dict[int, int] = {}  # an atom that is zero wherever another one is not

    def run(self) -> None:
        concerned = {0: False}
        for value, node in self.network.steps():
            passes = node.operation.name == "relu" or _only_moves(node)
            concerned[value] = node.exact or (passes and any(concerned[source] for source in node.inputs))
            if concerned[value]:
                self.coordinates(value)
            elif not passes:
                for source in node.inputs:
                    self._require_numbers(value, source, concerned[source])
        self._require_numbers(self.network.output, self.network.output, concerned[self.network.output])

    def _require_numbers(self, value: int, source: int, concerned: bool) -> None:
        if concerned and not all(map(self._is_number, self.coordinates(source))):
            raise Rejected(f"the network's node {value} takes what exact nodes do not select")

    def coordinates(self, value: int) -> list[Combination]:
        if value not in self.values:
            self.values[value] = list(self._make(value))
        return self.values[value]

    def _make(self, value: int) -> Iterator[Combination]:
        node = self.network.node(value) if value else None
        if node is not None and node.operation.name == "relu":
            yield from map(self._relu, self.coordinates(node.inputs[0]))
        elif node is None or not (node.exact or _only_moves(node)):
            for coordinate in range(self.network.sizes[value]):
                yield {self._computed(node, coordinate): Fraction(1)}
        else:
            for combined in self._combined(value, node):
                yield self._selected(combined) if node.exact else combined

    def _atom(self) -> int:
        self.count += 1
        return self.count

    def _computed(self, node: Node | None, coordinate: int) -> int:
        """A new atom for a coordinate that a layer computes: a product of zero is zero, and so is a sum of zeros."""
        atom = self._atom()
        if node is not None and node.operation.name in KEEPS_ZEROS:
            sources = [self.coordinates(source)[coordinate] for source in node.inputs]
            rivals = {self.zero_beside.get(next(iter(terms)), 0) if len(terms) == 1 else 0 for terms in sources}
            if len(rivals) == 1 and rivals != {0}:
                self.zero_beside[atom] = rivals.pop()
        return atom

    def _is_number(self, combined: Combination) -> bool:
        """Whether it is zero, or an atom that an evaluation has, or that negated."""
        return len(combined) <= 1 and all(
            abs(times) == 1 and atom not in self.unknown for atom, times in combined.items()
        )

    def _relu(self, combined: Combination) -> Combination:
        if not combined:
            return {}
        terms = [{atom: times} for atom, times in combined.items()]
        if len(terms) > 2 or not all(map(self._is_number, terms)):
            raise Rejected("the network rectifies what its exact nodes do not select")
        atom = self._atom()
        self.rectified[atom] = combined
        if len(terms) == 2:
            self.unknown.add(atom)
        return {atom: Fraction(1)}

    def _combined(self, value: int, node: Node) -> Iterator[Combination]:
        """The value of an affine operation, coordinate by coordinate, exactly."""
        tensors, after = node.operation.tensors(), self.network.shapes[value]
        before = self.network.shapes[node.inputs[0]]
        sources = [self.coordinates(source) for source in node.inputs]
        constant = tensors.get("offset", tensors.get("bias", torch.zeros(())))
        if node.operation.name == "convolution":
            constant = constant[:, None, None]
        numbers = torch.broadcast_to(constant, after).flatten().tolist()
        for coordinate, picked in enumerate(_picked(node, before, after)):
            total: Combination = {}
            for source in sources:
                for where, times in picked:
                    _add(total, source[where], times)
            if number := Fraction(numbers[coordinate]):
                atom = self.constants.setdefault(abs(number), 0) or self._atom()
                self.constants[abs(number)] = atom
                _add(total, {atom: Fraction(1 if number > 0 else -1)}, Fraction(1))
            yield total

    def _selected(self, combined: Combination) -> Combination:
        """The number that a combination is, as an atom of its own, or the combination."""
        if self._is_number(combined):
            return combined
        for atom, times in combined.items():
            remainder = {summand: share for summand, share in combined.items() if summand != atom}
            inner = self.rectified.get(atom)
            if inner is not None and abs(times) == 1:
                moved = dict(remainder)
                _add(moved, inner, times)
                if self._is_number(remainder) and self._is_number(moved):
                    selected = self._atom()
                    if not moved:
                        self.zero_beside[selected] = atom
                    return {selected: Fraction(1)}
            if inner is not None and times == 2 and self._is_number(inner):
                remaining = dict(remainder)
                _add(remaining, inner, Fraction(1))
                if not remaining:  # 2 relu(x) - x
                    return {self._atom(): Fraction(1)}
            single = self._is_number(remainder) and len(remainder) == 1
            if single and self._is_number({atom: times}) and self.zero_beside.get(next(iter(remainder))) == atom:
                return {self._atom(): Fraction(1)}
        return combined


def _add(total: Combination, combination: Combination, times: Fraction) -> None:
    for atom, share in combination.items():
        total[atom] = total.get(atom, Fraction(0)) + times * share
        if not total[atom]:
            del total[atom]


def _only_moves(node: Node) -> bool:
    """Whether every coordinate is one of the input's, or that negated, or zero."""
    tensors, name = node.operation.tensors(), node.operation.name
    if name in ("reshape", "index map"):
        return True
    if name == "scale":
        return bool(((tensors["factor"].abs() == 1) | (tensors["factor"] == 0)).all())
    if name == "shift":
        return not bool(tensors["offset"].any())
    if name != "convolution" or bool(tensors["bias"].any()):
        return False
    kernels = tensors["weight"].flatten(1).abs()
    return bool(((kernels == 0) | (kernels == 1)).all() and (kernels.sum(1) <= 1).all())


Picked = list[tuple[int, Fraction]]


def _picked(node: Node, before: Shape, after: Shape) -> Iterator[Picked]:
    """For every coordinate of an affine operation's value, the coordinates of each input that it adds up."""
    require(node.operation.name in _PICKED, f"an exact {node.operation.name} selects no numbers")
    return _PICKED[node.operation.name](node, before, after)


def _identity(node: Node, before: Shape, after: Shape) -> Iterator[Picked]:
    return ([(coordinate, Fraction(1))] for coordinate in range(math.prod(after)))


def _index_map(node: Node, before: Shape, after: Shape) -> Iterator[Picked]:
    size = math.prod(before)
    return ([(index, Fraction(1))] if index < size else [] for index in node.operation.settings()["indices"])


def _scale(node: Node, before: Shape, after: Shape) -> Iterator[Picked]:
    factors = torch.broadcast_to(node.operation.tensors()["factor"], after).flatten().tolist()
    for coordinate, factor in enumerate(map(Fraction, factors)):
        yield [(coordinate, 1 / factor if node.operation.settings()["divide"] else factor)]


def _convolution(node: Node, before: Shape, after: Shape) -> Iterator[Picked]:
    weight, settings = node.operation.tensors()["weight"].double(), node.operation.settings()
    top, left, bottom, right = settings["padding"]
    indices = torch.arange(1.0, math.prod(before) + 1, dtype=torch.float64).reshape(1, *before)
    padded = functional.pad(indices, (left, right, top, bottom))
    size = (weight.shape[2], weight.shape[3])
    columns = functional.unfold(padded, size, dilation=settings["dilation"], stride=settings["stride"])[0]
    taps, per_group = weight[0].numel(), len(weight) // settings["groups"]
    for channel, kernel in enumerate(weight.flatten(1)):
        begin = channel // per_group * taps
        nonzero = kernel.nonzero().flatten().tolist()
        shares = [Fraction(kernel[tap].item()) for tap in nonzero]
        for sources in columns[[begin + tap for tap in nonzero]].long().T.tolist():
            yield [(source - 1, share) for source, share in zip(sources, shares, strict=True) if source]


_PICKED: dict[str, Callable[[Node, Shape, Shape], Iterator[Picked]]] = {
    "reshape": _identity, "add": _identity, "shift": _identity,
    "index map": _index_map, "scale": _scale, "convolution": _convolution,
}  # fmt: skip
