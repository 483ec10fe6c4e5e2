"""Activations, by the names of ONNX."""

from __future__ import annotations

from collections.abc import Callable

from relucert import network
from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import activations as lowering
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


def _leaky_relu(assembly: Assembly, value: Operand, slope: float) -> int:
    return lowering.leaky_relu(assembly, value, scalar(slope))


def _hard_sigmoid(assembly: Assembly, value: Operand, alpha: float, beta: float) -> int:
    shifted = assembly.add(assembly.multiply(value, scalar(alpha)), scalar(beta))
    return lowering.clip(assembly, shifted, scalar(0.0), scalar(1.0))


def _plain(activation: Activation) -> OnnxRule:
    """An activation without parameters."""
    return _lowered(lambda assembly, value: assembly.activation(activation, value))


def _lowered(lower: Callable[..., Operand], **defaults: float) -> OnnxRule:
    """An activation of one value; defaults: its parameters, which are numbers."""

    def translate(assembly: Assembly, call: OnnxCall) -> Operand:
        numbers = (call.attributes.get(name, single(default)) for name, default in defaults.items())
        return lower(assembly, call.value(0), *numbers)

    return OnnxRule(translate, tuple(defaults))


def _gelu(assembly: Assembly, call: OnnxCall) -> Operand:
    form = call.text("approximate", "none")
    if form not in ("none", "tanh"):
        raise UnsupportedError(f"approximate={form}")
    return assembly.activation(network.Gelu() if form == "none" else network.GeluTanh(), call.value(0))


PLAIN: dict[str, Activation] = {
    "Cos": network.Cos(), "Erf": network.Erf(), "Exp": network.Exp(), "HardSwish": network.HardSwish(),
    "Log": network.Log(), "Mish": network.Mish(), "Relu": network.Relu(), "Sigmoid": network.Sigmoid(),
    "Sin": network.Sin(), "Softsign": network.Softsign(), "Sqrt": network.Sqrt(), "Tanh": network.Tanh(),
}  # fmt: skip

RULES: dict[str, OnnxRule] = {
    **{name: _plain(activation) for name, activation in PLAIN.items()},
    "Abs": _lowered(lowering.absolute),
    "Celu": _lowered(lowering.celu, alpha=1.0),
    "Clip": OnnxRule(_clip, ("min", "max")),
    "Elu": _lowered(lowering.elu, alpha=1.0),
    "Gelu": OnnxRule(_gelu, ("approximate",)),
    "HardSigmoid": _lowered(_hard_sigmoid, alpha=0.2, beta=0.5),
    "LeakyRelu": _lowered(_leaky_relu, alpha=0.01),
    "Max": OnnxRule(lambda assembly, call: lowering.maximum(assembly, *call.operands())),
    "Min": OnnxRule(lambda assembly, call: lowering.minimum(assembly, *call.operands())),
    "PRelu": OnnxRule(lambda assembly, call: lowering.leaky_relu(assembly, call.value(0), call.constant(1))),
    "Pow": OnnxRule(lambda assembly, call: lowering.power(assembly, call.value(0), call.constant(1))),
    "Reciprocal": _lowered(lambda assembly, value: assembly.divide(scalar(1.0), value)),
    "Selu": _lowered(lowering.elu, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875),
    "Shrink": _lowered(lowering.shrink, lambd=0.5, bias=0.0),
    "Softplus": _lowered(lambda assembly, value: lowering.softplus(assembly, value, 1.0, lowering.LEAST_THRESHOLD)),
    "Swish": _lowered(lowering.swish, alpha=1.0),
}
