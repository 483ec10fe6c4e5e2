"""Activations, by the names of ONNX."""

from __future__ import annotations

from collections.abc import Callable

from relucert import network
from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import activations as lowering
from relucert.inputs.loading.lowering import smooth
from relucert.inputs.loading.onnx_rules.call import OnnxCall, OnnxRule, single
from relucert.inputs.loading.operands import Operand, scalar
from relucert.network import Activation


def _clip(assembly: Assembly, call: OnnxCall) -> Operand:
    """The ends were attributes before operator set 11 and are inputs since."""
    ends = []
    for position, name in ((1, "min"), (2, "max")):
        attribute = call.attributes.get(name)
        ends.append(call.optional_constant(position) if attribute is None else scalar(attribute))
    return lowering.clip(assembly, call.value(0), *ends)


def _leaky_relu(assembly: Assembly, call: OnnxCall) -> Operand:
    return lowering.leaky_relu(assembly, call.value(0), scalar(call.attributes.get("alpha", single(0.01))))


def _hard_sigmoid(assembly: Assembly, call: OnnxCall) -> Operand:
    alpha, beta = call.attributes.get("alpha", single(0.2)), call.attributes.get("beta", 0.5)
    shifted = assembly.add(assembly.multiply(call.value(0), scalar(alpha)), scalar(beta))
    return lowering.clip(assembly, shifted, scalar(0.0), scalar(1.0))


def _plain(activation: Activation) -> OnnxRule:
    """An activation without parameters."""
    return OnnxRule(lambda assembly, call: assembly.activation(activation, call.value(0)))


def _with_alpha(lower: Callable[[Assembly, Operand, float], int]) -> OnnxRule:
    """An activation with a parameter that is 1 by default."""
    return OnnxRule(
        lambda assembly, call: lower(assembly, call.value(0), call.attributes.get("alpha", 1.0)), ("alpha",)
    )


def _gelu(assembly: Assembly, call: OnnxCall) -> Operand:
    form = call.text("approximate", "none")
    if form not in ("none", "tanh"):
        raise UnsupportedError(f"approximate={form}")
    return assembly.activation(network.Gelu() if form == "none" else network.GeluTanh(), call.value(0))


def _softplus(assembly: Assembly, call: OnnxCall) -> Operand:
    return smooth.softplus(assembly, call.value(0), 1.0, smooth.LEAST_THRESHOLD)


def _selu(assembly: Assembly, call: OnnxCall) -> Operand:
    alpha, gamma = (call.attributes.get(name, single(default)) for name, default in SELU.items())
    return smooth.elu(assembly, call.value(0), alpha, gamma)


SELU = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}
PLAIN: dict[str, Activation] = {
    "Cos": network.Cos(), "Erf": network.Erf(), "Exp": network.Exp(), "HardSwish": network.HardSwish(),
    "Log": network.Log(), "Mish": network.Mish(), "Relu": network.Relu(), "Sigmoid": network.Sigmoid(),
    "Sin": network.Sin(), "Softsign": network.Softsign(), "Sqrt": network.Sqrt(), "Tanh": network.Tanh(),
}  # fmt: skip

RULES: dict[str, OnnxRule] = {
    **{name: _plain(activation) for name, activation in PLAIN.items()},
    "Abs": OnnxRule(lambda assembly, call: lowering.absolute(assembly, call.value(0))),
    "Celu": _with_alpha(smooth.celu),
    "Clip": OnnxRule(_clip, ("min", "max")),
    "Elu": _with_alpha(smooth.elu),
    "Gelu": OnnxRule(_gelu, ("approximate",)),
    "HardSigmoid": OnnxRule(_hard_sigmoid, ("alpha", "beta")),
    "LeakyRelu": OnnxRule(_leaky_relu, ("alpha",)),
    "Max": OnnxRule(lambda assembly, call: lowering.maximum(assembly, *call.operands())),
    "Min": OnnxRule(lambda assembly, call: lowering.minimum(assembly, *call.operands())),
    "PRelu": OnnxRule(lambda assembly, call: lowering.leaky_relu(assembly, call.value(0), call.constant(1))),
    "Pow": OnnxRule(lambda assembly, call: smooth.power(assembly, call.value(0), call.constant(1))),
    "Reciprocal": OnnxRule(lambda assembly, call: assembly.divide(scalar(1.0), call.value(0))),
    "Selu": OnnxRule(_selu, ("alpha", "gamma")),
    "Softplus": OnnxRule(_softplus),
    "Swish": _with_alpha(smooth.swish),
}
