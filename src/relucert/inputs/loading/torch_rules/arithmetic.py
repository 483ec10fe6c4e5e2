"""Products, sums, reductions and casts, and the layers that may come last, by the names of ATen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import products, reductions
from relucert.inputs.loading.operands import Operand, matrix, scalar
from relucert.inputs.loading.torch_rules.call import TorchCall, TorchRule, lowered, of_two


def _over_axes(lower: Callable[[Assembly, Operand, Any, bool], int]) -> Callable[[Assembly, TorchCall], Operand]:
    def translate(assembly: Assembly, call: TorchCall) -> Operand:
        axes = call.arguments["dim"]
        if axes is None or axes == []:
            raise UnsupportedError("over all axes, the batch among them")
        return lower(assembly, call.operand("self"), call.sizes("dim"), bool(call.arguments["keepdim"]))

    return translate


def _same(assembly: Assembly, call: TorchCall) -> Operand:
    return call.operand("self")


def _cast(assembly: Assembly, call: TorchCall) -> Operand:
    if call.arguments["dtype"] is None:  # a change of device
        return call.operand("self")
    return assembly.cast(call.operand("self"), call.arguments["dtype"])


def _cast_as(assembly: Assembly, call: TorchCall) -> Operand:
    return assembly.cast(call.operand("self"), call.constant("other").dtype)


def _linear(assembly: Assembly, call: TorchCall) -> Operand:
    return products.affine(assembly, call.operand("input"), matrix(call.constant("weight")), call.optional("bias"))


def _addmm(assembly: Assembly, call: TorchCall) -> Operand:
    weight = matrix(call.constant("mat2")).T
    alpha, beta = float(call.arguments["alpha"]), float(call.arguments["beta"])
    return products.affine(assembly, call.operand("mat1"), weight, call.operand("self"), alpha, beta)


def _ranked(assembly: Assembly, call: TorchCall) -> Operand:
    if call.arguments.get("half_to_float"):
        raise UnsupportedError("half_to_float=True")
    return assembly.scores(call.operand("self"), call.arguments["dim"])


def _softmax(assembly: Assembly, call: TorchCall) -> Operand:
    """A softmax of class scores is left out, since it keeps their order; elsewhere it is computed."""
    if len(assembly.shape(call.operand("self"))) == 1:
        return _ranked(assembly, call)
    return products.softmax(assembly, call.operand("self"), call.arguments["dim"])


def _attention(assembly: Assembly, call: TorchCall) -> Operand:
    query, key, value = (call.operand(name) for name in ("query", "key", "value"))
    return products.attention(assembly, query, key, value, call.arguments["scale"])


def _layer_norm(assembly: Assembly, call: TorchCall) -> Operand:
    axes, gain, bias = len(call.sizes("normalized_shape")), call.optional("weight"), call.optional("bias")
    return products.layer_norm(assembly, call.operand("input"), axes, gain, bias, float(call.arguments["eps"]))


def _rms_norm(assembly: Assembly, call: TorchCall) -> Operand:
    value, axes, gain = call.operand("input"), len(call.sizes("normalized_shape")), call.optional("weight")
    epsilon = call.arguments["eps"]
    smallest = torch.finfo(assembly.precision).eps if epsilon is None else float(epsilon)
    normal = products.root_mean_square_norm(assembly, value, axes, smallest)
    return normal if gain is None else assembly.multiply(normal, gain)


def _group_norm(assembly: Assembly, call: TorchCall) -> Operand:
    gain, bias, epsilon = call.optional("weight"), call.optional("bias"), float(call.arguments["eps"])
    return products.group_norm(assembly, call.operand("input"), call.arguments["num_groups"], gain, bias, epsilon)


def _sum(sign: float, left: str = "self", right: str = "other") -> TorchRule:
    """`left + sign * alpha * right`."""

    def translate(assembly: Assembly, call: TorchCall) -> Operand:
        return assembly.add(call.operand(left), call.operand(right), sign * float(call.arguments["alpha"]))

    return TorchRule(translate, ("self", "other", "alpha"))


_NORM = ("input", "normalized_shape", "weight", "bias", "eps")
_AXES = ("self", "dim", "keepdim")

RULES: dict[str, TorchRule] = {
    "linear": TorchRule(_linear, ("input", "weight", "bias")),
    "addmm": TorchRule(_addmm, ("self", "mat1", "mat2", "beta", "alpha")),
    **dict.fromkeys(("mm", "bmm"), of_two(products.matmul, "mat2")),
    "matmul": of_two(products.matmul),
    "mv": of_two(products.matmul, "vec"),
    "sum.dim_IntList": TorchRule(_over_axes(reductions.total), _AXES),
    "mean.dim": TorchRule(_over_axes(reductions.mean), _AXES),
    **dict.fromkeys(("amax", "max.dim"), TorchRule(_over_axes(reductions.maximum), _AXES)),
    **dict.fromkeys(("amin", "min.dim"), TorchRule(_over_axes(reductions.minimum), _AXES)),
    "_to_copy": TorchRule(_cast, ("self", "dtype", "device")),
    "type_as": TorchRule(_cast_as, ("self", "other")),
    "neg": lowered(lambda assembly, value: assembly.multiply(value, scalar(-1.0))),
    **dict.fromkeys(("add.Tensor", "add.Scalar"), _sum(1.0)),
    **dict.fromkeys(("sub.Tensor", "sub.Scalar"), _sum(-1.0)),
    **dict.fromkeys(("rsub.Tensor", "rsub.Scalar"), _sum(-1.0, "other", "self")),
    **dict.fromkeys(("mul.Tensor", "mul.Scalar"), of_two(Assembly.multiply)),
    **dict.fromkeys(("div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar"), of_two(Assembly.divide)),
    "softmax.int": TorchRule(_softmax, ("self", "dim"), keeps_order=True),
    "log_softmax.int": TorchRule(_ranked, ("self", "dim"), keeps_order=True),
    "_softmax": TorchRule(_softmax, ("self", "dim", "half_to_float"), keeps_order=True),
    "_log_softmax": TorchRule(_ranked, ("self", "dim", "half_to_float"), keeps_order=True),
    "scaled_dot_product_attention": TorchRule(_attention, ("query", "key", "value", "scale")),
    "layer_norm": TorchRule(_layer_norm, (*_NORM, "cudnn_enable")),
    "native_layer_norm": TorchRule(_layer_norm, _NORM),
    "rms_norm": TorchRule(_rms_norm, ("input", "normalized_shape", "weight", "eps")),
    "group_norm": TorchRule(_group_norm, ("input", "num_groups", "weight", "bias", "eps", "cudnn_enabled")),
    "argmax": TorchRule(_ranked, ("self", "dim", "keepdim"), keeps_order=True),
    **dict.fromkeys(("alias", "detach"), TorchRule(_same, ("self",))),
    **dict.fromkeys(("clone", "contiguous"), TorchRule(_same, ("self", "memory_format"))),
}
