"""Products of matrices, and layers that multiply and divide computed values: softmax, attention, normalisation."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import reductions
from relucert.inputs.loading.operands import Operand, computed_value, scalar
from relucert.network import Exp, Power, Reciprocal, Sigmoid, Sqrt


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


def matmul(assembly: Assembly, left: Operand, right: Operand) -> int:
    """`left @ right`; of two values, (..., rows, terms) and (..., terms, columns), whose axes before broadcast."""
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        return _constant_product(assembly, left, right)
    first, second = assembly.full_shape(left), assembly.full_shape(right)
    if min(len(assembly.shape(left)), len(assembly.shape(right))) < 2 or first[-1] != second[-2]:
        raise UnsupportedError(f"a product of values of shapes {first} and {second}")
    rows = assembly.reshape(left, (*first[:-1], 1, first[-1]))
    columns = assembly.reshape(_moved(assembly, right, -2, -1), (*second[:-2], 1, second[-1], second[-2]))
    terms = assembly.multiply(rows, columns)
    return reductions.total(assembly, terms, [-1], False)


def gated_linear_unit(assembly: Assembly, value: Operand, axis: int) -> int:
    """The first half of the value along an axis, counted with the batch as axis 0, times the sigmoid of the other."""
    shape, (along,) = assembly.shape(value), assembly.axes(value, [axis])
    if shape[along] % 2:
        raise UnsupportedError(f"halves of {shape[along]}")
    halves = torch.arange(prod(shape)).reshape(shape).chunk(2, along)
    half, gate = (assembly.index_map(value, indices.contiguous()) for indices in halves)
    return assembly.multiply(half, assembly.activation(Sigmoid(), gate))


def softmax(assembly: Assembly, value: Operand, axis: int) -> int:
    """`1 / (1 + sum over the rivals of e^(x_rival - x))`, along an axis, counted with the batch as axis 0."""
    (along,) = assembly.axes(value, [axis])  # which refuses the batch
    count = assembly.shape(value)[along]
    if count == 1:
        raise UnsupportedError("of a single number")
    last = _moved(assembly, computed_value(value), along, -1)
    indices = torch.arange(prod(assembly.shape(last))).reshape(assembly.shape(last))
    rival_indices = torch.tensor([[rival for rival in range(count) if rival != index] for index in range(count)])
    rivals = assembly.index_map(last, indices[..., rival_indices])
    repeated = assembly.index_map(last, indices[..., None].expand(*indices.shape, count - 1))
    summed = reductions.total(assembly, assembly.activation(Exp(), assembly.add(rivals, repeated, -1.0)), [-1], False)
    shares = assembly.activation(Reciprocal(), assembly.add(summed, scalar(1.0)))
    return _moved(assembly, shares, -1, along)


def attention(assembly: Assembly, query: Operand, key: Operand, values: Operand, scale: float | None) -> int:
    """`softmax(query @ key^T * scale) @ values`, (..., positions, size) each; scale: by default 1 / sqrt(size)."""
    size = assembly.shape(query)[-1]
    scores = matmul(assembly, query, _moved(assembly, computed_value(key), -2, -1))
    scaled = assembly.multiply(scores, scalar(size**-0.5 if scale is None else scale))
    return matmul(assembly, softmax(assembly, scaled, -1), values)


def layer_norm(
    assembly: Assembly, value: Operand, axes: int, gain: Tensor | None, bias: Tensor | None, epsilon: float
) -> int:
    """`(x - mean) / sqrt(variance + epsilon) * gain + bias`, over the last axes."""
    mean = reductions.mean(assembly, value, range(-axes, 0), True)
    centred = assembly.add(value, assembly.expanded(mean, assembly.shape(value)), -1.0)
    return _with_gain(assembly, root_mean_square_norm(assembly, centred, axes, epsilon), gain, bias)


def root_mean_square_norm(assembly: Assembly, value: Operand, axes: int, epsilon: float) -> int:
    """`x / sqrt(mean of x^2 + epsilon)`, over the last axes."""
    square = reductions.mean(assembly, assembly.activation(Power(2), value), range(-axes, 0), True)
    return assembly.divide(value, assembly.activation(Sqrt(), assembly.add(square, scalar(epsilon))))


def group_norm(
    assembly: Assembly, value: Operand, groups: int, gain: Tensor | None, bias: Tensor | None, epsilon: float
) -> int:
    """A layer normalisation of each group of channels; gain and bias: one number per channel."""
    shape = assembly.shape(value)
    if shape[0] % groups:
        raise UnsupportedError(f"{shape[0]} channels in {groups} groups")
    grouped = assembly.reshaped(value, (groups, prod(shape) // groups))
    normal = assembly.reshaped(layer_norm(assembly, grouped, 1, None, None, epsilon), shape)
    by_channel = [None if weights is None else weights.reshape(-1, *[1] * (len(shape) - 1)) for weights in (gain, bias)]
    return _with_gain(assembly, normal, *by_channel)


def _with_gain(assembly: Assembly, value: int, gain: Tensor | None, bias: Tensor | None) -> int:
    scaled = value if gain is None else assembly.multiply(value, gain)
    return scaled if bias is None else assembly.add(scaled, bias)


def _moved(assembly: Assembly, value: int, source: int, target: int) -> int:
    """A value with one axis moved, counted without the batch."""
    shape = assembly.shape(value)
    return assembly.index_map(value, torch.arange(prod(shape)).reshape(shape).movedim(source, target).contiguous())


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


def _constant_product(assembly: Assembly, left: Operand, right: Operand) -> int:
    """`left @ right`, one of which is a constant, on the last axis of a value or the one before it."""
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
