"""Builds a network node by node: the part that the torch and the ONNX importer share.

In a foreign graph the batch is the first axis; our values have no batch axis. The methods here take constants and
shapes as the foreign graph has them, and refuse whatever would mix the images of a batch. Stored numbers are never
computed with: a factor such as a Gemm's alpha becomes a separate operation, so in real arithmetic the imported map
is exactly the stored one.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.network import Add, Linear, Network, Node, Operation, Relu, Reshape, Scale, Shape, Shift

Operand = int | Tensor
"""An input of a foreign operator: the index of a value, or a constant."""

PRECISIONS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Assembly:
    """A network under construction: its nodes so far, and the shape of every value (without the batch)."""

    def __init__(self, input_shape: Shape, batch: int, precision: torch.dtype, live: bool = False) -> None:
        self.shapes: list[Shape] = [input_shape]
        self.batch = batch
        self.precision = precision  # of the inputs
        self.casts: set[torch.dtype] = set()
        self._live = live  # constants are used as they are, with their gradients, instead of copied
        self._nodes: list[Node] = []

    def shape(self, value: Operand) -> Shape:
        """The shape of a value, without the batch."""
        return self.shapes[_value(value)]

    def full_shape(self, value: int) -> Shape:
        """The shape of a value in the foreign graph, with the batch first."""
        return (self.batch, *self.shapes[value])

    def gemm(
        self, value: Operand, weight: Tensor, addend: Operand | None, alpha: float = 1.0, beta: float = 1.0
    ) -> int:
        """`alpha * weight @ x + beta * addend`; weight: (outputs, inputs)."""
        index = _value(value)
        if self.shapes[index] != (weight.shape[1],):
            raise UnsupportedError(
                f"a weight of shape {tuple(weight.shape)} on a value of shape {self.shapes[index]}; "
                "a linear layer takes a flat value, so flatten it first"
            )
        stored = self._stored(weight)
        product = self._append(Linear(stored, stored.new_zeros(len(stored))), index)
        scaled = self._scale(product, alpha)
        return scaled if addend is None else self._sum(scaled, addend, beta)

    def relu(self, value: Operand) -> int:
        return self._append(Relu(), _value(value))

    def fitting(self, value: Operand, constant: Tensor) -> int:
        """The value, if the constant broadcasts to its shape."""
        index = _value(value)
        self._fit(constant, index)
        return index

    def cast(self, value: Operand, precision: object) -> int:
        """The value in another precision: in real arithmetic, the same; remembered for the comparison."""
        index = _value(value)
        if not isinstance(precision, torch.dtype) or precision not in PRECISIONS:
            raise UnsupportedError(f"a change of type to {precision}")
        if precision != self.precision:
            self.casts.add(precision)
        return index

    def add(self, left: Operand, right: Operand, times: float = 1.0) -> int:
        """`left + times * right`."""
        if not isinstance(left, Tensor):
            return self._sum(left, right, times)
        return self._shift(self._scale(_value(right), times), left, 1.0)

    def multiply(self, left: Operand, right: Operand) -> int:
        value, factor = (right, left) if isinstance(left, Tensor) else (left, right)
        if isinstance(value, Tensor) or not isinstance(factor, Tensor):
            raise UnsupportedError("a product of two computed values")
        return self._append(Scale(self._fit(factor, value), divide=False), value)

    def divide(self, left: Operand, right: Operand) -> int:
        if isinstance(left, Tensor) or not isinstance(right, Tensor):
            raise UnsupportedError("division by a computed value")
        return self._append(Scale(self._fit(right, left), divide=True), left)

    def reshape(self, value: Operand, full_shape: Shape) -> int:
        """The same numbers in the same order; `full_shape` has the batch first."""
        index = _value(value)
        if full_shape[:1] != (self.batch,):
            raise UnsupportedError(f"{self.full_shape(index)} to {full_shape} changes the first axis, the batch")
        before, after = self.shapes[index], full_shape[1:]
        return index if before == after else self._append(Reshape(before, after), index)

    def scores(self, value: Operand, axis: int | None) -> int:
        """The value, if it is a vector of class scores for each image, with this axis along the classes."""
        index = _value(value)
        if len(self.shapes[index]) != 1 or axis not in (1, -1):
            raise UnsupportedError(f"along axis {axis} of {self.full_shape(index)}, not along the classes")
        return index

    def finish(self, output: int, name: str, remarks: tuple[str, ...] = ()) -> Network:
        """The network with this value as its output; nodes that the output does not depend on are dropped."""
        nodes = _needed(_fused(_needed(self._nodes, output)))
        return Network(self.shapes[0], tuple(nodes), name, remarks=remarks)

    def _append(self, operation: Operation, *inputs: int) -> int:
        self.shapes.append(operation.shape(*(self.shapes[source] for source in inputs)))
        self._nodes.append(Node(operation, inputs))
        return len(self._nodes)

    def _scale(self, value: int, factor: float) -> int:
        return value if factor == 1 else self._append(Scale(scalar(factor), divide=False), value)

    def _sum(self, value: int, addend: Operand, times: float) -> int:
        if isinstance(addend, Tensor):
            return self._shift(value, addend, times)
        if self.shapes[value] != self.shapes[addend]:
            raise UnsupportedError(f"a sum of the shapes {self.shapes[value]} and {self.shapes[addend]}")
        return self._append(Add(), value, self._scale(addend, times))

    def _shift(self, value: int, offset: Tensor, times: float) -> int:
        """`x + times * offset`, written as `(x / times + offset) * times` where that product might round."""
        fitted = self._fit(offset, value)
        if times == 0:
            return value
        if abs(times) == 1:
            return self._append(Shift(fitted if times == 1 else -fitted), value)
        divided = self._append(Scale(scalar(times), divide=True), value)
        return self._scale(self._append(Shift(fitted), divided), times)

    def _fit(self, constant: Tensor, value: int) -> Tensor:
        """The constant without its batch axis; refused unless it broadcasts to the shape of the value."""
        shape = self.shapes[value]
        stored = self._stored(constant)
        if constant.ndim == len(shape) + 1 and len(constant) == 1:
            stored = stored[0]
        axes = zip(reversed(stored.shape), reversed(shape), strict=False)
        if stored.ndim > len(shape) or any(size not in (1, wanted) for size, wanted in axes):
            raise UnsupportedError(
                f"a constant of shape {tuple(constant.shape)} on a value of shape {self.full_shape(value)}"
            )
        return stored

    def _stored(self, constant: Tensor) -> Tensor:
        """A private copy in the original precision; with live constants, the constant itself."""
        if constant.dtype not in PRECISIONS:
            raise UnsupportedError(f"a constant of type {constant.dtype}, not of a common floating-point type")
        return constant if self._live else constant.detach().clone(memory_format=torch.contiguous_format)


def matrix(constant: Tensor) -> Tensor:
    """The constant, if it has the two axes of a layer's weight; otherwise refused."""
    if constant.ndim != 2:
        raise UnsupportedError(f"a product with a constant of shape {tuple(constant.shape)}")
    return constant


def scalar(number: float) -> Tensor:
    """A plain number as a float64 tensor without axes: exact, and it does not change the precision of other tensors."""
    return torch.tensor(number, dtype=torch.float64)


def _value(operand: Operand) -> int:
    if isinstance(operand, Tensor):
        raise UnsupportedError("a constant where a computed value is expected")
    return operand


def _needed(nodes: list[Node], output: int | None = None) -> list[Node]:
    """The nodes that the output (by default the last value) depends on, with their inputs renumbered."""
    last = len(nodes) if output is None else output
    needed = {last}
    for value in range(last, 0, -1):
        if value in needed:
            needed.update(nodes[value - 1].inputs)
    renumbered = {value: index for index, value in enumerate(sorted(needed | {0}))}
    return [
        Node(nodes[value - 1].operation, tuple(renumbered[source] for source in nodes[value - 1].inputs))
        for value in sorted(needed - {0})
    ]


def _fused(nodes: list[Node]) -> list[Node]:
    """Merges a linear layer without bias and a shift that is its only use into one linear layer; nothing rounds."""
    uses = Counter(source for node in nodes for source in node.inputs)
    return [_fused_node(node, nodes, uses) for node in nodes]


def _fused_node(node: Node, nodes: list[Node], uses: Counter[int]) -> Node:
    shift, source = node.operation, node.inputs[0]
    if not isinstance(shift, Shift) or source == 0 or uses[source] > 1:
        return node
    linear = nodes[source - 1].operation
    if not isinstance(linear, Linear) or bool(linear.bias.any()) or shift.offset.dtype != linear.weight.dtype:
        return node
    bias = shift.offset.expand(len(linear.weight)).clone()
    return Node(Linear(linear.weight, bias), nodes[source - 1].inputs)
