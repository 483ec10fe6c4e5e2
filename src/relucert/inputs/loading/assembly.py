"""Builds a network node by node, for the torch and the ONNX importer.

In a foreign graph the batch is the first axis, if it has one; our values have no batch axis. The methods here take
constants and shapes as the foreign graph has them, and refuse whatever would mix the images of a batch. Stored numbers
are never computed with: a factor such as a Gemm's alpha becomes a separate operation, so in real arithmetic the
imported map is exactly the stored one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from math import prod

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.fusion import tidied
from relucert.inputs.loading.gates import product, quotient
from relucert.inputs.loading.local import Axis, picked
from relucert.inputs.loading.operands import PRECISIONS, Operand, broadcast, computed_value, scalar
from relucert.network import (
    Activation,
    Add,
    Affine,
    BatchScale,
    Convolution,
    IndexMap,
    Layer,
    Linear,
    Network,
    Node,
    Power,
    Reciprocal,
    Relu,
    Reshape,
    Scale,
    Shape,
    Shift,
)
from relucert.network.squared_products import balanced

MOST_PRODUCTS = 2**20
"""The most products of two values in one layer: each takes two neurons."""
BALANCING_POINTS = 8  # random inputs at which the spreads of the factors of products are compared


class Assembly:
    """A network under construction: its nodes so far, and the shape of every value (without the batch).

    batch: how many images the foreign graph takes at once; None if it has no axis for them.
    count: called with how many numbers each node makes, without a batch.
    """

    def __init__(
        self,
        input_shape: Shape,
        batch: int | None,
        precision: torch.dtype,
        live: bool = False,
        count: Callable[[int], None] | None = None,
    ) -> None:
        self.shapes: list[Shape] = [input_shape]
        self.batch = batch
        self.precision = precision  # of the inputs
        self.casts: set[torch.dtype] = set()
        self.real_only: dict[str, None] = {}  # reasons why answers can't be about evaluations in floating point
        self._live = live  # constants are used as they are, with their gradients, instead of copied
        self._nodes: list[Node] = []
        self._exact = False
        self._roundings = 0
        self._stored_in: set[torch.dtype] = set()  # the precisions of constants with axes, which widen what they meet
        self._count = count

    @contextmanager
    def exact(self) -> Iterator[None]:
        """Marks nodes that are appended within this context as exact: together they are a layer that only selects
        numbers, so nothing rounds there when the network is evaluated in floating point."""
        outside, self._exact = self._exact, True
        try:
            yield
        finally:
            self._exact = outside

    @contextmanager
    def one_sum(self, roundings: int) -> Iterator[None]:
        """Charges every operation that is appended within this context with this many roundings: together they are one
        sum, whose terms meet at most as many, in any order of summation."""
        outside, self._roundings = self._roundings, max(self._roundings, roundings)
        try:
            yield
        finally:
            self._roundings = outside

    @property
    def widest(self) -> torch.dtype:
        """The widest precision that values so far may have, at least float32."""
        return torch.float64 if torch.float64 in {self.precision, *self.casts, *self._stored_in} else torch.float32

    def shape(self, value: Operand) -> Shape:
        """The shape of a value, without the batch."""
        return self.shapes[computed_value(value)]

    def full_shape(self, value: Operand) -> Shape:
        """The shape of a value in the foreign graph, with the batch first."""
        shape = self.shape(value)
        return shape if self.batch is None else (self.batch, *shape)

    def without_batch(self, full_shape: Shape) -> Shape:
        """A shape of the foreign graph without the batch; refused where it does not begin with that."""
        if self.batch is None:
            return full_shape
        if full_shape[:1] != (self.batch,):
            raise UnsupportedError(f"a result of shape {full_shape} changes the first axis, the batch of {self.batch}")
        return full_shape[1:]

    def axes(self, value: Operand, axes: Collection[int]) -> set[int]:
        """Axes as the foreign graph counts them, as axes of the value without the batch."""
        full = self.full_shape(value)
        batch = len(full) - len(self.shape(value))
        counted = {axis + len(full) if axis < 0 else axis for axis in axes}
        if not counted <= set(range(batch, len(full))):
            raise UnsupportedError(f"over the axes {sorted(counted)} of {full}, the batch among them")
        return {axis - batch for axis in counted}

    def linear(self, value: Operand, weight: Tensor) -> int:
        """`weight @ x`; weight: (outputs, inputs)."""
        index = computed_value(value)
        if self.shapes[index] != (weight.shape[1],):
            raise UnsupportedError(
                f"a weight of shape {tuple(weight.shape)} on a value of shape {self.shapes[index]}; "
                "a linear layer takes a flat value, so flatten it first"
            )
        stored = self._stored(weight)
        return self._append(Linear(stored, stored.new_zeros(len(stored))), index)

    def convolution(
        self,
        value: Operand,
        weight: Tensor,
        bias: Tensor | None = None,
        axes: Sequence[Axis] = (Axis(), Axis()),
        groups: int = 1,
    ) -> int:
        """weight: (output channels, input channels / groups, height, width), on a value (channels, height, width)."""
        index = computed_value(value)
        shape = self.shapes[index]
        if weight.ndim != 4 or len(shape) != 3 or shape[0] != weight.shape[1] * groups or len(weight) % groups:
            raise UnsupportedError(
                f"a kernel of shape {tuple(weight.shape)} in {groups} groups on images of shape {shape}; "
                "they have their channels first"
            )
        rows, columns = axes
        padding = rows.before, columns.before, rows.after, columns.after
        if min(padding) < 0:
            raise UnsupportedError(f"negative padding {padding}")
        padded = [size + axis.before + axis.after for size, axis in zip(shape[1:], axes, strict=True)]
        extents = [axis.extent(taps) for axis, taps in zip(axes, weight.shape[2:], strict=True)]
        if any(size < extent for size, extent in zip(padded, extents, strict=True)):
            raise UnsupportedError(f"images of shape {shape} are smaller than the kernel, {tuple(extents)}")
        stored = self._stored(weight)
        added = stored.new_zeros(len(stored)) if bias is None else self._stored(bias)
        stride, dilation = (rows.stride, columns.stride), (rows.dilation, columns.dilation)
        return self._append(Convolution(stored, added, shape[1:], stride, padding, dilation, groups), index)

    def index_map(self, value: Operand, indices: Tensor) -> int:
        """Picks coordinates; indices: of the output's shape, with flat positions in the value, -1 for zero."""
        index = computed_value(value)
        before, after = self.shapes[index], tuple(indices.shape)
        if not indices.numel():
            raise UnsupportedError(f"a result of shape {after}, without numbers")
        if torch.equal(indices.flatten(), torch.arange(prod(before))):
            return self.reshaped(index, after)
        channels = picked(indices, before, self.precision)
        if channels is None:
            return self._append(IndexMap.of(indices, before), index)
        weight, axes, groups = channels
        return self.convolution(index, weight, None, axes, groups)

    def expanded(self, value: Operand, shape: Shape) -> int:
        """The value broadcast to a shape, without the batch."""
        index = computed_value(value)
        before = self.shapes[index]
        if before == shape:
            return index
        return self.index_map(index, torch.arange(prod(before)).reshape(before).expand(shape))

    def batch_scale(self, value: Operand, gain: Tensor, variance: Tensor, epsilon: float) -> int:
        """`x * gain / sqrt(variance + epsilon)`."""
        index = computed_value(value)
        fitted = self._stored(gain), self._stored(variance)
        if not bool((variance.double() + epsilon > 0).all()):
            raise UnsupportedError("a variance plus epsilon that is not positive")
        return self._append(BatchScale(*fitted, epsilon), index)

    def relu(self, value: Operand) -> int:
        return self._append(Relu(), computed_value(value))

    def activation(self, activation: Activation, value: Operand) -> int:
        """A function of every coordinate."""
        return self._append(activation, computed_value(value))

    def fitting(self, value: Operand, constant: Tensor) -> int:
        """The value in the shape to which it and the constant broadcast."""
        return self._joined(computed_value(value), constant)[0]

    def cast(self, value: Operand, precision: object) -> int:
        """The value in another precision: in real arithmetic, the same; remembered for the comparison."""
        index = computed_value(value)
        if not isinstance(precision, torch.dtype) or precision not in PRECISIONS:
            raise UnsupportedError(f"a change of type to {precision}")
        if precision != self.precision:
            self.casts.add(precision)
        return index

    def add(self, left: Operand, right: Operand, times: float = 1.0) -> int:
        """`left + times * right`."""
        if not isinstance(left, Tensor):
            return self._sum(left, right, times)
        return self._shift(self.scaled(computed_value(right), times), left, 1.0)

    def multiply(self, left: Operand, right: Operand) -> int:
        if not isinstance(left, Tensor) and not isinstance(right, Tensor):
            return self._product(left, right)
        value, factor = (right, left) if isinstance(left, Tensor) else (left, right)
        if isinstance(value, Tensor) or not isinstance(factor, Tensor):
            raise UnsupportedError("of constants alone")
        fitting, stored = self._joined(value, factor)
        return self._append(Scale(stored, divide=False), fitting)

    def scaled(self, value: int, factor: float) -> int:
        """`factor * x`."""
        return value if factor == 1 else self._append(Scale(scalar(factor), divide=False), value)

    def divide(self, left: Operand, right: Operand) -> int:
        if not isinstance(right, Tensor):
            return self._quotient(left, right)
        if isinstance(left, Tensor):
            raise UnsupportedError("of constants alone")
        fitting, stored = self._joined(left, right)
        if not bool(stored.all()):
            raise UnsupportedError("division by zero")
        return self._append(Scale(stored, divide=True), fitting)

    def reshape(self, value: Operand, full_shape: Shape) -> int:
        """The value in another shape, its numbers in the same order; `full_shape` has the batch first."""
        return self.reshaped(value, self.without_batch(full_shape))

    def reshaped(self, value: Operand, after: Shape) -> int:
        """The value in another shape, its numbers in the same order; `after` is without the batch."""
        index = computed_value(value)
        if index and isinstance(self._nodes[index - 1].operation, Reshape):
            (index,) = self._nodes[index - 1].inputs
        before = self.shapes[index]
        return index if before == after else self._append(Reshape(before, after), index)

    def scores(self, value: Operand, axis: int | None) -> int:
        """The value, if it is a vector of class scores for each image, with this axis along the classes."""
        index = computed_value(value)
        last = len(self.full_shape(index)) - 1
        if len(self.shapes[index]) != 1 or axis not in (last, -1):
            raise UnsupportedError(f"along axis {axis} of {self.full_shape(index)}, not along the classes")
        return index

    def finish(self, output: int, name: str, remarks: tuple[str, ...] = (), real_only: tuple[str, ...] = ()) -> Network:
        """The network with this value as its output; nodes that the output does not depend on are dropped."""
        shape = self.shapes[output]
        if self.batch is None and prod(shape[:-1]) == 1:  # axes of size 1 before the scores, or none at all
            output = self.reshaped(output, (prod(shape),))
        kept = tuple(tidied(self._nodes, output))
        network = Network(self.shapes[0], kept, name, remarks=remarks, real_only=real_only)
        if self._live or not network.products:
            return network
        generator = torch.Generator().manual_seed(0)
        points = torch.randn(BALANCING_POINTS, prod(self.shapes[0]), generator=generator, dtype=torch.float64)
        with torch.no_grad():
            return balanced(network, points)

    def _append(self, operation: Layer, *inputs: int) -> int:
        self.shapes.append(operation.shape(*(self.shapes[source] for source in inputs)))
        if self._count is not None:
            self._count(prod(self.shapes[-1]))
        longer = isinstance(operation, Affine) and 0 < operation.roundings < self._roundings and not self._exact
        self._nodes.append(Node(operation, inputs, self._exact, self._roundings if longer else None))
        return len(self._nodes)

    def _product(self, left: int, right: int) -> int:
        """A product of two values: where it can be, an activation of one value."""
        gated = product(self._nodes, left, right)
        if gated is None:
            return self._in_squares(left, right)
        result = self._append(gated.activation, gated.value)
        for scale in gated.scales:
            result = self._append(scale, result)
        return result

    def _quotient(self, top: Operand, bottom: int) -> int:
        """A division by a value: a product with its reciprocal, or an activation that is written so."""
        if isinstance(top, Tensor):
            bottom = self.fitting(bottom, top)
        if isinstance(top, Tensor) and not (top.numel() == 1 and float(top) == 1):
            return self.multiply(self._append(Reciprocal(), bottom), top)
        gated = quotient(self._nodes, None if isinstance(top, Tensor) else top, bottom)
        if gated is not None:
            return self._append(gated.activation, gated.value)
        inverse = self._append(Reciprocal(), bottom)
        return inverse if isinstance(top, Tensor) else self.multiply(top, inverse)

    def _in_squares(self, left: int, right: int) -> int:
        """`left * right`, broadcast to one shape, in squares; their scales are chosen in the end.

        The pattern is the one that `relucert.network.squared_products` finds again.
        """
        shape = self._joint_shape(left, right)
        if prod(shape) > MOST_PRODUCTS:
            raise UnsupportedError(f"{prod(shape):,} products of two computed values, more than {MOST_PRODUCTS:,}")
        scaled = self.multiply(left, scalar(1.0))
        first, second = (self.expanded(value, shape) for value in (scaled, right))
        squares = [self._append(Power(2), self.add(first, second, sign)) for sign in (1.0, -1.0)]
        return self.multiply(self.add(squares[0], squares[1], -1.0), scalar(0.25))

    def _sum(self, value: int, addend: Operand, times: float) -> int:
        if isinstance(addend, Tensor):
            return self._shift(value, addend, times)
        joint = self._joint_shape(value, addend)
        return self._append(Add(), self.expanded(value, joint), self.expanded(self.scaled(addend, times), joint))

    def _joint_shape(self, left: int, right: int) -> Shape:
        """The shape to which two values broadcast."""
        shapes = self.shapes[left], self.shapes[right]
        if self.batch is not None and len(shapes[0]) != len(shapes[1]):
            raise UnsupportedError(f"values of the shapes {shapes[0]} and {shapes[1]} together")
        return broadcast(*shapes)

    def _shift(self, value: int, offset: Tensor, times: float) -> int:
        """`x + times * offset`, written as `(x / times + offset) * times` where that product might round."""
        fitting, stored = self._joined(value, offset)
        if times == 0:
            return fitting
        if abs(times) == 1:
            return self._append(Shift(stored if times == 1 else -stored), fitting)
        divided = self._append(Scale(scalar(times), divide=True), fitting)
        return self.scaled(self._append(Shift(stored), divided), times)

    def _joined(self, value: int, constant: Tensor) -> tuple[int, Tensor]:
        """The value broadcast to the shape of the two, and the constant without its batch axis."""
        shape, stored = self.shapes[value], self._stored(constant)
        if self.batch is not None and constant.ndim == len(shape) + 1 and len(constant) == 1:
            stored = stored[0]
        if self.batch is not None and stored.ndim > len(shape):
            raise UnsupportedError(
                f"a constant of shape {tuple(constant.shape)} on a value of shape {self.full_shape(value)}"
            )
        return self.expanded(value, broadcast(shape, tuple(stored.shape))), stored

    def _stored(self, constant: Tensor) -> Tensor:
        """A private copy in the original precision; with live constants, the constant itself."""
        if constant.dtype not in PRECISIONS:
            raise UnsupportedError(f"a constant of type {constant.dtype}, not of a common floating-point type")
        if constant.ndim:
            self._stored_in.add(constant.dtype)
        return constant if self._live else constant.detach().clone(memory_format=torch.contiguous_format)
