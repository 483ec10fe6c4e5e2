"""Limits of the memory that an import takes: a hundred bytes of a file can name constants or loops of any size."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import onnx
import torch
from onnx import NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor

from relucert.errors import LoadError, UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.onnx_rules.call import PRECISIONS
from relucert.inputs.loading.onnx_rules.moves import RULES as MOVES
from relucert.inputs.loading.operands import Operand

MOST_AT_ONCE = 2**22  # numbers of one constant or value, with its batch
MOST_IN_ALL = 2**24  # numbers of all constants and values that are made, without a batch
PER_BYTE = 4  # further numbers that every byte of the file allows
PER_NODE = 2**12  # numbers that a node counts for beside those of its value, since it takes time and memory, too
SMALL = 2**12  # numbers of a constant that may tell the shape of a result


class Allowance:
    """How many numbers may still be made of a file of a size."""

    def __init__(self, path: object, size: int) -> None:
        self._path = path
        self._most_at_once, self._remaining = MOST_AT_ONCE + PER_BYTE * size, MOST_IN_ALL + PER_BYTE * size

    def check(self, count: int, name: str) -> None:
        """Refuses a constant or a value, called `name` in the error, of too many numbers."""
        if count > self._most_at_once:
            raise LoadError(
                f"{self._path}: {name} has {count:,} numbers, more than the {self._most_at_once:,} that a file of its "
                "size may make; export the model with the constants that it needs, or with smaller images"
            )

    def take_node(self, count: int) -> None:
        """Counts a node of the network, whose value has this many numbers."""
        self.take(count + PER_NODE)

    def take(self, count: int) -> None:
        """Counts numbers that were made."""
        self._remaining -= count
        if self._remaining < 0:
            raise LoadError(
                f"{self._path}: its values and computed constants have more numbers than a file of its size may make; "
                "export a smaller model, or one with smaller images"
            )

    def check_node(
        self, node: NodeProto, output: str, version: int, inputs: Sequence[Operand | None], assembly: Assembly
    ) -> None:
        """Refuses a node that would make too much, before it is evaluated or translated.

        One of wrong shapes is left to whoever translates it, unless that takes its word for the size of the result.
        """
        name = f"the result {output!r} of {node.op_type}"
        shapes = [None if operand is None else _shape(operand, assembly) for operand in inputs]
        if shapes and shapes[0] is not None:
            self.check(_room(node, shapes[0]), f"the padded image of {node.op_type}, for {output!r},")
        input_numbers = sum(prod(shape) for shape in shapes if shape is not None)
        result = _result_shape(node, output, version, inputs, assembly)
        if result is None and (node.op_type in MOVES or all(isinstance(operand, Tensor) for operand in inputs)):
            raise UnsupportedError("a result whose size can't be told before it is computed")
        self.check(prod(input_numbers if size is None else size for size in result or ()), name)


def _shape(operand: Operand, assembly: Assembly) -> tuple[int, ...]:
    return tuple(operand.shape) if isinstance(operand, Tensor) else assembly.full_shape(operand)


def _room(node: NodeProto, shape: Sequence[int]) -> int:
    """How many numbers an image has with the margins, and the zeros in between, that an operator gives it."""
    whole = {entry.name: list(entry.ints) for entry in node.attribute}
    axes = len(shape) - 2
    pads, steps = whole.get("pads", [0] * 2 * axes), whole.get("strides", [1] * axes)
    if node.op_type not in _ON_IMAGES or (len(pads), len(steps)) != (2 * axes, axes):
        return 0
    spread = steps if node.op_type == "ConvTranspose" else [1] * axes
    sizes = zip(shape[2:], spread, pads[:axes], pads[axes:], strict=True)
    return prod((*shape[:2], *(size * abs(step) + abs(before) + abs(after) for size, step, before, after in sizes)))


_ON_IMAGES = ("Conv", "ConvTranspose", "AveragePool", "MaxPool", "LpPool")


def standalone(node: NodeProto, inputs: Sequence[Operand | None]) -> NodeProto:
    """The node with its inputs named by their positions: one that it takes twice may have two values."""
    alone = NodeProto()
    alone.CopyFrom(node)
    del alone.input[:]
    alone.input.extend("" if operand is None else str(position) for position, operand in enumerate(inputs))
    return alone


def _result_shape(
    node: NodeProto, output: str, version: int, inputs: Sequence[Operand | None], assembly: Assembly
) -> list[int | None] | None:
    """The shape of a result as ONNX infers it, None for an axis that it does not know; None where it knows none."""
    sources, constants = [], []
    for position, operand in enumerate(inputs):
        if isinstance(operand, Tensor) and operand.numel() <= SMALL and operand.dtype is not torch.bfloat16:
            constants.append(numpy_helper.from_array(operand.numpy(), str(position)))
        elif operand is not None:
            dtype = operand.dtype if isinstance(operand, Tensor) else assembly.precision
            code = _CODES.get(dtype, TensorProto.FLOAT)
            sources.append(helper.make_tensor_value_info(str(position), code, _shape(operand, assembly)))
    results = [helper.make_empty_tensor_value_info(output)]
    graph = helper.make_graph([standalone(node, inputs)], "alone", sources, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    (inferred,) = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output
    if not inferred.type.tensor_type.HasField("shape"):
        return None
    return [axis.dim_value if axis.HasField("dim_value") else None for axis in inferred.type.tensor_type.shape.dim]


_CODES = {
    **{dtype: code for code, dtype in PRECISIONS.items()},
    torch.int64: TensorProto.INT64,
    torch.int32: TensorProto.INT32,
    torch.bool: TensorProto.BOOL,
}
