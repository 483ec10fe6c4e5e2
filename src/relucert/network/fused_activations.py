"""Affine operations and ReLUs that make up one activation, as in a leaky ReLU or a clip, become that activation.

Imports write every activation of straight pieces with ReLUs: a leaky ReLU is `relu(x) + slope (x - relu(x))`, a clip is
two ReLUs in a row. Methods for ReLU, evaluations in floating point and proofs are about these operations. Bounds of
the whole are tighter and faster: there are fewer neurons to bound, and intervals keep in mind that both terms of a sum
depend on one number. Pieces are computed in rational arithmetic, and a group stays as it is where float64 does not
represent them, so both networks are one function of real numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import torch
from torch import Tensor

from relucert.network.activation import Activation
from relucert.network.add import Add
from relucert.network.graph import Network, Node, needed_nodes
from relucert.network.piecewise_linear import PiecewiseLinear
from relucert.network.relu import Relu
from relucert.network.scale import Scale
from relucert.network.shift import Shift

MOST_BREAKS = 3  # of a function: the lines through any two corners are compared
MOST_FUNCTIONS = 1024  # of one group that are read, each by itself

Line = tuple[Fraction, Fraction]
"""Slope and value at zero."""


@dataclass(frozen=True)
class Pieces:
    """A continuous function of one number: `lines[i]` between `breaks[i - 1]` and `breaks[i]`."""

    breaks: tuple[Fraction, ...]
    lines: tuple[Line, ...]

    @classmethod
    def joined(cls, ends: Sequence[Fraction], lines: Sequence[Line]) -> Pieces:
        """Without breaks between two pieces of one line."""
        bends = [index for index, (before, after) in enumerate(pairwise(lines)) if before != after]
        return cls(tuple(ends[index] for index in bends), (lines[0], *(lines[index + 1] for index in bends)))

    def scaled(self, factor: Fraction) -> Pieces:
        return Pieces.joined(self.breaks, [(slope * factor, height * factor) for slope, height in self.lines])

    def shifted(self, offset: Fraction) -> Pieces:
        return Pieces(self.breaks, tuple((slope, height + offset) for slope, height in self.lines))

    def plus(self, other: Pieces) -> Pieces:
        ends = sorted({*self.breaks, *other.breaks})
        terms = zip(self._between(ends), other._between(ends), strict=True)
        return Pieces.joined(ends, [(first[0] + second[0], first[1] + second[1]) for first, second in terms])

    def rectified(self) -> Pieces:
        zeros = {-height / slope for slope, height in self.lines if slope}
        ends = sorted({*self.breaks, *zeros})
        lines = self._between(ends)
        positive = [slope * z + height > 0 for (slope, height), z in zip(lines, _inner_points(ends), strict=True)]
        flat = Fraction(0), Fraction(0)
        return Pieces.joined(ends, [line if above else flat for line, above in zip(lines, positive, strict=True)])

    def numbers(self, breaks: int) -> list[Fraction]:
        """So many breaks, then the slopes of the lines, then their values at zero; the last line is repeated."""
        more = breaks - len(self.breaks)
        ends = self.breaks + (self.breaks[-1:] or (Fraction(0),)) * more
        lines = self.lines + self.lines[-1:] * more
        return [*ends, *(slope for slope, _ in lines), *(height for _, height in lines)]

    def _between(self, ends: Sequence[Fraction]) -> list[Line]:
        """The lines between numbers, all breaks among them."""
        return [self.lines[sum(end < point for end in self.breaks)] for point in _inner_points(ends)]


IDENTITY = Pieces((), ((Fraction(1), Fraction(0)),))


def _inner_points(ends: Sequence[Fraction]) -> list[Fraction]:
    """One number before, between any two neighbours, and after the ends."""
    if not ends:
        return [Fraction(0)]
    return [ends[0] - 1, *((before + after) / 2 for before, after in pairwise(ends)), ends[-1] + 1]


def fuse_activations(network: Network) -> Network:
    """The same function of real numbers with every such group as one activation."""
    fused: dict[int, Node] = {}
    for value in range(network.output, 0, -1):
        for group in reversed(list(_groups(network, value))):
            activation = group.activation(network)
            if activation is not None:
                fused[value] = Node(activation, (group.root,))
                break
    if not fused:
        return network
    nodes = [fused.get(value, node) for value, node in network.steps()]
    return replace(network, nodes=tuple(needed_nodes(nodes, network.output)))


@dataclass(frozen=True)
class _Group:
    """Operations that act coordinate by coordinate, by their values in order: functions of one value, the root."""

    root: int
    values: tuple[int, ...]

    def activation(self, network: Network) -> Activation | None:
        """What the last value is as a function of the root; None where nothing is gained or it is not representable."""
        kinds = Counter(type(network.node(value).operation) for value in self.values)
        if kinds[Relu] + kinds[Add] < 2 or not kinds[Relu]:
            return None
        stored = [constant for value in self.values if (constant := _constant(network, value)) is not None]
        constants = torch.broadcast_tensors(*stored) if stored else [torch.zeros(1, dtype=torch.float64)]
        columns, which = torch.unique(torch.stack(constants), dim=1, return_inverse=True)
        if columns.shape[1] > MOST_FUNCTIONS:
            return None
        functions = [self._read(network, iter(column)) for column in columns.T.tolist()]
        return _representable(functions, which)

    def _read(self, network: Network, constants: Iterator[float]) -> Pieces:
        functions = {self.root: IDENTITY}
        for value in self.values:
            operation = network.node(value).operation
            operands = [functions[source] for source in network.node(value).inputs]
            if isinstance(operation, Relu):
                functions[value] = operands[0].rectified()
            elif isinstance(operation, Add):
                functions[value] = operands[0].plus(operands[1])
            elif isinstance(operation, Scale):
                factor = Fraction(next(constants))
                functions[value] = operands[0].scaled(1 / factor if operation.divide else factor)
            else:
                functions[value] = operands[0].shifted(Fraction(next(constants)))
        return functions[self.values[-1]]


def _groups(network: Network, value: int) -> Iterator[_Group]:
    """The groups that end at a value, smaller ones first; what is computed within one has no other users."""
    frontier, inner = {value}, set[int]()
    while (last := max(frontier)) and isinstance(network.node(last).operation, Relu | Add | Scale | Shift):
        if last != value and not inner.issuperset(network.users[last]):
            return
        frontier.remove(last)
        inner.add(last)
        frontier.update(network.node(last).inputs)
        if len(frontier) == 1:
            yield _Group(max(frontier), tuple(sorted(inner)))


def _constant(network: Network, value: int) -> Tensor | None:
    """The factors or the offsets of an operation in float64, one for all coordinates or one each; None: it has none."""
    operation = network.node(value).operation
    if not isinstance(operation, Scale | Shift):
        return None
    stored = operation.factor if isinstance(operation, Scale) else operation.offset
    return (stored if stored.numel() == 1 else stored.expand(network.shapes[value])).flatten().double()


def _representable(functions: Sequence[Pieces], which: Tensor) -> Activation | None:
    """Functions by coordinates, (size,), as one activation; None where they are affine, or not of float64's numbers."""
    most = max(len(pieces.breaks) for pieces in functions)
    if not 0 < most <= MOST_BREAKS:
        return None
    if all(pieces == IDENTITY.rectified() for pieces in functions):
        return Relu()
    rows = [pieces.numbers(most) for pieces in functions]
    if not all(_is_float(number) for row in rows for number in row):
        return None
    table = torch.tensor([[float(number) for number in row] for row in rows], dtype=torch.float64).T[:, which]
    return PiecewiseLinear(*(part.contiguous() for part in table.split([most, most + 1, most + 1])))


def _is_float(number: Fraction) -> bool:
    try:
        return Fraction(float(number)) == number
    except OverflowError:
        return False
