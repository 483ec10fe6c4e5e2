"""Layers that multiply and divide computed values: products of matrices, softmax, attention, normalisation."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import products, reductions
from relucert.inputs.loading.operands import Operand, computed_value, scalar
from relucert.network import Exp, Power, Reciprocal, Sqrt


def matmul(assembly: Assembly, left: Operand, right: Operand) -> int:
    """`left @ right`; of two values, (..., rows, terms) and (..., terms, columns), whose axes before broadcast."""
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        return products.matmul(assembly, left, right)
    first, second = assembly.full_shape(left), assembly.full_shape(right)
    if min(len(assembly.shape(left)), len(assembly.shape(right))) < 2 or first[-1] != second[-2]:
        raise UnsupportedError(f"a product of values of shapes {first} and {second}")
    rows = assembly.reshape(left, (*first[:-1], 1, first[-1]))
    columns = assembly.reshape(_moved(assembly, right, -2, -1), (*second[:-2], 1, second[-1], second[-2]))
    terms = assembly.multiply(rows, columns)
    return reductions.total(assembly, terms, [-1], False)


def softmax(assembly: Assembly, value: Operand, axis: int) -> int:
    """`1 / (1 + sum over the rivals of e^(x_rival - x))`, along an axis, counted with the batch as axis 0."""
    full = assembly.full_shape(value)
    (along,) = assembly.axes(value, [axis])  # which refuses the batch
    batch, count = len(full) - len(assembly.shape(value)), assembly.shape(value)[along]
    if count == 1:
        raise UnsupportedError("of a single number")
    last = _moved(assembly, computed_value(value), along + batch, -1)
    indices = torch.arange(prod(assembly.shape(last))).reshape(assembly.shape(last))
    rival_indices = torch.tensor([[rival for rival in range(count) if rival != index] for index in range(count)])
    rivals = assembly.index_map(last, indices[..., rival_indices])
    repeated = assembly.index_map(last, indices[..., None].expand(*indices.shape, count - 1))
    summed = reductions.total(assembly, assembly.activation(Exp(), assembly.add(rivals, repeated, -1.0)), [-1], False)
    shares = assembly.activation(Reciprocal(), assembly.add(summed, scalar(1.0)))
    return _moved(assembly, shares, -1, along + batch)


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
    """A value with one axis moved, counted with the batch as axis 0 or from the end."""
    full, shape = assembly.full_shape(value), assembly.shape(value)
    before, after = ((axis + len(full) if axis < 0 else axis) - len(full) + len(shape) for axis in (source, target))
    return assembly.index_map(value, torch.arange(prod(shape)).reshape(shape).movedim(before, after).contiguous())
