"""What each ATen operator of an exported torch program becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.loading import lowering
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

    def optional(self, name: str) -> Tensor | None:
        return None if self.arguments[name] is None else self.constant(name)

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


def _clip(low: str | None, high: str | None) -> Callable[[Assembly, Call], Operand]:
    def translate(assembly: Assembly, call: Call) -> Operand:
        ends = [None if end is None else call.optional(end) for end in (low, high)]
        return lowering.clip(assembly, call.operand("self"), *ends)

    return translate


def _relu6(assembly: Assembly, call: Call) -> Operand:
    return lowering.clip(assembly, call.operand("self"), scalar(0.0), scalar(6.0))


def _hard_sigmoid(assembly: Assembly, call: Call) -> Operand:
    shifted = assembly.add(call.operand("self"), scalar(3.0))
    return assembly.divide(lowering.clip(assembly, shifted, scalar(0.0), scalar(6.0)), scalar(6.0))


def _threshold(assembly: Assembly, call: Call) -> Operand:
    if call.arguments["threshold"] != call.arguments["value"]:
        raise UnsupportedError("a jump: threshold and value differ")
    return lowering.maximum(assembly, call.operand("self"), call.constant("threshold"))


def _leaky_relu(assembly: Assembly, call: Call) -> Operand:
    return lowering.leaky_relu(assembly, call.operand("self"), call.constant("negative_slope"))


def _mean_slope_relu(assembly: Assembly, call: Call) -> Operand:
    return lowering.mean_slope_relu(assembly, call.operand("self"), call.constant("lower"), call.constant("upper"))


def _parametric_relu(assembly: Assembly, call: Call) -> Operand:
    return lowering.parametric_relu(assembly, call.operand("self"), call.constant("weight"))


def _absolute(assembly: Assembly, call: Call) -> Operand:
    return lowering.absolute(assembly, call.operand("self"))


def _maximum(assembly: Assembly, call: Call) -> Operand:
    return lowering.maximum(assembly, call.operand("self"), call.operand("other"))


def _minimum(assembly: Assembly, call: Call) -> Operand:
    return lowering.minimum(assembly, call.operand("self"), call.operand("other"))


def _over_axes(lower: Callable[[Assembly, Operand, Any, bool], int]) -> Callable[[Assembly, Call], Operand]:
    def translate(assembly: Assembly, call: Call) -> Operand:
        axes = call.arguments["dim"]
        if not axes:
            raise UnsupportedError("over all axes, the batch among them")
        return lower(assembly, call.operand("self"), axes, bool(call.arguments["keepdim"]))

    return translate


def _cast(assembly: Assembly, call: Call) -> Operand:
    if call.arguments["dtype"] is None:  # a change of device
        return call.operand("self")
    return assembly.cast(call.operand("self"), call.arguments["dtype"])


def _cast_as(assembly: Assembly, call: Call) -> Operand:
    return assembly.cast(call.operand("self"), call.constant("other").dtype)


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
    **{name: Rule(_clip("min", "max"), ("self", "min", "max")) for name in ("clamp", "clamp.Tensor")},
    **{name: Rule(_clip("min", None), ("self", "min")) for name in ("clamp_min", "clamp_min.Tensor")},
    **{name: Rule(_clip(None, "max"), ("self", "max")) for name in ("clamp_max", "clamp_max.Tensor")},
    "hardtanh": Rule(_clip("min_val", "max_val"), ("self", "min_val", "max_val")),
    "relu6": Rule(_relu6, ("self",)),
    "hardsigmoid": Rule(_hard_sigmoid, ("self",)),
    "threshold": Rule(_threshold, ("self", "threshold", "value")),
    "leaky_relu": Rule(_leaky_relu, ("self", "negative_slope")),
    "rrelu": Rule(_mean_slope_relu, ("self", "lower", "upper")),
    "prelu": Rule(_parametric_relu, ("self", "weight")),
    "abs": Rule(_absolute, ("self",)),
    **{name: Rule(_maximum, _PAIR) for name in ("maximum", "max.other")},
    **{name: Rule(_minimum, _PAIR) for name in ("minimum", "min.other")},
    "sum.dim_IntList": Rule(_over_axes(lowering.total), ("self", "dim", "keepdim")),
    "mean.dim": Rule(_over_axes(lowering.mean), ("self", "dim", "keepdim")),
    "_to_copy": Rule(_cast, ("self", "dtype", "device")),
    "type_as": Rule(_cast_as, _PAIR),
    "neg": Rule(_negate, ("self",)),
    **{f"add.{overload}": Rule(_add, _SUM) for overload in ("Tensor", "Scalar")},
    **{f"sub.{overload}": Rule(_subtract, _SUM) for overload in ("Tensor", "Scalar")},
    **{f"rsub.{overload}": Rule(_subtract_reversed, _SUM) for overload in ("Tensor", "Scalar")},
    **{f"mul.{overload}": Rule(_multiply, _PAIR) for overload in ("Tensor", "Scalar")},
    **{
        f"{name}.{overload}": Rule(_divide, _PAIR)
        for name in ("div", "true_divide")
        for overload in ("Tensor", "Scalar")
    },
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
