"""What each ATen operator of an exported torch program becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.loading.assembly import Assembly, Operand, matrix, scalar
from relucert.network import Shape


@dataclass(frozen=True)
class Call:
    """One call of an operator: its arguments by their schema names, and the shape of its result, batch first."""

    arguments: Mapping[str, Any]
    shape: Shape

    def operand(self, name: str) -> Operand:
        """A value, a constant tensor, or a plain number as a constant."""
        given = self.arguments[name]
        if isinstance(given, Reference):
            return given.operand
        if not isinstance(given, int | float):
            raise UnsupportedError(f"{name}={given}")
        return scalar(given)

    def constant(self, name: str) -> Tensor:
        operand = self.operand(name)
        if not isinstance(operand, Tensor):
            raise UnsupportedError(f"a computed {name}")
        return operand


@dataclass(frozen=True)
class Reference:
    """An operand that comes from another node, as opposed to a plain number among the arguments."""

    operand: Operand


@dataclass(frozen=True)
class Rule:
    """How to translate an operator, and the arguments the translation uses; any other must have its default value.

    keeps_order: the operator only keeps the order of the class scores; as the last one it is left out.
    """

    translate: Callable[[Assembly, Call], Operand]
    arguments: tuple[str, ...]
    keeps_order: bool = False


def _identity(assembly: Assembly, call: Call) -> Operand:
    return call.operand("self")


def _reshape(assembly: Assembly, call: Call) -> Operand:
    return assembly.reshape(call.operand("self"), call.shape)


def _relu(assembly: Assembly, call: Call) -> Operand:
    return assembly.relu(call.operand("self"))


def _clamp(assembly: Assembly, call: Call) -> Operand:
    if call.arguments["min"] != 0:
        raise UnsupportedError(f"min={call.arguments['min']}; only a minimum of 0 is a ReLU")
    return _relu(assembly, call)


def _maximum(assembly: Assembly, call: Call) -> Operand:
    return assembly.maximum(call.operand("self"), call.operand("other"))


def _linear(assembly: Assembly, call: Call) -> Operand:
    bias = None if call.arguments["bias"] is None else call.constant("bias")
    return assembly.gemm(call.operand("input"), matrix(call.constant("weight")), bias)


def _product(right: str) -> Callable[[Assembly, Call], Operand]:
    def translate(assembly: Assembly, call: Call) -> Operand:
        return assembly.gemm(call.operand("self"), matrix(call.constant(right)).T, None)

    return translate


def _addmm(assembly: Assembly, call: Call) -> Operand:
    weight = matrix(call.constant("mat2")).T
    alpha, beta = float(call.arguments["alpha"]), float(call.arguments["beta"])
    return assembly.gemm(call.operand("mat1"), weight, call.operand("self"), alpha, beta)


def _add(assembly: Assembly, call: Call) -> Operand:
    return assembly.add(call.operand("self"), call.operand("other"), float(call.arguments["alpha"]))


def _subtract(assembly: Assembly, call: Call) -> Operand:
    return assembly.add(call.operand("self"), call.operand("other"), -float(call.arguments["alpha"]))


def _subtract_reversed(assembly: Assembly, call: Call) -> Operand:
    return assembly.add(call.operand("other"), call.operand("self"), -float(call.arguments["alpha"]))


def _multiply(assembly: Assembly, call: Call) -> Operand:
    return assembly.multiply(call.operand("self"), call.operand("other"))


def _divide(assembly: Assembly, call: Call) -> Operand:
    return assembly.divide(call.operand("self"), call.operand("other"))


def _negate(assembly: Assembly, call: Call) -> Operand:
    return assembly.multiply(call.operand("self"), scalar(-1.0))


def _ranked(assembly: Assembly, call: Call) -> Operand:
    if call.arguments.get("half_to_float"):
        raise UnsupportedError("half_to_float=True")
    return assembly.scores(call.operand("self"), call.arguments["dim"])


_SUM = ("self", "other", "alpha")
_PAIR = ("self", "other")

RULES: dict[str, Rule] = {
    "linear": Rule(_linear, ("input", "weight", "bias")),
    "addmm": Rule(_addmm, ("self", "mat1", "mat2", "beta", "alpha")),
    "mm": Rule(_product("mat2"), ("self", "mat2")),
    "matmul": Rule(_product("other"), _PAIR),
    "relu": Rule(_relu, ("self",)),
    "clamp": Rule(_clamp, ("self", "min")),
    "clamp_min": Rule(_clamp, ("self", "min")),
    "maximum": Rule(_maximum, _PAIR),
    "neg": Rule(_negate, ("self",)),
    **{f"add.{overload}": Rule(_add, _SUM) for overload in ("Tensor", "Scalar")},
    **{f"sub.{overload}": Rule(_subtract, _SUM) for overload in ("Tensor", "Scalar")},
    **{f"rsub.{overload}": Rule(_subtract_reversed, _SUM) for overload in ("Tensor", "Scalar")},
    **{f"mul.{overload}": Rule(_multiply, _PAIR) for overload in ("Tensor", "Scalar")},
    **{f"div.{overload}": Rule(_divide, _PAIR) for overload in ("Tensor", "Scalar")},
    **{name: Rule(_reshape, ("self", "size")) for name in ("view", "_unsafe_view")},
    "reshape": Rule(_reshape, ("self", "shape")),
    "flatten.using_ints": Rule(_reshape, ("self", "start_dim", "end_dim")),
    "unflatten.int": Rule(_reshape, ("self", "dim", "sizes")),
    "squeeze": Rule(_reshape, ("self",)),
    **{name: Rule(_reshape, ("self", "dim")) for name in ("squeeze.dim", "squeeze.dims", "unsqueeze")},
    **{name: Rule(_ranked, ("self", "dim"), keeps_order=True) for name in ("softmax.int", "log_softmax.int")},
    **{
        name: Rule(_ranked, ("self", "dim", "half_to_float"), keeps_order=True) for name in ("_softmax", "_log_softmax")
    },
    "argmax": Rule(_ranked, ("self", "dim", "keepdim"), keeps_order=True),
    **{name: Rule(_identity, ("self",)) for name in ("alias", "detach")},
    **{name: Rule(_identity, ("self", "memory_format")) for name in ("clone", "contiguous")},
}
"""Operators on values that depend on the input."""

MOVES = frozenset({
    "alias", "clone", "contiguous", "detach", "expand", "flatten.using_ints", "full", "lift_fresh_copy",
    "ones", "permute", "reshape", "scalar_tensor", "select.int", "slice.Tensor", "squeeze", "squeeze.dim",
    "squeeze.dims", "t", "transpose.int", "unflatten.int", "unsqueeze", "_unsafe_view", "view", "zeros",
})  # fmt: skip
"""Operators that may create or rearrange constants: none of them rounds."""
