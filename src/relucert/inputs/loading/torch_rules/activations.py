"""Activations, by the names of ATen."""

from __future__ import annotations

from collections.abc import Callable

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import activations as lowering
from relucert.inputs.loading.lowering import smooth
from relucert.inputs.loading.operands import Operand, scalar
from relucert.inputs.loading.torch_rules.call import TorchCall, TorchRule
from relucert.network import (
    Activation,
    Cos,
    Erf,
    Exp,
    Gelu,
    GeluTanh,
    HardSwish,
    Log,
    Mish,
    Power,
    Sigmoid,
    Silu,
    Sin,
    Sqrt,
    Tanh,
)


def _relu(assembly: Assembly, call: TorchCall) -> Operand:
    return assembly.relu(call.operand("self"))


def _clip(low: str | None, high: str | None) -> Callable[[Assembly, TorchCall], Operand]:
    def translate(assembly: Assembly, call: TorchCall) -> Operand:
        ends = [None if end is None else call.optional(end) for end in (low, high)]
        return lowering.clip(assembly, call.operand("self"), *ends)

    return translate


def _relu6(assembly: Assembly, call: TorchCall) -> Operand:
    return lowering.clip(assembly, call.operand("self"), scalar(0.0), scalar(6.0))


def _hard_sigmoid(assembly: Assembly, call: TorchCall) -> Operand:
    shifted = assembly.add(call.operand("self"), scalar(3.0))
    return assembly.divide(lowering.clip(assembly, shifted, scalar(0.0), scalar(6.0)), scalar(6.0))


def _threshold(assembly: Assembly, call: TorchCall) -> Operand:
    if call.arguments["threshold"] != call.arguments["value"]:
        raise UnsupportedError("a jump: threshold and value differ")
    return lowering.maximum(assembly, call.operand("self"), call.constant("threshold"))


def _leaky_relu(assembly: Assembly, call: TorchCall) -> Operand:
    return lowering.leaky_relu(assembly, call.operand("self"), call.constant("negative_slope"))


def _mean_slope_relu(assembly: Assembly, call: TorchCall) -> Operand:
    return lowering.mean_slope_relu(assembly, call.operand("self"), call.constant("lower"), call.constant("upper"))


def _parametric_relu(assembly: Assembly, call: TorchCall) -> Operand:
    return lowering.parametric_relu(assembly, call.operand("self"), call.constant("weight"))


def _absolute(assembly: Assembly, call: TorchCall) -> Operand:
    return lowering.absolute(assembly, call.operand("self"))


def _maximum(assembly: Assembly, call: TorchCall) -> Operand:
    return lowering.maximum(assembly, call.operand("self"), call.operand("other"))


def _minimum(assembly: Assembly, call: TorchCall) -> Operand:
    return lowering.minimum(assembly, call.operand("self"), call.operand("other"))


def _plain(activation: Activation) -> TorchRule:
    """An activation without parameters."""
    return TorchRule(lambda assembly, call: assembly.activation(activation, call.operand("self")), ("self",))


def _lowered(lower: Callable[[Assembly, Operand], int]) -> TorchRule:
    return TorchRule(lambda assembly, call: lower(assembly, call.operand("self")), ("self",))


def _gelu(assembly: Assembly, call: TorchCall) -> Operand:
    forms: dict[object, Activation] = {"none": Gelu(), "tanh": GeluTanh()}
    return assembly.activation(forms[call.arguments["approximate"]], call.operand("self"))


def _softplus(assembly: Assembly, call: TorchCall) -> Operand:
    return smooth.softplus(
        assembly, call.operand("self"), float(call.arguments["beta"]), float(call.arguments["threshold"])
    )


def _elu(assembly: Assembly, call: TorchCall) -> Operand:
    alpha, scale, input_scale = (float(call.arguments[name]) for name in ("alpha", "scale", "input_scale"))
    return smooth.elu(assembly, call.operand("self"), alpha, scale, input_scale)


def _selu(assembly: Assembly, call: TorchCall) -> Operand:
    return smooth.elu(assembly, call.operand("self"), SELU_ALPHA, SELU_SCALE)


def _celu(assembly: Assembly, call: TorchCall) -> Operand:
    return smooth.celu(assembly, call.operand("self"), float(call.arguments["alpha"]))


def _power(assembly: Assembly, call: TorchCall) -> Operand:
    return smooth.power(assembly, call.operand("self"), call.constant("exponent"))


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
_PAIR = ("self", "other")

RULES: dict[str, TorchRule] = {
    "relu": TorchRule(_relu, ("self",)),
    **{name: TorchRule(_clip("min", "max"), ("self", "min", "max")) for name in ("clamp", "clamp.Tensor", "clip")},
    **{name: TorchRule(_clip("min", None), ("self", "min")) for name in ("clamp_min", "clamp_min.Tensor")},
    **{name: TorchRule(_clip(None, "max"), ("self", "max")) for name in ("clamp_max", "clamp_max.Tensor")},
    "hardtanh": TorchRule(_clip("min_val", "max_val"), ("self", "min_val", "max_val")),
    "relu6": TorchRule(_relu6, ("self",)),
    "hardsigmoid": TorchRule(_hard_sigmoid, ("self",)),
    "threshold": TorchRule(_threshold, ("self", "threshold", "value")),
    "leaky_relu": TorchRule(_leaky_relu, ("self", "negative_slope")),
    "rrelu": TorchRule(_mean_slope_relu, ("self", "lower", "upper")),
    "prelu": TorchRule(_parametric_relu, ("self", "weight")),
    "abs": TorchRule(_absolute, ("self",)),
    **{name: TorchRule(_maximum, _PAIR) for name in ("maximum", "max.other")},
    **{name: TorchRule(_minimum, _PAIR) for name in ("minimum", "min.other")},
    "sigmoid": _plain(Sigmoid()),
    "special_expit": _plain(Sigmoid()),
    "tanh": _plain(Tanh()),
    "erf": _plain(Erf()),
    "special_erf": _plain(Erf()),
    "exp": _plain(Exp()),
    "log": _plain(Log()),
    "sqrt": _plain(Sqrt()),
    "reciprocal": _lowered(lambda assembly, value: assembly.divide(scalar(1.0), value)),
    "square": _plain(Power(2)),
    "sin": _plain(Sin()),
    "cos": _plain(Cos()),
    "silu": _plain(Silu()),
    "mish": _plain(Mish()),
    "hardswish": _plain(HardSwish()),
    "gelu": TorchRule(_gelu, ("self", "approximate")),
    "softplus": TorchRule(_softplus, ("self", "beta", "threshold")),
    "elu": TorchRule(_elu, ("self", "alpha", "scale", "input_scale")),
    "selu": TorchRule(_selu, ("self",)),
    "celu": TorchRule(_celu, ("self", "alpha")),
    "log_sigmoid": _lowered(smooth.log_sigmoid),
    "expm1": _lowered(smooth.expm1),
    "log1p": _lowered(smooth.log1p),
    "rsqrt": _lowered(smooth.inverse_root),
    "pow.Tensor_Scalar": TorchRule(_power, ("self", "exponent")),
    "pow.Tensor_Tensor": TorchRule(_power, ("self", "exponent")),
}
