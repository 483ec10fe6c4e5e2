"""Activations, by the names of ATen."""

from __future__ import annotations

from collections.abc import Callable

from relucert import network
from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import activations as lowering
from relucert.inputs.loading.operands import Operand, scalar
from relucert.inputs.loading.torch_rules.call import TorchCall, TorchRule, lowered, of_two
from relucert.network import Activation


def _clip(low: str | None, high: str | None) -> TorchRule:
    def translate(assembly: Assembly, call: TorchCall) -> Operand:
        ends = [None if end is None else call.optional(end) for end in (low, high)]
        return lowering.clip(assembly, call.operand("self"), *ends)

    return TorchRule(translate, tuple(name for name in ("self", low, high) if name is not None))


def _hard_sigmoid(assembly: Assembly, value: Operand) -> int:
    shifted = assembly.add(value, scalar(3.0))
    return assembly.divide(lowering.clip(assembly, shifted, scalar(0.0), scalar(6.0)), scalar(6.0))


def _threshold(assembly: Assembly, call: TorchCall) -> Operand:
    if call.arguments["threshold"] != call.arguments["value"]:
        raise UnsupportedError("a jump: threshold and value differ")
    return lowering.maximum(assembly, call.operand("self"), call.constant("threshold"))


def _plain(activation: Activation) -> TorchRule:
    """An activation without parameters."""
    return lowered(lambda assembly, value: assembly.activation(activation, value))


def _with_numbers(lower: Callable[..., int], *numbers: str) -> TorchRule:
    """A layer of one value, and of parameters that are plain numbers."""

    def translate(assembly: Assembly, call: TorchCall) -> Operand:
        return lower(assembly, call.operand("self"), *(float(call.arguments[name]) for name in numbers))

    return TorchRule(translate, ("self", *numbers))


def _gelu(assembly: Assembly, call: TorchCall) -> Operand:
    forms: dict[object, Activation] = {"none": network.Gelu(), "tanh": network.GeluTanh()}
    return assembly.activation(forms[call.arguments["approximate"]], call.operand("self"))


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
PLAIN: dict[str, Activation] = {
    "sigmoid": network.Sigmoid(), "special_expit": network.Sigmoid(), "tanh": network.Tanh(), "erf": network.Erf(),
    "special_erf": network.Erf(), "exp": network.Exp(), "log": network.Log(), "sqrt": network.Sqrt(),
    "square": network.Power(2), "sin": network.Sin(), "cos": network.Cos(), "silu": network.Silu(),
    "mish": network.Mish(), "hardswish": network.HardSwish(),
}  # fmt: skip

RULES: dict[str, TorchRule] = {
    "relu": lowered(Assembly.relu),
    **dict.fromkeys(("clamp", "clamp.Tensor", "clip"), _clip("min", "max")),
    **dict.fromkeys(("clamp_min", "clamp_min.Tensor"), _clip("min", None)),
    **dict.fromkeys(("clamp_max", "clamp_max.Tensor"), _clip(None, "max")),
    "hardtanh": _clip("min_val", "max_val"),
    "relu6": lowered(lambda assembly, value: lowering.clip(assembly, value, scalar(0.0), scalar(6.0))),
    "hardsigmoid": lowered(_hard_sigmoid),
    "threshold": TorchRule(_threshold, ("self", "threshold", "value")),
    "leaky_relu": lowered(lowering.leaky_relu, "negative_slope"),
    "rrelu": lowered(lowering.mean_slope_relu, "lower", "upper"),
    "prelu": lowered(lowering.parametric_relu, "weight"),
    "abs": lowered(lowering.absolute),
    **dict.fromkeys(("maximum", "max.other"), of_two(lowering.maximum)),
    **dict.fromkeys(("minimum", "min.other"), of_two(lowering.minimum)),
    **{name: _plain(activation) for name, activation in PLAIN.items()},
    "reciprocal": lowered(lambda assembly, value: assembly.divide(scalar(1.0), value)),
    "gelu": TorchRule(_gelu, ("self", "approximate")),
    "softplus": _with_numbers(lowering.softplus, "beta", "threshold"),
    "elu": _with_numbers(lowering.elu, "alpha", "scale", "input_scale"),
    "selu": lowered(lambda assembly, value: lowering.elu(assembly, value, SELU_ALPHA, SELU_SCALE)),
    "celu": _with_numbers(lowering.celu, "alpha"),
    "log_sigmoid": lowered(lowering.log_sigmoid),
    "expm1": lowered(lowering.expm1),
    "log1p": lowered(lowering.log1p),
    "rsqrt": lowered(lowering.inverse_root),
    **dict.fromkeys(("pow.Tensor_Scalar", "pow.Tensor_Tensor"), lowered(lowering.power, "exponent")),
}
