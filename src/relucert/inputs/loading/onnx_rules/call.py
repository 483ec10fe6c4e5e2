"""The types of a call of an ONNX operator and of a rule that translates it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from onnx import TensorProto
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.operands import Operand

PRECISIONS: dict[int, torch.dtype] = {
    TensorProto.FLOAT16: torch.float16,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.FLOAT: torch.float32,
    TensorProto.DOUBLE: torch.float64,
}


@dataclass(frozen=True)
class OnnxCall:
    """A node of an ONNX graph: its inputs in order, None where one is left out, and its attributes.

    run: the node itself, with some inputs replaced by their positions; its result, or the one of several that is used.
    version: of the operator set.
    """

    inputs: tuple[Operand | None, ...]
    attributes: Mapping[str, Any]
    run: Callable[[Mapping[int, Tensor]], Tensor]
    version: int

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

    def text(self, name: str, default: str) -> str:
        """An attribute that is a word."""
        attribute = self.attributes.get(name, default)
        return attribute.decode() if isinstance(attribute, bytes) else str(attribute)

    def whole(self, position: int, name: str) -> list[int] | None:
        """Whole numbers that were an attribute in older operator sets and are an input since; None if not given."""
        numbers = self.attributes.get(name)
        if numbers is None and self.optional(position) is not None:
            numbers = self.constant(position).flatten().tolist()
        return None if numbers is None else [int(number) for number in numbers]

    def optional_constant(self, position: int) -> Tensor | None:
        return None if self.optional(position) is None else self.constant(position)

    def constant(self, position: int) -> Tensor:
        operand = self.operand(position)
        if not isinstance(operand, Tensor):
            raise UnsupportedError(f"a computed input {position}")
        return operand


@dataclass(frozen=True)
class OnnxRule:
    """The translation of an operator, the attributes that it uses, and those that it accepts with one value only.

    keeps_order: the operator only keeps the order of the class scores; as the last one it is left out.
    several: of several results any may be used, not the first one alone.
    """

    translate: Callable[[Assembly, OnnxCall], Operand]
    attributes: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    keeps_order: bool = False
    several: bool = False

    def accepts(self, attribute: str, value: object) -> bool:
        """Whether the translation respects this attribute; one that the rule does not name is refused."""
        return attribute in self.attributes or (attribute in self.fixed and value == self.fixed[attribute])


def single(number: float) -> float:
    """A default of ONNX, which is a float32."""
    return torch.tensor(number, dtype=torch.float32).item()
