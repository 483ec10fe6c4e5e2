"""Products, sums, reductions and casts, and the layers that may come last, by the names of ATen."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import einsum, products, reductions
from relucert.inputs.loading.operands import Operand, matrix, scalar
from relucert.inputs.loading.torch_rules.call import (
    CONSTANT,
    NUMBER,
    OPTIONAL,
    PLAIN,
    VALUE,
    TorchCall,
    TorchRule,
    rule,
)


def _matrix(call: TorchCall, name: str) -> Tensor:
    return matrix(call.constant(name))


def _transposed(call: TorchCall, name: str) -> Tensor:
    return _matrix(call, name).T


def _axes(call: TorchCall, name: str) -> list[int]:
    if call.arguments[name] is None or call.arguments[name] == []:
        raise UnsupportedError("over all axes, the batch among them")
    return call.sizes(name)


def _count(call: TorchCall, name: str) -> int:
    """How many sizes a list has."""
    return len(call.sizes(name))


def _cast(assembly: Assembly, value: Operand, dtype: torch.dtype | None) -> Operand:
    return value if dtype is None else assembly.cast(value, dtype)  # None: a change of device


def _subtract(assembly: Assembly, left: Operand, right: Operand, times: float) -> Operand:
    return assembly.add(left, right, -times)


def _ranked(assembly: Assembly, value: Operand, axis: int, half_to_float: bool = False) -> Operand:
    if half_to_float:
        raise UnsupportedError("half_to_float=True")
    return assembly.scores(value, axis)


def _norm(assembly: Assembly, value: Operand, axes: list[int], keep_axes: bool, order: float | None) -> Operand:
    """A norm of vectors, which are along one axis, or of matrices that are taken for vectors."""
    if order is not None and len(axes) > 1:
        raise UnsupportedError(f"a norm of matrices, ord={order}")
    return reductions.norm(assembly, value, axes, keep_axes, 2.0 if order is None else float(order))


def _softmax(assembly: Assembly, value: Operand, axis: int, half_to_float: bool = False) -> Operand:
    """A softmax of class scores is left out, since it keeps their order; elsewhere it is computed."""
    if len(assembly.shape(value)) == 1:
        return _ranked(assembly, value, axis, half_to_float)
    return products.softmax(assembly, value, axis)


def _rms_norm(assembly: Assembly, value: Operand, axes: int, gain: Tensor | None, epsilon: float | None) -> Operand:
    smallest = torch.finfo(assembly.precision).eps if epsilon is None else float(epsilon)
    normal = products.root_mean_square_norm(assembly, value, axes, smallest)
    return normal if gain is None else assembly.multiply(normal, gain)


def _keeping_order(ranking: TorchRule) -> TorchRule:
    return replace(ranking, keeps_order=True)


_LAYER_NORM = {"input": VALUE, "normalized_shape": _count, "weight": OPTIONAL, "bias": OPTIONAL, "eps": NUMBER}
_GROUP_NORM = {"input": VALUE, "num_groups": PLAIN, "weight": OPTIONAL, "bias": OPTIONAL, "eps": NUMBER}
_AXES = {"self": VALUE, "dim": _axes, "keepdim": PLAIN}
_SCORES = {"self": VALUE, "dim": PLAIN}
_PAIR = {"self": VALUE, "other": VALUE}

RULES: dict[str, TorchRule] = {
    "linear": rule(products.affine, input=VALUE, weight=_matrix, bias=OPTIONAL),
    "addmm": rule(products.affine, mat1=VALUE, mat2=_transposed, self=VALUE, alpha=NUMBER, beta=NUMBER),
    **dict.fromkeys(("mm", "bmm"), rule(products.matmul, self=VALUE, mat2=VALUE)),
    "matmul": rule(products.matmul, **_PAIR),
    "mv": rule(products.matmul, self=VALUE, vec=VALUE),
    "einsum": rule(einsum.einsum, "path", equation=PLAIN, tensors=TorchCall.operands),
    "bilinear": rule(einsum.bilinear, input1=VALUE, input2=VALUE, weight=CONSTANT, bias=OPTIONAL),
    "sum.dim_IntList": rule(reductions.total, **_AXES),
    "mean.dim": rule(reductions.mean, **_AXES),
    **dict.fromkeys(("amax", "max.dim"), rule(reductions.maximum, **_AXES)),
    **dict.fromkeys(("amin", "min.dim"), rule(reductions.minimum, **_AXES)),
    "linalg_vector_norm": rule(reductions.norm, **_AXES, ord=NUMBER),
    "linalg_norm": rule(_norm, **_AXES, ord=PLAIN),
    "_to_copy": rule(_cast, "device", self=VALUE, dtype=PLAIN),
    "type_as": rule(lambda assembly, value, other: assembly.cast(value, other.dtype), self=VALUE, other=CONSTANT),
    "neg": rule(lambda assembly, value: assembly.multiply(value, scalar(-1.0)), self=VALUE),
    **dict.fromkeys(("add.Tensor", "add.Scalar"), rule(Assembly.add, **_PAIR, alpha=NUMBER)),
    **dict.fromkeys(("sub.Tensor", "sub.Scalar"), rule(_subtract, **_PAIR, alpha=NUMBER)),
    **dict.fromkeys(("rsub.Tensor", "rsub.Scalar"), rule(_subtract, other=VALUE, self=VALUE, alpha=NUMBER)),
    **dict.fromkeys(("mul.Tensor", "mul.Scalar"), rule(Assembly.multiply, **_PAIR)),
    **dict.fromkeys(
        ("div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar"), rule(Assembly.divide, **_PAIR)
    ),
    "softmax.int": _keeping_order(rule(_softmax, **_SCORES)),
    "log_softmax.int": _keeping_order(rule(_ranked, **_SCORES)),
    "_softmax": _keeping_order(rule(_softmax, **_SCORES, half_to_float=PLAIN)),
    "_log_softmax": _keeping_order(rule(_ranked, **_SCORES, half_to_float=PLAIN)),
    "argmax": _keeping_order(rule(_ranked, "keepdim", **_SCORES)),
    "glu": rule(products.gated_linear_unit, self=VALUE, dim=PLAIN),
    "scaled_dot_product_attention": rule(products.attention, query=VALUE, key=VALUE, value=VALUE, scale=PLAIN),
    "layer_norm": rule(products.layer_norm, "cudnn_enable", **_LAYER_NORM),
    "native_layer_norm": rule(products.layer_norm, **_LAYER_NORM),
    "rms_norm": rule(_rms_norm, input=VALUE, normalized_shape=_count, weight=OPTIONAL, eps=PLAIN),
    "group_norm": rule(products.group_norm, "cudnn_enabled", **_GROUP_NORM),
    **dict.fromkeys(("alias", "detach"), rule(lambda assembly, value: value, self=VALUE)),
    **dict.fromkeys(("clone", "contiguous"), rule(lambda assembly, value: value, "memory_format", self=VALUE)),
}
