"""Activations, by the names of ONNX."""

from __future__ import annotations

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import activations as lowering
from relucert.inputs.loading.lowering import smooth
from relucert.inputs.loading.onnx_rules.call import OnnxCall, OnnxRule, single
from relucert.inputs.loading.operands import Operand, scalar
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
    Sigmoid,
    Sin,
    Softsign,
    Sqrt,
    Tanh,
)


def _relu(assembly: Assembly, call: OnnxCall) -> Operand:
    return assembly.relu(call.value(0))


def _maximum(assembly: Assembly, call: OnnxCall) -> Operand:
    return lowering.maximum(assembly, *call.operands())


def _minimum(assembly: Assembly, call: OnnxCall) -> Operand:
    return lowering.minimum(assembly, *call.operands())


def _clip(assembly: Assembly, call: OnnxCall) -> Operand:
    """The ends were attributes before operator set 11 and are inputs since."""
    ends = []
    for position, name in ((1, "min"), (2, "max")):
        attribute = call.attributes.get(name)
        omitted = call.optional(position) is None
        stored = None if omitted else call.constant(position)
        ends.append(stored if attribute is None else scalar(attribute))
    return lowering.clip(assembly, call.value(0), *ends)


def _leaky_relu(assembly: Assembly, call: OnnxCall) -> Operand:
    return lowering.leaky_relu(assembly, call.value(0), scalar(call.attributes.get("alpha", single(0.01))))


def _parametric_relu(assembly: Assembly, call: OnnxCall) -> Operand:
    return lowering.leaky_relu(assembly, call.value(0), call.constant(1))


def _absolute(assembly: Assembly, call: OnnxCall) -> Operand:
    return lowering.absolute(assembly, call.value(0))


def _hard_sigmoid(assembly: Assembly, call: OnnxCall) -> Operand:
    alpha, beta = call.attributes.get("alpha", single(0.2)), call.attributes.get("beta", 0.5)
    shifted = assembly.add(assembly.multiply(call.value(0), scalar(alpha)), scalar(beta))
    return lowering.clip(assembly, shifted, scalar(0.0), scalar(1.0))


def _plain(activation: Activation) -> OnnxRule:
    """An activation without parameters."""
    return OnnxRule(lambda assembly, call: assembly.activation(activation, call.value(0)))


def _gelu(assembly: Assembly, call: OnnxCall) -> Operand:
    form = call.text("approximate", "none")
    if form not in ("none", "tanh"):
        raise UnsupportedError(f"approximate={form}")
    return assembly.activation(Gelu() if form == "none" else GeluTanh(), call.value(0))


def _softplus(assembly: Assembly, call: OnnxCall) -> Operand:
    return smooth.softplus(assembly, call.value(0), 1.0, smooth.LEAST_THRESHOLD)


def _swish(assembly: Assembly, call: OnnxCall) -> Operand:
    return smooth.swish(assembly, call.value(0), call.attributes.get("alpha", 1.0))


def _elu(assembly: Assembly, call: OnnxCall) -> Operand:
    return smooth.elu(assembly, call.value(0), call.attributes.get("alpha", 1.0))


def _selu(assembly: Assembly, call: OnnxCall) -> Operand:
    alpha, gamma = (call.attributes.get(name, single(default)) for name, default in SELU.items())
    return smooth.elu(assembly, call.value(0), alpha, gamma)


def _celu(assembly: Assembly, call: OnnxCall) -> Operand:
    return smooth.celu(assembly, call.value(0), call.attributes.get("alpha", 1.0))


def _power(assembly: Assembly, call: OnnxCall) -> Operand:
    return smooth.power(assembly, call.value(0), call.constant(1))


SELU = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}

RULES: dict[str, OnnxRule] = {
    "Abs": OnnxRule(_absolute),
    "Clip": OnnxRule(_clip, ("min", "max")),
    "HardSigmoid": OnnxRule(_hard_sigmoid, ("alpha", "beta")),
    "LeakyRelu": OnnxRule(_leaky_relu, ("alpha",)),
    "Max": OnnxRule(_maximum),
    "Min": OnnxRule(_minimum),
    "PRelu": OnnxRule(_parametric_relu),
    "Relu": OnnxRule(_relu),
    "Celu": OnnxRule(_celu, ("alpha",)),
    "Cos": _plain(Cos()),
    "Elu": OnnxRule(_elu, ("alpha",)),
    "Erf": _plain(Erf()),
    "Exp": _plain(Exp()),
    "Gelu": OnnxRule(_gelu, ("approximate",)),
    "HardSwish": _plain(HardSwish()),
    "Log": _plain(Log()),
    "Mish": _plain(Mish()),
    "Pow": OnnxRule(_power),
    "Reciprocal": OnnxRule(lambda assembly, call: assembly.divide(scalar(1.0), call.value(0))),
    "Selu": OnnxRule(_selu, ("alpha", "gamma")),
    "Sigmoid": _plain(Sigmoid()),
    "Sin": _plain(Sin()),
    "Softplus": OnnxRule(_softplus),
    "Softsign": _plain(Softsign()),
    "Sqrt": _plain(Sqrt()),
    "Swish": OnnxRule(_swish, ("alpha",)),
    "Tanh": _plain(Tanh()),
}
