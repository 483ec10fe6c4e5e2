"""Products, sums, reductions and casts, and the layers that may come last, by the names of ATen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly, Operand, matrix, scalar
from relucert.inputs.loading.lowering import attention, products, reductions
from relucert.inputs.loading.torch_rules.call import Call, Rule


def _identity(assembly: Assembly, call: Call) -> Operand:
    return call.operand("self")


def _over_axes(lower: Callable[[Assembly, Operand, Any, bool], int]) -> Callable[[Assembly, Call], Operand]:
    def translate(assembly: Assembly, call: Call) -> Operand:
        axes = call.arguments["dim"]
        if axes is None or axes == []:
            raise UnsupportedError("over all axes, the batch among them")
        return lower(assembly, call.operand("self"), call.sizes("dim"), bool(call.arguments["keepdim"]))

    return translate


def _cast(assembly: Assembly, call: Call) -> Operand:
    if call.arguments["dtype"] is None:  # a change of device
        return call.operand("self")
    return assembly.cast(call.operand("self"), call.arguments["dtype"])


def _cast_as(assembly: Assembly, call: Call) -> Operand:
    return assembly.cast(call.operand("self"), call.constant("other").dtype)


def _linear(assembly: Assembly, call: Call) -> Operand:
    bias = None if call.arguments["bias"] is None else call.constant("bias")
    return products.affine(assembly, call.operand("input"), matrix(call.constant("weight")), bias)


def _product(left: str, right: str) -> Callable[[Assembly, Call], Operand]:
    def translate(assembly: Assembly, call: Call) -> Operand:
        return attention.matmul(assembly, call.operand(left), call.operand(right))

    return translate


def _addmm(assembly: Assembly, call: Call) -> Operand:
    weight = matrix(call.constant("mat2")).T
    alpha, beta = float(call.arguments["alpha"]), float(call.arguments["beta"])
    return products.affine(assembly, call.operand("mat1"), weight, call.operand("self"), alpha, beta)


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


def _softmax(assembly: Assembly, call: Call) -> Operand:
    """A softmax of class scores is left out, since it keeps their order; elsewhere it is computed."""
    if len(assembly.shape(call.operand("self"))) == 1:
        return _ranked(assembly, call)
    return attention.softmax(assembly, call.operand("self"), call.arguments["dim"])


def _attention(assembly: Assembly, call: Call) -> Operand:
    query, key, value = (call.operand(name) for name in ("query", "key", "value"))
    return attention.attention(assembly, query, key, value, call.arguments["scale"])


def _layer_norm(assembly: Assembly, call: Call) -> Operand:
    axes, gain, bias = len(call.sizes("normalized_shape")), call.optional("weight"), call.optional("bias")
    return attention.layer_norm(assembly, call.operand("input"), axes, gain, bias, float(call.arguments["eps"]))


def _rms_norm(assembly: Assembly, call: Call) -> Operand:
    value, axes, gain = call.operand("input"), len(call.sizes("normalized_shape")), call.optional("weight")
    epsilon = call.arguments["eps"]
    smallest = torch.finfo(assembly.precision).eps if epsilon is None else float(epsilon)
    normal = attention.root_mean_square_norm(assembly, value, axes, smallest)
    return normal if gain is None else assembly.multiply(normal, gain)


def _group_norm(assembly: Assembly, call: Call) -> Operand:
    gain, bias, epsilon = call.optional("weight"), call.optional("bias"), float(call.arguments["eps"])
    return attention.group_norm(assembly, call.operand("input"), call.arguments["num_groups"], gain, bias, epsilon)


_NORM = ("input", "normalized_shape", "weight", "bias", "eps")
_SUM = ("self", "other", "alpha")
_PAIR = ("self", "other")
_AXES = ("self", "dim", "keepdim")

RULES: dict[str, Rule] = {
    "linear": Rule(_linear, ("input", "weight", "bias")),
    "addmm": Rule(_addmm, ("self", "mat1", "mat2", "beta", "alpha")),
    "mm": Rule(_product("self", "mat2"), ("self", "mat2")),
    "matmul": Rule(_product("self", "other"), _PAIR),
    "mv": Rule(_product("self", "vec"), ("self", "vec")),
    "sum.dim_IntList": Rule(_over_axes(reductions.total), _AXES),
    "mean.dim": Rule(_over_axes(reductions.mean), _AXES),
    **{name: Rule(_over_axes(reductions.maximum), _AXES) for name in ("amax", "max.dim")},
    **{name: Rule(_over_axes(reductions.minimum), _AXES) for name in ("amin", "min.dim")},
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
    "softmax.int": Rule(_softmax, ("self", "dim"), keeps_order=True),
    "log_softmax.int": Rule(_ranked, ("self", "dim"), keeps_order=True),
    "_softmax": Rule(_softmax, ("self", "dim", "half_to_float"), keeps_order=True),
    "_log_softmax": Rule(_ranked, ("self", "dim", "half_to_float"), keeps_order=True),
    "bmm": Rule(_product("self", "mat2"), ("self", "mat2")),
    "scaled_dot_product_attention": Rule(_attention, ("query", "key", "value", "scale")),
    "layer_norm": Rule(_layer_norm, (*_NORM, "cudnn_enable")),
    "native_layer_norm": Rule(_layer_norm, _NORM),
    "rms_norm": Rule(_rms_norm, ("input", "normalized_shape", "weight", "eps")),
    "group_norm": Rule(_group_norm, ("input", "num_groups", "weight", "bias", "eps", "cudnn_enabled")),
    "argmax": Rule(_ranked, ("self", "dim", "keepdim"), keeps_order=True),
    **{name: Rule(_identity, ("self",)) for name in ("alias", "detach")},
    **{name: Rule(_identity, ("self", "memory_format")) for name in ("clone", "contiguous")},
}
