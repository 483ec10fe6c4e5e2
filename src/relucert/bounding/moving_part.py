"""The part of a network that moves, where boxes fix most inputs: a function of few inputs, and of numbers per box.

A neuron that depends on no moving input is a number in every box, which intervals enclose up to rounding. With m for
what moves and f for what is fixed, an affine operation W x + b is

    (W x + b)_m = W_mm x_m + c,    c = (W_mf x_f + b)_m,

and c goes through further affine operations like any fixed number, up to the next activation. The network of the W_mm,
with the c of every pre-activation as further inputs, is the same function of real numbers: no weight is computed. Boxes
that let the same inputs move share it, so thousands of boxes are one batch, and what is fixed in a box is not bounded
anew in the parts that it is cut into.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from typing_extensions import assert_never

from relucert.arithmetic.box import Box
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.interval import Centred, Interval, image
from relucert.network import (
    INPUT,
    Activation,
    Add,
    Affine,
    Convolution,
    FlatAffine,
    IndexMap,
    Layer,
    Linear,
    Network,
    Node,
    Reshape,
    Scale,
    Shift,
)

EXACT = (Add, Convolution, IndexMap, Linear, Reshape, Scale, Shift)  # whose coefficients are stored numbers
MOST_MOVING = 2048  # neurons of one value: matrices are stored in full
MOST_BYTES = 2**28  # of the intervals of some boxes


@dataclass(frozen=True, eq=False)
class MovingPart:
    """A network as a function of the inputs that move, and of numbers that are fixed in every box.

    Attributes:
        network: Its input is flat: the moving inputs, then the fixed numbers.
        inputs: Which inputs of the original network move, (moving,).
        fixed: Bounds of the fixed numbers, (boxes, numbers).
    """

    network: Network
    inputs: Tensor
    fixed: Interval

    @property
    def finite(self) -> Tensor:
        """Whether all fixed numbers of a box are finite, (boxes,), and with them the widths of their bounds."""
        return (self.fixed.upper - self.fixed.lower).isfinite().all(1)


def moving_part(network: Network, boxes: Box, moving: Tensor) -> MovingPart | None:
    """The part of a network that moves in boxes, (boxes, inputs) for each end, which fix all but some inputs.

    Args:
        network: In float64, as a function of real numbers.
        moving: Which inputs move, (inputs,); boxes may let others move by what their ends round.

    Returns:
        None where an operation's coefficients are no stored numbers, or where too much moves.
    """
    if not all(map(_can_be_restricted, network.nodes)):
        return None
    dependence = _Dependence(network, moving)
    if max(len(neurons) for neurons in dependence.neurons.values()) > MOST_MOVING:
        return None
    step = max(1, MOST_BYTES // (32 * sum(network.sizes)))
    ends = zip(boxes.low.split(step), boxes.high.split(step), strict=True)
    fixed = Interval.join([dependence.fixed_numbers(Region.boxes(*some)) for some in ends], 0)
    return MovingPart(_Assembly(dependence).run(), dependence.neurons[INPUT], fixed)


def _can_be_restricted(node: Node) -> bool:
    """Whether the operation on some neurons is one of the same kind, with numbers that are stored."""
    if isinstance(node.operation, Activation):
        return not node.operation.tensors()  # which neurons may have of their own
    return isinstance(node.operation, EXACT)


class _Dependence:
    """Which neurons of a network depend on the moving inputs, and where these meet numbers that are fixed.

    Attributes:
        moves: By value, which of its neurons move: (size,). All outputs count as moving.
        mixed: The values of affine operations to whose moving neurons fixed numbers add something.
        met: Those of them where what they add is an input of the network of what moves: where activations follow, and
            the output.
    """

    def __init__(self, network: Network, moving: Tensor) -> None:
        self.network = network
        value, whole = network.output, {network.output}
        while value != INPUT and isinstance(network.node(value).operation, Activation):
            value = network.source(value)
            whole.add(value)
        self.moves = {INPUT: torch.ones_like(moving) if INPUT in whole else moving}
        self.mixed: set[int] = set()
        for value, node in network.steps():
            operands = [self.moves[source] for source in node.inputs]
            if isinstance(node.operation, Affine):
                reached = self._reached(value, operands)
                self.moves[value] = torch.ones_like(reached) if value in whole else reached
                met = self._reached(value, [~operand for operand in operands]) & self.moves[value]
                if bool(met.any()) or (not self.mixed.isdisjoint(node.inputs) and bool(reached.any())):
                    self.mixed.add(value)
            elif isinstance(node.operation, Activation):
                self.moves[value] = operands[0]
            else:
                assert_never(node.operation)
        self.met = [value for value in (*network.preactivations, network.output) if value in self.mixed]

    def _reached(self, value: int, operands: list[Tensor]) -> Tensor:
        """Which neurons of an affine operation have a coefficient on some of the operands' neurons."""
        return FlatAffine.of(self.network, value).absolute(*(operand.double() for operand in operands)) > 0

    @cached_property
    def neurons(self) -> dict[int, Tensor]:
        """By value, the numbers of its neurons that move."""
        return {value: moves.nonzero().flatten() for value, moves in self.moves.items()}

    def fixed_numbers(self, region: Region) -> Interval:
        """Bounds of what fixed numbers add to the moving neurons of `met` values, one value after the other."""
        values: dict[int, Centred] = {}  # where all moving neurons are 0
        found = {-1: Interval(region.reference[:, :0], region.reference[:, :0])}
        for value, dropped in self.network.schedule(self.met):
            if value == INPUT:
                numbers = Centred.of_input(region, RIGOROUS)
            else:
                operands = [values[source] for source in self.network.node(value).inputs]
                numbers = image(self.network, value, operands, RIGOROUS)
            if value in self.met:
                found[value] = numbers.interval(RIGOROUS).pick(self.neurons[value])
            if value not in self.mixed:  # constants that no fixed number meets stay in the network
                numbers = Centred(*(torch.where(self.moves[value], 0, part) for part in numbers))
            values[value] = numbers
            for done in dropped:
                del values[done]
        return Interval.join([found[value] for value in (-1, *self.met)], 1)


class _Assembly:
    """Assembles the network of what moves, node by node."""

    def __init__(self, dependence: _Dependence) -> None:
        self.network, self.neurons, self.mixed = dependence.network, dependence.neurons, dependence.mixed
        self.nodes: list[Node] = []
        self.size = len(self.neurons[INPUT])
        self.first: dict[int, int] = {}  # by value, where the fixed numbers that it meets begin among the inputs
        for value in dependence.met:
            self.first[value] = self.size
            self.size += len(self.neurons[value])
        self.places: dict[int, int | None] = {INPUT: self._pick(0, len(self.neurons[INPUT]))}
        self.complete: dict[int, int] = {}  # the same with fixed numbers added

    def run(self) -> Network:
        for value, node in self.network.steps():
            if not len(self.neurons[value]):
                continue
            if isinstance(node.operation, Activation):
                self.places[value] = self._append(node.operation, self._with_fixed(node.inputs[0]))
            else:
                total = self._moved(value)
                self.places[value] = total if value in self.mixed else self._shifted(value, total)
        output = self._with_fixed(self.network.output)
        if output < len(self.nodes):
            self._append(IndexMap.of(torch.arange(self.network.classes), (self.network.classes,)), output)
        return Network((self.size,), tuple(self.nodes), self.network.name)

    def _with_fixed(self, value: int) -> int:
        """The moving neurons of a value, with what fixed numbers add to them."""
        if value not in self.complete:
            place = self.places[value]
            if value in self.first:
                fixed = self._pick(self.first[value], len(self.neurons[value]))
                place = fixed if place is None else self._append(Add(), place, fixed)
            assert place is not None
            self.complete[value] = place
        return self.complete[value]

    def _append(self, operation: Layer, *inputs: int) -> int:
        self.nodes.append(Node(operation, inputs))
        return len(self.nodes)

    def _pick(self, first: int, count: int) -> int:
        """Some consecutive inputs."""
        return self._append(IndexMap.of(torch.arange(first, first + count), (self.size,)), INPUT)

    def _moved(self, value: int) -> int | None:
        """What moving neurons add to an affine operation, without its constant; None where they add nothing."""
        total: int | None = None
        for number, source in enumerate(self.network.node(value).inputs):
            place = self.places.get(source)
            if place is not None:
                term = self._times(value, number, place)
                total = term if total is None else self._append(Add(), total, term)
        return total

    def _times(self, value: int, number: int, source: int) -> int:
        """The moving neurons of one operand, at a place, times the coefficients of an affine operation."""
        node, operation = self.network.node(value), self.network.affine(value)
        rows = self.neurons[value]
        if isinstance(operation, Scale):  # whose inverses are not stored
            factors = operation.factor.expand(self.network.shapes[value]).flatten()[rows]
            picked = self._spread(source, self.neurons[node.inputs[number]], rows, self.network.sizes[value])
            return picked if bool((factors == 1).all()) else self._append(Scale(factors, operation.divide), picked)
        matrix = self._coefficients(value, number)
        if matrix.shape[0] == matrix.shape[1] and torch.equal(matrix, torch.eye(len(matrix), dtype=matrix.dtype)):
            return source
        return self._append(Linear(matrix, matrix.new_zeros(len(matrix))), source)

    def _spread(self, place: int, neurons: Tensor, rows: Tensor, size: int) -> int:
        """Some neurons of those at a place, by their numbers in a value of this size; those not there are 0."""
        if torch.equal(neurons, rows):
            return place
        positions = torch.full((size,), -1)
        positions[neurons] = torch.arange(len(neurons))
        return self._append(IndexMap.of(positions[rows], (len(neurons),)), place)

    def _coefficients(self, value: int, number: int) -> Tensor:
        """The coefficients of a value's moving neurons on those of one operand: (neurons, operand's neurons)."""
        network, node = self.network, self.network.node(value)
        columns = self.neurons[node.inputs[number]]
        operands = [torch.zeros(len(columns), network.sizes[source], dtype=torch.float64) for source in node.inputs]
        operands[number][torch.arange(len(columns)), columns] = 1
        return FlatAffine.of(network, value).linear(*operands)[:, self.neurons[value]].T.contiguous()

    def _shifted(self, value: int, total: int | None) -> int:
        """Adds the constant of an affine operation that no fixed numbers meet."""
        constant, rows = FlatAffine.of(self.network, value).constant, self.neurons[value]
        offset = torch.zeros(len(rows), dtype=torch.float64) if constant is None else constant[rows]
        if total is None:  # outputs that depend on no input
            total = self._append(IndexMap.of(torch.full((len(rows),), -1), (self.size,)), INPUT)
        if not bool(offset.any()):
            return total
        last = self.nodes[total - 1]
        if isinstance(last.operation, Linear) and total == len(self.nodes) and total not in self.places.values():
            self.nodes.pop()
            return self._append(Linear(last.operation.weight, offset), *last.inputs)
        return self._append(Shift(offset), total)
