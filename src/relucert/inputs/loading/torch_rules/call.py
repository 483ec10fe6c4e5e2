"""The types of a call of an ATen operator and of a rule that translates it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.operands import Operand, scalar
from relucert.network import Shape


@dataclass(frozen=True)
class TorchCall:
    """A call of an ATen operator.

    arguments: by their schema names; shape: of its result, batch first.
    run: the operator itself, with some arguments replaced; its result, or the one of several that is used.
    """

    arguments: Mapping[str, Any]
    shape: Shape
    run: Callable[[Mapping[str, Any]], Tensor]

    def operand(self, name: str) -> Operand:
        """A value, a constant tensor, or a plain number as a constant."""
        argument = self.arguments[name]
        if isinstance(argument, Reference):
            return argument.operand
        if not isinstance(argument, int | float):
            raise UnsupportedError(f"{name}={argument}")
        return scalar(argument)

    def operands(self, name: str) -> list[Operand]:
        """The values and constants of a list."""
        return [entry.operand for entry in self.arguments[name]]

    def optional(self, name: str) -> Tensor | None:
        return None if self.arguments[name] is None else self.constant(name)

    def constant(self, name: str) -> Tensor:
        operand = self.operand(name)
        if not isinstance(operand, Tensor):
            raise UnsupportedError(f"a computed {name}")
        return operand

    def plain(self, name: str) -> Any:
        """An argument as it is."""
        return self.arguments[name]

    def number(self, name: str) -> float:
        return float(self.arguments[name])

    def sizes(self, name: str) -> list[int]:
        """The whole numbers of a list, or a single one."""
        argument: int | Sequence[int] = self.arguments[name]
        return [argument] if isinstance(argument, int) else list(argument)


@dataclass(frozen=True)
class Reference:
    """An operand that comes from another node, as opposed to a plain number among the arguments."""

    operand: Operand


@dataclass(frozen=True)
class TorchRule:
    """The translation of an operator, and the arguments that it uses; any other must have its default value.

    arguments: None where it uses all of them, since it runs the operator itself.
    keeps_order: the operator only keeps the order of the class scores; as the last one it is left out.
    several: of several results any may be used, not the first one alone.
    """

    translate: Callable[[Assembly, TorchCall], Operand]
    arguments: tuple[str, ...] | None = None
    keeps_order: bool = False
    several: bool = False


Reader = Callable[[TorchCall, str], Any]
"""Reads an argument of a call by its name."""

VALUE: Reader = TorchCall.operand  # or a constant
CONSTANT: Reader = TorchCall.constant
OPTIONAL: Reader = TorchCall.optional
NUMBER: Reader = TorchCall.number
PLAIN: Reader = TorchCall.plain


def rule(lower: Callable[..., Operand], /, *ignored: str, **arguments: Reader) -> TorchRule:
    """The rule that reads these arguments and hands them, in this order, to a lowering.

    ignored: arguments that change nothing.
    """

    def translate(assembly: Assembly, call: TorchCall) -> Operand:
        return lower(assembly, *(read(call, name) for name, read in arguments.items()))

    return TorchRule(translate, (*arguments, *ignored))
