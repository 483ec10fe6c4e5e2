"""Layers of straight pieces as the few operations that a network has: affine maps and ReLU.

Each function takes an assembly and operands as the foreign graph has them, so that the rules for torch and for ONNX
call one lowering. All are exact in real arithmetic: a number that is stored is never combined with another one here.
A layer costs one ReLU for each bend of its graph.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce as fold
from math import prod

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.loading.assembly import Assembly, Operand, scalar

LARGEST_MATRIX = 2**26  # entries of the matrix that a sum over axes becomes


def leaky_relu(assembly: Assembly, value: Operand, slope: Tensor) -> int:
    """`x` where it is positive, else `slope * x`: `relu(x) + slope * (x - relu(x))`."""
    positive = assembly.relu(value)
    return assembly.add(positive, assembly.multiply(assembly.add(value, positive, -1.0), slope))


def mean_slope_relu(assembly: Assembly, value: Operand, lower: Tensor, upper: Tensor) -> int:
    """`x` where it is positive, else `(lower + upper) / 2 * x`."""
    positive = assembly.relu(value)
    negative = assembly.add(value, positive, -1.0)
    doubled = assembly.add(assembly.multiply(negative, lower), assembly.multiply(negative, upper))
    return assembly.add(positive, assembly.divide(doubled, scalar(2.0)))


def parametric_relu(assembly: Assembly, value: Operand, slope: Tensor) -> int:
    """A leaky ReLU whose slopes belong to the first axis after the batch; slope: (channels,) or (1,)."""
    axes = len(assembly.shape(value))
    return leaky_relu(assembly, value, slope.reshape(-1, *[1] * (axes - 1)) if slope.numel() > 1 else slope.flatten())


def absolute(assembly: Assembly, value: Operand) -> int:
    """`2 * relu(x) - x`."""
    return assembly.add(assembly.multiply(assembly.relu(value), scalar(2.0)), value, -1.0)


def maximum(assembly: Assembly, *operands: Operand) -> int:
    """The largest of values and constants: `max(x, y) = y + relu(x - y)`."""
    return _value(fold(lambda left, right: _larger(assembly, left, right), _values_first(operands)))


def minimum(assembly: Assembly, *operands: Operand) -> int:
    """The smallest of values and constants: `min(x, y) = y - relu(y - x)`."""
    return _value(fold(lambda left, right: _smaller(assembly, left, right), _values_first(operands)))


def clip(assembly: Assembly, value: Operand, low: Tensor | None, high: Tensor | None) -> int:
    """`min(max(x, low), high)`; None, or a number beyond those of float32, is no end."""
    clipped, beyond = _value(value), torch.finfo(torch.float32).max
    if low is not None and not bool((low <= -beyond).all()):
        clipped = maximum(assembly, clipped, low)
    if high is not None and not bool((high >= beyond).all()):
        clipped = minimum(assembly, clipped, high)
    return clipped


def total(assembly: Assembly, value: Operand, axes: Collection[int], keep_axes: bool) -> int:
    """The sum over these axes, counted with the batch as axis 0; keep_axes: they stay, with size 1."""
    before = assembly.shape(value)
    rank = len(before) + 1
    summed = {axis + rank if axis < 0 else axis for axis in axes}
    if not summed <= set(range(1, rank)):
        raise UnsupportedError(f"over the axes {sorted(summed)} of {(assembly.batch, *before)}, the batch among them")
    kept = [size for axis, size in enumerate(before, start=1) if axis not in summed]
    if prod(before) * prod(kept) > LARGEST_MATRIX:
        raise UnsupportedError(f"a sum of {before} over the axes {sorted(summed)}, which is too large a matrix")
    positions = torch.arange(prod(kept)).reshape([1 if axis in summed else before[axis - 1] for axis in range(1, rank)])
    target = positions.expand(before).flatten()
    matrix = torch.zeros(prod(kept), prod(before), dtype=assembly.precision)
    matrix[target, torch.arange(prod(before))] = 1
    flat = assembly.reshape(value, (assembly.batch, prod(before)))
    after = positions.shape if keep_axes else tuple(kept)
    return assembly.reshape(assembly.gemm(flat, matrix, None), (assembly.batch, *after))


def mean(assembly: Assembly, value: Operand, axes: Collection[int], keep_axes: bool) -> int:
    """The mean over these axes: their sum, divided by the count."""
    summed = total(assembly, value, axes, keep_axes)
    count = prod(assembly.shape(value)) // max(1, prod(assembly.shape(summed)))
    return summed if count == 1 else assembly.divide(summed, scalar(float(count)))


def add_all(assembly: Assembly, operands: Sequence[Operand]) -> Operand:
    """The sum of values and constants."""
    return fold(lambda left, right: assembly.add(left, right), _values_first(operands))


def _values_first(operands: Sequence[Operand]) -> list[Operand]:
    """Values before constants, so that no two constants are combined."""
    return sorted(operands, key=lambda operand: isinstance(operand, Tensor))


def _larger(assembly: Assembly, value: Operand, other: Operand) -> Operand:
    if isinstance(other, Tensor) and not bool(other.any()):
        return assembly.relu(assembly.fitting(value, other))
    return assembly.add(assembly.relu(assembly.add(value, other, -1.0)), other)


def _smaller(assembly: Assembly, value: Operand, other: Operand) -> Operand:
    return assembly.add(other, assembly.relu(assembly.add(other, value, -1.0)), -1.0)


def _value(operand: Operand) -> int:
    if isinstance(operand, Tensor):
        raise UnsupportedError("of constants alone")
    return operand
