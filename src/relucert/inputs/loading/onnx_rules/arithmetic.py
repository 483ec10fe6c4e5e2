"""Products, sums, reductions and casts, and the layers that may come last, by the names of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import activations, einsum, products, reductions
from relucert.inputs.loading.onnx_rules.call import PRECISIONS, OnnxCall, OnnxRule, single
from relucert.inputs.loading.operands import Operand, matrix, scalar
from relucert.network import Shape


def _gemm(assembly: Assembly, call: OnnxCall) -> Operand:
    attributes = call.attributes
    weight = matrix(call.constant(1))
    weight = weight if attributes.get("transB", 0) else weight.T
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    return products.affine(assembly, call.value(0), weight, call.optional(2), alpha, beta)


def _over_axes(lower: Callable[[Assembly, Operand, Any, bool], int]) -> Callable[[Assembly, OnnxCall], Operand]:
    def translate(assembly: Assembly, call: OnnxCall) -> Operand:
        axes = call.whole(1, "axes")
        if not axes and call.attributes.get("noop_with_empty_axes", 0):
            return call.value(0)
        if not axes:
            raise UnsupportedError("over all axes, the batch among them")
        return lower(assembly, call.value(0), axes, bool(call.attributes.get("keepdims", 1)))

    return translate


def _einsum(assembly: Assembly, call: OnnxCall) -> Operand:
    return einsum.einsum(assembly, call.text("equation", ""), call.operands())


def _normalised(assembly: Assembly, call: OnnxCall) -> Operand:
    axis, order = call.attributes.get("axis", -1), call.attributes.get("p", 2)
    return reductions.normalised(assembly, call.value(0), axis, float(order))


def _dropout(assembly: Assembly, call: OnnxCall) -> Operand:
    if call.optional(2) is not None and bool(call.constant(2).any()):
        raise UnsupportedError("training_mode=1")
    return call.value(0)


def _cast(assembly: Assembly, call: OnnxCall) -> Operand:
    return assembly.cast(call.value(0), PRECISIONS.get(call.attributes["to"], f"type {call.attributes['to']}"))


def _shape(assembly: Assembly, call: OnnxCall) -> Operand:
    shape: Shape = assembly.full_shape(call.value(0))
    return torch.tensor(shape[slice(call.attributes.get("start", 0), call.attributes.get("end"))])


def _ranked(default: int) -> Callable[[Assembly, OnnxCall], Operand]:
    """A layer over the class scores that keeps their order; default: its axis where none is given."""

    def translate(assembly: Assembly, call: OnnxCall) -> Operand:
        return assembly.scores(call.value(0), call.attributes.get("axis", default))

    return translate


def _softmax(assembly: Assembly, call: OnnxCall) -> Operand:
    """A softmax of class scores is left out, since it keeps their order; elsewhere it is computed."""
    value = call.value(0)
    if len(assembly.shape(value)) == 1:
        return _ranked(1)(assembly, call)
    axis = call.attributes.get("axis", 1 if call.version < PER_AXIS else -1)
    if call.version < PER_AXIS and axis not in (-1, len(assembly.full_shape(value)) - 1):
        raise UnsupportedError(f"over all axes from {axis} on, as before operator set {PER_AXIS}")
    return products.softmax(assembly, value, axis)


def _layer_norm(assembly: Assembly, call: OnnxCall) -> Operand:
    value, axis = call.value(0), call.attributes.get("axis", -1)
    axes = len(assembly.full_shape(value)) - axis if axis >= 0 else -axis
    epsilon = call.attributes.get("epsilon", single(1e-5))
    return products.layer_norm(assembly, value, axes, call.constant(1), call.optional_constant(2), epsilon)


def _group_norm(assembly: Assembly, call: OnnxCall) -> Operand:
    value, attributes = call.value(0), call.attributes
    groups = attributes.get("num_groups", assembly.shape(value)[0])
    epsilon = attributes.get("epsilon", single(1e-5))
    return products.group_norm(assembly, value, groups, call.constant(1), call.constant(2), epsilon)


PER_AXIS = 13  # the operator set from which on a softmax is along one axis
_AXES = ("axes", "keepdims", "noop_with_empty_axes")


def _of_two(lower: Callable[[Assembly, Operand, Operand], int]) -> OnnxRule:
    return OnnxRule(lambda assembly, call: lower(assembly, call.operand(0), call.operand(1)))


RULES: dict[str, OnnxRule] = {
    "Add": _of_two(Assembly.add),
    "ArgMax": OnnxRule(_ranked(0), ("axis", "keepdims", "select_last_index"), keeps_order=True),
    "Cast": OnnxRule(_cast, ("to", "saturate", "round_mode")),
    "Div": _of_two(Assembly.divide),
    "Dropout": OnnxRule(_dropout, ("ratio", "seed")),
    "Einsum": OnnxRule(_einsum, ("equation",)),
    "Gemm": OnnxRule(_gemm, ("alpha", "beta", "transB"), {"transA": 0}),
    "GroupNormalization": OnnxRule(_group_norm, ("num_groups", "epsilon", "stash_type")),
    "Identity": OnnxRule(lambda assembly, call: call.value(0)),
    "InstanceNormalization": OnnxRule(_group_norm, ("epsilon",)),
    "LayerNormalization": OnnxRule(_layer_norm, ("axis", "epsilon", "stash_type")),
    "LogSoftmax": OnnxRule(_ranked(1), ("axis",), keeps_order=True),
    "LpNormalization": OnnxRule(_normalised, ("axis", "p")),
    "MatMul": _of_two(products.matmul),
    "Mean": OnnxRule(lambda assembly, call: activations.mean_of_all(assembly, call.operands())),
    "Mul": _of_two(Assembly.multiply),
    "Neg": OnnxRule(lambda assembly, call: assembly.multiply(call.operand(0), scalar(-1.0))),
    "ReduceL1": OnnxRule(_over_axes(partial(reductions.norm, order=1.0)), _AXES),
    "ReduceL2": OnnxRule(_over_axes(partial(reductions.norm, order=2.0)), _AXES),
    "ReduceMax": OnnxRule(_over_axes(reductions.maximum), _AXES),
    "ReduceMean": OnnxRule(_over_axes(reductions.mean), _AXES),
    "ReduceMin": OnnxRule(_over_axes(reductions.minimum), _AXES),
    "ReduceSum": OnnxRule(_over_axes(reductions.total), _AXES),
    "Shape": OnnxRule(_shape, ("start", "end")),
    "Softmax": OnnxRule(_softmax, ("axis",), keeps_order=True),
    "Sub": _of_two(lambda assembly, left, right: assembly.add(left, right, -1.0)),
    "Sum": OnnxRule(lambda assembly, call: activations.add_all(assembly, call.operands())),
}
