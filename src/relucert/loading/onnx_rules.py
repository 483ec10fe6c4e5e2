"""What each ONNX operator becomes (operator sets 7 and later)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from onnx import TensorProto
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.loading import lowering
from relucert.loading.assembly import Assembly, Operand, matrix, scalar
from relucert.network import Shape

PRECISIONS: dict[int, torch.dtype] = {
    TensorProto.FLOAT16: torch.float16,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.FLOAT: torch.float32,
    TensorProto.DOUBLE: torch.float64,
}


@dataclass(frozen=True)
class Call:
    """One node: its inputs in order, None where one is left out, and its attributes."""

    inputs: tuple[Operand | None, ...]
    attributes: Mapping[str, Any]

    def optional(self, position: int) -> Operand | None:
        return self.inputs[position] if position < len(self.inputs) else None

    def operand(self, position: int) -> Operand:
        operand = self.optional(position)
        if operand is None:
            raise UnsupportedError(f"input {position} left out")
        return operand

    def operands(self) -> list[Operand]:
        """All inputs, of an operator that takes any number."""
        return [self.operand(position) for position in range(len(self.inputs))]

    def value(self, position: int) -> int:
        operand = self.operand(position)
        if isinstance(operand, Tensor):
            raise UnsupportedError(f"a constant as input {position}")
        return operand

    def constant(self, position: int) -> Tensor:
        operand = self.operand(position)
        if not isinstance(operand, Tensor):
            raise UnsupportedError(f"a computed input {position}")
        return operand


@dataclass(frozen=True)
class Rule:
    """How to translate an operator, the attributes the translation uses, and those accepted with one value only.

    keeps_order: the operator only keeps the order of the class scores; as the last one it is left out.
    """

    translate: Callable[[Assembly, Call], Operand]
    attributes: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    keeps_order: bool = False

    def accepts(self, attribute: str, value: object) -> bool:
        """Whether the translation respects this attribute; one that the rule does not name is refused."""
        return attribute in self.attributes or (attribute in self.fixed and value == self.fixed[attribute])


def _gemm(assembly: Assembly, call: Call) -> Operand:
    attributes = call.attributes
    weight = matrix(call.constant(1))
    weight = weight if attributes.get("transB", 0) else weight.T
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    return assembly.gemm(call.value(0), weight, call.optional(2), alpha, beta)


def _matmul(assembly: Assembly, call: Call) -> Operand:
    return assembly.gemm(call.operand(0), matrix(call.constant(1)).T, None)


def _add(assembly: Assembly, call: Call) -> Operand:
    return assembly.add(call.operand(0), call.operand(1))


def _subtract(assembly: Assembly, call: Call) -> Operand:
    return assembly.add(call.operand(0), call.operand(1), times=-1.0)


def _multiply(assembly: Assembly, call: Call) -> Operand:
    return assembly.multiply(call.operand(0), call.operand(1))


def _divide(assembly: Assembly, call: Call) -> Operand:
    return assembly.divide(call.operand(0), call.operand(1))


def _negate(assembly: Assembly, call: Call) -> Operand:
    return assembly.multiply(call.operand(0), scalar(-1.0))


def _relu(assembly: Assembly, call: Call) -> Operand:
    return assembly.relu(call.value(0))


def _maximum(assembly: Assembly, call: Call) -> Operand:
    return lowering.maximum(assembly, *call.operands())


def _minimum(assembly: Assembly, call: Call) -> Operand:
    return lowering.minimum(assembly, *call.operands())


def _sum(assembly: Assembly, call: Call) -> Operand:
    return lowering.add_all(assembly, call.operands())


def _mean(assembly: Assembly, call: Call) -> Operand:
    return assembly.divide(_sum(assembly, call), scalar(float(len(call.operands()))))


def _clip(assembly: Assembly, call: Call) -> Operand:
    """The ends were attributes before operator set 11 and are inputs since."""
    ends = []
    for position, name in ((1, "min"), (2, "max")):
        given = call.attributes.get(name)
        left_out = call.optional(position) is None
        stored = None if left_out else call.constant(position)
        ends.append(stored if given is None else scalar(given))
    return lowering.clip(assembly, call.value(0), *ends)


def _leaky_relu(assembly: Assembly, call: Call) -> Operand:
    return lowering.leaky_relu(assembly, call.value(0), scalar(call.attributes.get("alpha", _single(0.01))))


def _parametric_relu(assembly: Assembly, call: Call) -> Operand:
    return lowering.leaky_relu(assembly, call.value(0), call.constant(1))


def _absolute(assembly: Assembly, call: Call) -> Operand:
    return lowering.absolute(assembly, call.value(0))


def _hard_sigmoid(assembly: Assembly, call: Call) -> Operand:
    alpha, beta = call.attributes.get("alpha", _single(0.2)), call.attributes.get("beta", 0.5)
    shifted = assembly.add(assembly.multiply(call.value(0), scalar(alpha)), scalar(beta))
    return lowering.clip(assembly, shifted, scalar(0.0), scalar(1.0))


def _over_axes(lower: Callable[[Assembly, Operand, Any, bool], int]) -> Callable[[Assembly, Call], Operand]:
    def translate(assembly: Assembly, call: Call) -> Operand:
        axes = _axes(call, len(assembly.full_shape(call.value(0))))
        if not axes and call.attributes.get("noop_with_empty_axes", 0):
            return call.value(0)
        if not axes:
            raise UnsupportedError("over all axes, the batch among them")
        return lower(assembly, call.value(0), axes, bool(call.attributes.get("keepdims", 1)))

    return translate


def _single(number: float) -> float:
    """A default of ONNX, which is a float32."""
    return torch.tensor(number, dtype=torch.float32).item()


def _flatten(assembly: Assembly, call: Call) -> Operand:
    shape = assembly.full_shape(call.value(0))
    axis = call.attributes.get("axis", 1)
    axis += len(shape) if axis < 0 else 0
    return assembly.reshape(call.value(0), (prod(shape[:axis]), prod(shape[axis:])))


def _reshape(assembly: Assembly, call: Call) -> Operand:
    before = assembly.full_shape(call.value(0))
    wanted = call.constant(1).flatten().tolist()
    if not call.attributes.get("allowzero", 0):
        kept = [*before, *([0] * len(wanted))]
        wanted = [kept[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    rest = prod(size for size in wanted if size != -1)
    after = tuple(prod(before) // rest if size == -1 and rest else size for size in wanted)
    if prod(after) != prod(before):
        raise UnsupportedError(f"{before} to {tuple(wanted)} does not keep the count of numbers")
    return assembly.reshape(call.value(0), after)


def _squeeze(assembly: Assembly, call: Call) -> Operand:
    shape = assembly.full_shape(call.value(0))
    axes = _axes(call, len(shape))
    if axes is None:
        axes = {axis for axis, size in enumerate(shape) if size == 1}
    return assembly.reshape(call.value(0), tuple(size for axis, size in enumerate(shape) if axis not in axes))


def _unsqueeze(assembly: Assembly, call: Call) -> Operand:
    sizes = assembly.full_shape(call.value(0))
    rank = len(sizes) + len(_axes(call, 0) or ())
    axes = _axes(call, rank) or set()
    left = iter(sizes)
    after = tuple(1 if axis in axes else next(left, 1) for axis in range(rank))
    return assembly.reshape(call.value(0), after)


def _axes(call: Call, rank: int) -> set[int] | None:
    """The axes of a (un)squeeze, None if not given: an attribute before operator set 13, an input since."""
    given = call.attributes.get("axes")
    if given is None and call.optional(1) is not None:
        given = call.constant(1).tolist()
    return None if given is None else {axis + rank if axis < 0 else axis for axis in given}


def _identity(assembly: Assembly, call: Call) -> Operand:
    return call.value(0)


def _dropout(assembly: Assembly, call: Call) -> Operand:
    if call.optional(2) is not None and bool(call.constant(2).any()):
        raise UnsupportedError("training_mode=1")
    return call.value(0)


def _cast(assembly: Assembly, call: Call) -> Operand:
    return assembly.cast(call.value(0), PRECISIONS.get(call.attributes["to"], f"type {call.attributes['to']}"))


def _shape(assembly: Assembly, call: Call) -> Operand:
    shape: Shape = assembly.full_shape(call.value(0))
    return torch.tensor(shape[slice(call.attributes.get("start", 0), call.attributes.get("end"))])


def _ranked(default: int) -> Callable[[Assembly, Call], Operand]:
    """A layer over the class scores that keeps their order; default: its axis where none is given."""

    def translate(assembly: Assembly, call: Call) -> Operand:
        return assembly.scores(call.value(0), call.attributes.get("axis", default))

    return translate


RULES: dict[str, Rule] = {
    "Abs": Rule(_absolute),
    "Add": Rule(_add),
    "ArgMax": Rule(_ranked(0), ("axis", "keepdims", "select_last_index"), keeps_order=True),
    "Cast": Rule(_cast, ("to", "saturate")),
    "Clip": Rule(_clip, ("min", "max")),
    "Div": Rule(_divide),
    "Dropout": Rule(_dropout, ("ratio", "seed")),
    "Flatten": Rule(_flatten, ("axis",)),
    "Gemm": Rule(_gemm, ("alpha", "beta", "transB"), {"transA": 0}),
    "HardSigmoid": Rule(_hard_sigmoid, ("alpha", "beta")),
    "Identity": Rule(_identity),
    "LeakyRelu": Rule(_leaky_relu, ("alpha",)),
    "LogSoftmax": Rule(_ranked(1), ("axis",), keeps_order=True),
    "MatMul": Rule(_matmul),
    "Max": Rule(_maximum),
    "Mean": Rule(_mean),
    "Min": Rule(_minimum),
    "Mul": Rule(_multiply),
    "Neg": Rule(_negate),
    "PRelu": Rule(_parametric_relu),
    "ReduceMean": Rule(_over_axes(lowering.mean), ("axes", "keepdims", "noop_with_empty_axes")),
    "ReduceSum": Rule(_over_axes(lowering.total), ("axes", "keepdims", "noop_with_empty_axes")),
    "Relu": Rule(_relu),
    "Reshape": Rule(_reshape, ("allowzero",)),
    "Shape": Rule(_shape, ("start", "end")),
    "Softmax": Rule(_ranked(1), ("axis",), keeps_order=True),
    "Squeeze": Rule(_squeeze, ("axes",)),
    "Sub": Rule(_subtract),
    "Sum": Rule(_sum),
    "Unsqueeze": Rule(_unsqueeze, ("axes",)),
}
"""Operators on values that depend on the input."""

MOVES = frozenset({
    "Concat", "Constant", "ConstantOfShape", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Shape",
    "Slice", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators that may create or rearrange constants: none of them rounds."""
