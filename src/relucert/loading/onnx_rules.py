"""What each ONNX operator becomes (operator sets 7 and later)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.loading.assembly import Assembly, Operand, matrix, scalar
from relucert.network import Shape


@dataclass(frozen=True)
class Call:
    """One node: its inputs in order, None where one is left out; its attributes; the type code of the model's input."""

    inputs: tuple[Operand | None, ...]
    attributes: Mapping[str, Any]
    precision: int

    def optional(self, position: int) -> Operand | None:
        return self.inputs[position] if position < len(self.inputs) else None

    def operand(self, position: int) -> Operand:
        operand = self.optional(position)
        if operand is None:
            raise UnsupportedError(f"input {position} left out")
        return operand

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
    if call.optional(2) is not None:
        raise UnsupportedError("more than two inputs")
    return assembly.maximum(call.operand(0), call.operand(1))


def _clip(assembly: Assembly, call: Call) -> Operand:
    if call.optional(2) is not None:
        raise UnsupportedError("an upper end")
    return assembly.maximum(call.value(0), call.constant(1))


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
    if call.attributes["to"] != call.precision:
        raise UnsupportedError("a change of precision")
    return call.value(0)


def _shape(assembly: Assembly, call: Call) -> Operand:
    shape: Shape = assembly.full_shape(call.value(0))
    return torch.tensor(shape[slice(call.attributes.get("start", 0), call.attributes.get("end"))])


def _ranked(default: int) -> Callable[[Assembly, Call], Operand]:
    """A layer over the class scores that keeps their order; default: its axis where none is given."""

    def translate(assembly: Assembly, call: Call) -> Operand:
        return assembly.scores(call.value(0), call.attributes.get("axis", default))

    return translate


RULES: dict[str, Rule] = {
    "Add": Rule(_add),
    "ArgMax": Rule(_ranked(0), ("axis", "keepdims", "select_last_index"), keeps_order=True),
    "Cast": Rule(_cast, ("to", "saturate")),
    "Clip": Rule(_clip),
    "Div": Rule(_divide),
    "Dropout": Rule(_dropout, ("ratio", "seed")),
    "Flatten": Rule(_flatten, ("axis",)),
    "Gemm": Rule(_gemm, ("alpha", "beta", "transB"), {"transA": 0}),
    "Identity": Rule(_identity),
    "MatMul": Rule(_matmul),
    "LogSoftmax": Rule(_ranked(1), ("axis",), keeps_order=True),
    "Max": Rule(_maximum),
    "Mul": Rule(_multiply),
    "Neg": Rule(_negate),
    "Relu": Rule(_relu),
    "Reshape": Rule(_reshape, ("allowzero",)),
    "Shape": Rule(_shape, ("start", "end")),
    "Softmax": Rule(_ranked(1), ("axis",), keeps_order=True),
    "Squeeze": Rule(_squeeze, ("axes",)),
    "Sub": Rule(_subtract),
    "Unsqueeze": Rule(_unsqueeze, ("axes",)),
}
"""Operators on values that depend on the input."""

MOVES = frozenset({
    "Concat", "Constant", "ConstantOfShape", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Shape",
    "Slice", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators that may create or rearrange constants: none of them rounds."""
