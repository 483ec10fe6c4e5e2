"""Activations, by the names of ATen."""

from __future__ import annotations

from relucert import network
from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import activations as lowering
from relucert.inputs.loading.operands import Operand, scalar
from relucert.inputs.loading.torch_rules.call import CONSTANT, NUMBER, OPTIONAL, PLAIN, VALUE, TorchRule, rule
from relucert.network import Activation


def _hard_sigmoid(assembly: Assembly, value: Operand) -> int:
    shifted = assembly.add(value, scalar(3.0))
    return assembly.divide(lowering.clip(assembly, shifted, scalar(0.0), scalar(6.0)), scalar(6.0))


def _threshold(assembly: Assembly, value: Operand, threshold: float, replacement: float) -> int:
    if threshold != replacement:
        raise UnsupportedError("a jump: threshold and value differ")
    return lowering.maximum(assembly, value, scalar(threshold))


def _plain(activation: Activation) -> TorchRule:
    """An activation without parameters."""
    return rule(lambda assembly, value: assembly.activation(activation, value), self=VALUE)


def _gelu(assembly: Assembly, value: Operand, approximate: str) -> int:
    forms: dict[str, Activation] = {"none": network.Gelu(), "tanh": network.GeluTanh()}
    return assembly.activation(forms[approximate], value)


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
PLAIN_ACTIVATIONS: dict[str, Activation] = {
    "sigmoid": network.Sigmoid(), "special_expit": network.Sigmoid(), "tanh": network.Tanh(), "erf": network.Erf(),
    "special_erf": network.Erf(), "exp": network.Exp(), "log": network.Log(), "sqrt": network.Sqrt(),
    "square": network.Power(2), "sin": network.Sin(), "cos": network.Cos(), "silu": network.Silu(),
    "mish": network.Mish(), "hardswish": network.HardSwish(),
}  # fmt: skip

RULES: dict[str, TorchRule] = {
    "relu": rule(Assembly.relu, self=VALUE),
    **dict.fromkeys(("clamp", "clamp.Tensor", "clip"), rule(lowering.clip, self=VALUE, min=OPTIONAL, max=OPTIONAL)),
    **dict.fromkeys(("clamp_min", "clamp_min.Tensor"), rule(lowering.clip, self=VALUE, min=OPTIONAL)),
    **dict.fromkeys(
        ("clamp_max", "clamp_max.Tensor"),
        rule(lambda assembly, value, high: lowering.clip(assembly, value, None, high), self=VALUE, max=OPTIONAL),
    ),
    "hardtanh": rule(lowering.clip, self=VALUE, min_val=OPTIONAL, max_val=OPTIONAL),
    "relu6": rule(lambda assembly, value: lowering.clip(assembly, value, scalar(0.0), scalar(6.0)), self=VALUE),
    "hardsigmoid": rule(_hard_sigmoid, self=VALUE),
    "threshold": rule(_threshold, self=VALUE, threshold=PLAIN, value=PLAIN),
    "softshrink": rule(
        lambda assembly, value, ends: lowering.shrink(assembly, value, ends, ends), self=VALUE, lambd=NUMBER
    ),
    "leaky_relu": rule(lowering.leaky_relu, self=VALUE, negative_slope=CONSTANT),
    "rrelu": rule(lowering.mean_slope_relu, self=VALUE, lower=CONSTANT, upper=CONSTANT),
    "prelu": rule(lowering.parametric_relu, self=VALUE, weight=CONSTANT),
    "abs": rule(lowering.absolute, self=VALUE),
    **dict.fromkeys(("maximum", "max.other"), rule(lowering.maximum, self=VALUE, other=VALUE)),
    **dict.fromkeys(("minimum", "min.other"), rule(lowering.minimum, self=VALUE, other=VALUE)),
    **{name: _plain(activation) for name, activation in PLAIN_ACTIVATIONS.items()},
    "reciprocal": rule(lambda assembly, value: assembly.divide(scalar(1.0), value), self=VALUE),
    "gelu": rule(_gelu, self=VALUE, approximate=PLAIN),
    "softplus": rule(lowering.softplus, self=VALUE, beta=NUMBER, threshold=NUMBER),
    "elu": rule(lowering.elu, self=VALUE, alpha=NUMBER, scale=NUMBER, input_scale=NUMBER),
    "selu": rule(lambda assembly, value: lowering.elu(assembly, value, SELU_ALPHA, SELU_SCALE), self=VALUE),
    "celu": rule(lowering.celu, self=VALUE, alpha=NUMBER),
    "log_sigmoid": rule(lowering.log_sigmoid, self=VALUE),
    "expm1": rule(lowering.expm1, self=VALUE),
    "log1p": rule(lowering.log1p, self=VALUE),
    "rsqrt": rule(lowering.inverse_root, self=VALUE),
    **dict.fromkeys(("pow.Tensor_Scalar", "pow.Tensor_Tensor"), rule(lowering.power, self=VALUE, exponent=CONSTANT)),
}
