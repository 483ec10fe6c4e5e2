"""Activations, by the names of ONNX."""

from __future__ import annotations

from relucert.inputs.loading.assembly import Assembly, Operand, scalar
from relucert.inputs.loading.lowering import activations as lowering
from relucert.inputs.loading.onnx_rules.call import Call, Rule, single


def _relu(assembly: Assembly, call: Call) -> Operand:
    return assembly.relu(call.value(0))


def _maximum(assembly: Assembly, call: Call) -> Operand:
    return lowering.maximum(assembly, *call.operands())


def _minimum(assembly: Assembly, call: Call) -> Operand:
    return lowering.minimum(assembly, *call.operands())


def _clip(assembly: Assembly, call: Call) -> Operand:
    """The ends were attributes before operator set 11 and are inputs since."""
    ends = []
    for position, name in ((1, "min"), (2, "max")):
        given = call.attributes.get(name)
        left_out = call.optional(position) is None
        stored = None if left_out else call.constant(position)
        ends.append(stored if given is None else scalar(given))
    return lowering.clip(assembly, call.value(0), *ends)


def _leaky_relu(assembly: Assembly, call: Call) -> Operand:
    return lowering.leaky_relu(assembly, call.value(0), scalar(call.attributes.get("alpha", single(0.01))))


def _parametric_relu(assembly: Assembly, call: Call) -> Operand:
    return lowering.leaky_relu(assembly, call.value(0), call.constant(1))


def _absolute(assembly: Assembly, call: Call) -> Operand:
    return lowering.absolute(assembly, call.value(0))


def _hard_sigmoid(assembly: Assembly, call: Call) -> Operand:
    alpha, beta = call.attributes.get("alpha", single(0.2)), call.attributes.get("beta", 0.5)
    shifted = assembly.add(assembly.multiply(call.value(0), scalar(alpha)), scalar(beta))
    return lowering.clip(assembly, shifted, scalar(0.0), scalar(1.0))


RULES: dict[str, Rule] = {
    "Abs": Rule(_absolute),
    "Clip": Rule(_clip, ("min", "max")),
    "HardSigmoid": Rule(_hard_sigmoid, ("alpha", "beta")),
    "LeakyRelu": Rule(_leaky_relu, ("alpha",)),
    "Max": Rule(_maximum),
    "Min": Rule(_minimum),
    "PRelu": Rule(_parametric_relu),
    "Relu": Rule(_relu),
}
