"""Products with constant matrices, on the last axis of a value or the one before it."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.operands import Operand, computed_value


def affine(
    assembly: Assembly,
    value: Operand,
    weight: Tensor,
    addend: Operand | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> int:
    """`alpha * x @ weight.T + beta * addend`, over the last axis; weight: (outputs, inputs)."""
    if addend is None and alpha == 1:
        return _product(assembly, value, weight)
    scaled = (alpha, beta) != (1, 1)  # a factor may be part of the weight, or of each product, before the sum
    with assembly.one_sum(weight.shape[1] + (3 if scaled else 1)):
        product = assembly.scaled(_product(assembly, value, weight), alpha)
        return product if addend is None else assembly.add(product, addend, beta)


def _product(assembly: Assembly, value: Operand, weight: Tensor) -> int:
    shape = assembly.shape(value)
    outputs, inputs = weight.shape
    if shape == (inputs,):
        return assembly.linear(value, weight)
    if shape[-1:] != (inputs,):
        hint = ", so flatten it first" if prod(shape) == inputs else ""
        raise UnsupportedError(f"a weight of shape {tuple(weight.shape)} on a value of shape {shape}{hint}")
    positions = prod(shape[:-1])
    if positions == 1:
        product = assembly.linear(assembly.reshaped(value, (inputs,)), weight)
    else:  # every position is a row of an image with one channel, and every output a channel
        image = assembly.reshaped(value, (1, positions, inputs))
        channels = assembly.convolution(image, weight[:, None, None])
        product = assembly.index_map(channels, torch.arange(outputs * positions).reshape(outputs, positions).T)
    return assembly.reshaped(product, (*shape[:-1], outputs))


def matmul(assembly: Assembly, left: Operand, right: Operand) -> int:
    """`left @ right`, one of which is a constant."""
    for constant, value in ((left, right), (right, left)):
        if isinstance(constant, Tensor) and constant.ndim > max(2, len(assembly.full_shape(value))):
            raise UnsupportedError(f"a product with a constant of shape {tuple(constant.shape)}, of more axes")
    if isinstance(right, Tensor):
        weight = _matrix(right)
        product = affine(assembly, left, weight.T if right.ndim > 1 else weight)
        return product if right.ndim > 1 else assembly.reshaped(product, assembly.shape(product)[:-1])
    assert isinstance(left, Tensor)
    return _left_product(assembly, left, computed_value(right))


def _left_product(assembly: Assembly, constant: Tensor, value: int) -> int:
    """`constant @ x`: the rows of x are channels, and its columns the positions of an image."""
    shape, weight = assembly.shape(value), _matrix(constant)
    if assembly.batch is not None and len(shape) < 2:
        raise UnsupportedError("a product over the first axis, the batch")
    matrices, inputs, columns = prod(shape[:-2]), (1, *shape)[-2], shape[-1]
    if len(shape) == 1:
        inputs, columns = shape[0], 1
    if weight.shape[1] != inputs:
        raise UnsupportedError(f"a constant of shape {tuple(constant.shape)} times a value of shape {shape}")
    indices = torch.arange(matrices * inputs * columns).reshape(matrices, inputs, columns)
    image = assembly.index_map(value, indices.transpose(0, 1))  # (inputs, matrices, columns)
    product = assembly.convolution(image, weight[:, :, None, None])
    moved = torch.arange(len(weight) * matrices * columns).reshape(len(weight), matrices, columns).transpose(0, 1)
    result = assembly.index_map(product, moved)
    rows = () if constant.ndim == 1 else (len(weight),)
    return assembly.reshaped(result, (*shape[:-2], *rows, *(() if len(shape) == 1 else (columns,))))


def _matrix(constant: Tensor) -> Tensor:
    """The constant as a matrix; a vector is a row, and further axes must have the size 1."""
    if constant.ndim < 1 or prod(constant.shape[:-2]) != 1:
        raise UnsupportedError(f"a product with a constant of shape {tuple(constant.shape)}")
    return constant.reshape(-1, constant.shape[-1]) if constant.ndim != 1 else constant[None]
