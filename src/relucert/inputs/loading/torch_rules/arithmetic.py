"""Products, sums, reductions and casts, and the layers that may come last, by the names of ATen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import attention, products, reductions
from relucert.inputs.loading.operands import Operand, matrix, scalar
from relucert.inputs.loading.torch_rules.call import TorchCall, TorchRule


def _identity(assembly: Assembly, call: TorchCall) -> Operand:
    return call.operand("self")


def _over_axes(lower: Callable[[Assembly, Operand, Any, bool], int]) -> Callable[[Assembly, TorchCall], Operand]:
    def translate(assembly: Assembly, call: TorchCall) -> Operand:
        axes = call.arguments["dim"]
        if axes is None or axes == []:
            raise UnsupportedError("over all axes, the batch among them")
        return lower(assembly, call.operand("self"), call.sizes("dim"), bool(call.arguments["keepdim"]))

    return translate


def _cast(assembly: Assembly, call: TorchCall) -> Operand:
    if call.arguments["dtype"] is None:  # a change of device
        return call.operand("self")
    return assembly.cast(call.operand("self"), call.arguments["dtype"])


def _cast_as(assembly: Assembly, call: TorchCall) -> Operand:
    return assembly.cast(call.operand("self"), call.constant("other").dtype)


def _linear(assembly: Assembly, call: TorchCall) -> Operand:
    bias = None if call.arguments["bias"] is None else call.constant("bias")
    return products.affine(assembly, call.operand("input"), matrix(call.constant("weight")), bias)


def _product(left: str, right: str) -> Callable[[Assembly, TorchCall], Operand]:
    def translate(assembly: Assembly, call: TorchCall) -> Operand:
        return attention.matmul(assembly, call.operand(left), call.operand(right))

    return translate


def _addmm(assembly: Assembly, call: TorchCall) -> Operand:
    weight = matrix(call.constant("mat2")).T
    alpha, beta = float(call.arguments["alpha"]), float(call.arguments["beta"])
    return products.affine(assembly, call.operand("mat1"), weight, call.operand("self"), alpha, beta)


def _add(assembly: Assembly, call: TorchCall) -> Operand:
    return assembly.add(call.operand("self"), call.operand("other"), float(call.arguments["alpha"]))


def _subtract(assembly: Assembly, call: TorchCall) -> Operand:
    return assembly.add(call.operand("self"), call.operand("other"), -float(call.arguments["alpha"]))


def _subtract_reversed(assembly: Assembly, call: TorchCall) -> Operand:
    return assembly.add(call.operand("other"), call.operand("self"), -float(call.arguments["alpha"]))


def _multiply(assembly: Assembly, call: TorchCall) -> Operand:
    return assembly.multiply(call.operand("self"), call.operand("other"))


def _divide(assembly: Assembly, call: TorchCall) -> Operand:
    return assembly.divide(call.operand("self"), call.operand("other"))


def _negate(assembly: Assembly, call: TorchCall) -> Operand:
    return assembly.multiply(call.operand("self"), scalar(-1.0))


def _ranked(assembly: Assembly, call: TorchCall) -> Operand:
    if call.arguments.get("half_to_float"):
        raise UnsupportedError("half_to_float=True")
    return assembly.scores(call.operand("self"), call.arguments["dim"])


def _softmax(assembly: Assembly, call: TorchCall) -> Operand:
    """A softmax of class scores is left out, since it keeps their order; elsewhere it is computed."""
    if len(assembly.shape(call.operand("self"))) == 1:
        return _ranked(assembly, call)
    return attention.softmax(assembly, call.operand("self"), call.arguments["dim"])


def _attention(assembly: Assembly, call: TorchCall) -> Operand:
    query, key, value = (call.operand(name) for name in ("query", "key", "value"))
    return attention.attention(assembly, query, key, value, call.arguments["scale"])


def _layer_norm(assembly: Assembly, call: TorchCall) -> Operand:
    axes, gain, bias = len(call.sizes("normalized_shape")), call.optional("weight"), call.optional("bias")
    return attention.layer_norm(assembly, call.operand("input"), axes, gain, bias, float(call.arguments["eps"]))


def _rms_norm(assembly: Assembly, call: TorchCall) -> Operand:
    value, axes, gain = call.operand("input"), len(call.sizes("normalized_shape")), call.optional("weight")
    epsilon = call.arguments["eps"]
    smallest = torch.finfo(assembly.precision).eps if epsilon is None else float(epsilon)
    normal = attention.root_mean_square_norm(assembly, value, axes, smallest)
    return normal if gain is None else assembly.multiply(normal, gain)


def _group_norm(assembly: Assembly, call: TorchCall) -> Operand:
    gain, bias, epsilon = call.optional("weight"), call.optional("bias"), float(call.arguments["eps"])
    return attention.group_norm(assembly, call.operand("input"), call.arguments["num_groups"], gain, bias, epsilon)


_NORM = ("input", "normalized_shape", "weight", "bias", "eps")
_SUM = ("self", "other", "alpha")
_PAIR = ("self", "other")
_AXES = ("self", "dim", "keepdim")

RULES: dict[str, TorchRule] = {
    "linear": TorchRule(_linear, ("input", "weight", "bias")),
    "addmm": TorchRule(_addmm, ("self", "mat1", "mat2", "beta", "alpha")),
    "mm": TorchRule(_product("self", "mat2"), ("self", "mat2")),
    "matmul": TorchRule(_product("self", "other"), _PAIR),
    "mv": TorchRule(_product("self", "vec"), ("self", "vec")),
    "sum.dim_IntList": TorchRule(_over_axes(reductions.total), _AXES),
    "mean.dim": TorchRule(_over_axes(reductions.mean), _AXES),
    **{name: TorchRule(_over_axes(reductions.maximum), _AXES) for name in ("amax", "max.dim")},
    **{name: TorchRule(_over_axes(reductions.minimum), _AXES) for name in ("amin", "min.dim")},
    "_to_copy": TorchRule(_cast, ("self", "dtype", "device")),
    "type_as": TorchRule(_cast_as, _PAIR),
    "neg": TorchRule(_negate, ("self",)),
    **{f"add.{overload}": TorchRule(_add, _SUM) for overload in ("Tensor", "Scalar")},
    **{f"sub.{overload}": TorchRule(_subtract, _SUM) for overload in ("Tensor", "Scalar")},
    **{f"rsub.{overload}": TorchRule(_subtract_reversed, _SUM) for overload in ("Tensor", "Scalar")},
    **{f"mul.{overload}": TorchRule(_multiply, _PAIR) for overload in ("Tensor", "Scalar")},
    **{
        f"{name}.{overload}": TorchRule(_divide, _PAIR)
        for name in ("div", "true_divide")
        for overload in ("Tensor", "Scalar")
    },
    "softmax.int": TorchRule(_softmax, ("self", "dim"), keeps_order=True),
    "log_softmax.int": TorchRule(_ranked, ("self", "dim"), keeps_order=True),
    "_softmax": TorchRule(_softmax, ("self", "dim", "half_to_float"), keeps_order=True),
    "_log_softmax": TorchRule(_ranked, ("self", "dim", "half_to_float"), keeps_order=True),
    "bmm": TorchRule(_product("self", "mat2"), ("self", "mat2")),
    "scaled_dot_product_attention": TorchRule(_attention, ("query", "key", "value", "scale")),
    "layer_norm": TorchRule(_layer_norm, (*_NORM, "cudnn_enable")),
    "native_layer_norm": TorchRule(_layer_norm, _NORM),
    "rms_norm": TorchRule(_rms_norm, ("input", "normalized_shape", "weight", "eps")),
    "group_norm": TorchRule(_group_norm, ("input", "num_groups", "weight", "bias", "eps", "cudnn_enabled")),
    "argmax": TorchRule(_ranked, ("self", "dim", "keepdim"), keeps_order=True),
    **{name: TorchRule(_identity, ("self",)) for name in ("alias", "detach")},
    **{name: TorchRule(_identity, ("self", "memory_format")) for name in ("clone", "contiguous")},
}
