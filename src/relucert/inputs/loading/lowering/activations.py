"""Activations of straight pieces, coordinate by coordinate: one ReLU for each bend of their graphs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.operands import Operand, scalar


def leaky_relu(assembly: Assembly, value: Operand, slope: Tensor) -> int:
    """`x` where it is positive, else `slope * x`: `relu(x) + slope * (x - relu(x))`."""
    positive = assembly.relu(value)
    with assembly.exact():
        negative = assembly.add(value, positive, -1.0)
    scaled = assembly.multiply(negative, slope)
    with assembly.exact():
        return assembly.add(positive, scaled)


def mean_slope_relu(assembly: Assembly, value: Operand, lower: Tensor, upper: Tensor) -> int:
    """`x` where it is positive, else `(lower + upper) / 2 * x`."""
    positive = assembly.relu(value)
    with assembly.exact():
        negative = assembly.add(value, positive, -1.0)
    doubled = assembly.add(assembly.multiply(negative, lower), assembly.multiply(negative, upper))
    mean = assembly.divide(doubled, scalar(2.0))
    with assembly.exact():
        return assembly.add(positive, mean)


def parametric_relu(assembly: Assembly, value: Operand, slope: Tensor) -> int:
    """A leaky ReLU whose slopes belong to the first axis after the batch; slope: (channels,) or (1,)."""
    axes = len(assembly.full_shape(value)) - 2
    return leaky_relu(assembly, value, slope.reshape(-1, *[1] * axes) if slope.numel() > 1 else slope.flatten())


def absolute(assembly: Assembly, value: Operand) -> int:
    """`2 * relu(x) - x`."""
    with assembly.exact():
        return assembly.add(assembly.multiply(assembly.relu(value), scalar(2.0)), value, -1.0)


def maximum(assembly: Assembly, *operands: Operand) -> int:
    """The largest of values and constants: `max(x, y) = y + relu(x - y)`."""
    with assembly.exact():
        return _value(fold(lambda left, right: _larger(assembly, left, right), _values_first(operands)))


def minimum(assembly: Assembly, *operands: Operand) -> int:
    """The smallest of values and constants: `min(x, y) = y - relu(y - x)`."""
    with assembly.exact():
        return _value(fold(lambda left, right: _smaller(assembly, left, right), _values_first(operands)))


def clip(assembly: Assembly, value: Operand, low: Tensor | None, high: Tensor | None) -> int:
    """`min(max(x, low), high)`; None, or a number beyond those of the network's precision, is no end."""
    clipped, beyond = _value(value), torch.finfo(assembly.widest).max
    if low is not None and not bool((low <= -beyond).all()):
        clipped = maximum(assembly, clipped, low)
    if high is not None and not bool((high >= beyond).all()):
        clipped = minimum(assembly, clipped, high)
    return clipped


def add_all(assembly: Assembly, operands: Sequence[Operand]) -> Operand:
    """The sum of values and constants."""
    with assembly.one_sum(len(operands) - 1):
        return fold(lambda left, right: assembly.add(left, right), _values_first(operands))


def mean_of_all(assembly: Assembly, operands: Sequence[Operand]) -> int:
    """The mean of values and constants."""
    with assembly.one_sum(len(operands) + 1):  # an evaluation may scale the terms by a rounded number
        summed = add_all(assembly, operands)
    return assembly.divide(summed, scalar(float(len(operands))))


def _values_first(operands: Sequence[Operand]) -> list[Operand]:
    """Values before constants, so that no two constants are combined."""
    return sorted(operands, key=lambda operand: isinstance(operand, Tensor))


def _larger(assembly: Assembly, value: Operand, rival: Operand) -> Operand:
    if isinstance(rival, Tensor) and not bool(rival.any()):
        return assembly.relu(assembly.fitting(value, rival))
    return assembly.add(assembly.relu(assembly.add(value, rival, -1.0)), rival)


def _smaller(assembly: Assembly, value: Operand, rival: Operand) -> Operand:
    return assembly.add(rival, assembly.relu(assembly.add(rival, value, -1.0)), -1.0)


def _value(operand: Operand) -> int:
    if isinstance(operand, Tensor):
        raise UnsupportedError("of constants alone")
    return operand
