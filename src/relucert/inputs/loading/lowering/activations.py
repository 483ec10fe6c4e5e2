"""Activations, coordinate by coordinate.

Those of straight pieces have one ReLU for each bend of their graphs; smooth ones are the operation itself, with the
scales around it that parameters ask for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce as fold

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.operands import Operand, computed_value, scalar
from relucert.network import Elu, Exp, Log, Power, Reciprocal, Silu, Softplus, Sqrt
from relucert.network.algebraic import LARGEST_EXPONENT

LEAST_THRESHOLD = 20.0  # from which on PyTorch's softplus is the identity: it differs by 2e-9 there


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


def clip(assembly: Assembly, value: Operand, low: Tensor | None, high: Tensor | None = None) -> int:
    """`min(max(x, low), high)`; None, or a number beyond those of the network's precision, is no end."""
    clipped, beyond = _value(value), torch.finfo(assembly.widest).max
    if low is not None and not bool((low <= -beyond).all()):
        clipped = maximum(assembly, clipped, low)
    if high is not None and not bool((high >= beyond).all()):
        clipped = minimum(assembly, clipped, high)
    return clipped


def shrink(assembly: Assembly, value: Operand, threshold: float, shift: float) -> int:
    """Zero up to the threshold, and beyond it nearer to zero by the shift, which must be as large: `x - clip(x)`."""
    if not threshold >= 0 or threshold != shift:
        raise UnsupportedError(f"a jump: zero up to {threshold:g}, and nearer to zero by {shift:g} from there on")
    return assembly.add(value, clip(assembly, value, scalar(-threshold), scalar(threshold)), -1.0)


def add_all(assembly: Assembly, operands: Sequence[Operand]) -> Operand:
    """The sum of values and constants."""
    with assembly.one_sum(len(operands) - 1):
        return fold(lambda left, right: assembly.add(left, right), _values_first(operands))


def mean_of_all(assembly: Assembly, operands: Sequence[Operand]) -> int:
    """The mean of values and constants."""
    with assembly.one_sum(len(operands) + 1):  # an evaluation may scale the terms by a rounded number
        summed = add_all(assembly, operands)
    return assembly.divide(summed, scalar(float(len(operands))))


def softplus(assembly: Assembly, value: Operand, beta: float, threshold: float) -> int:
    """`log(1 + e^(beta x)) / beta`; that PyTorch takes x for it beyond the threshold counts as rounding."""
    if threshold < LEAST_THRESHOLD:
        raise UnsupportedError(f"threshold={threshold:g}, a jump")
    return _scaled(assembly, Softplus(), value, beta)


def log_sigmoid(assembly: Assembly, value: Operand) -> int:
    """`-log(1 + e^-x)`."""
    return _scaled(assembly, Softplus(), value, -1.0)


def swish(assembly: Assembly, value: Operand, beta: float) -> int:
    """`x / (1 + e^(-beta x))`."""
    return _scaled(assembly, Silu(), value, beta)


def elu(assembly: Assembly, value: Operand, alpha: float, scale: float = 1.0, input_scale: float = 1.0) -> int:
    """`scale * x` where it is positive, else `scale * alpha * (e^(input_scale x) - 1)`, where only one of the last two
    differs from 1."""
    if not alpha > 0:
        raise UnsupportedError(f"alpha={alpha:g}, not positive")
    if input_scale != 1:
        raise UnsupportedError(f"input_scale={input_scale:g}")
    return assembly.scaled(assembly.activation(Elu(float(alpha)), value), scale)


def celu(assembly: Assembly, value: Operand, alpha: float) -> int:
    """`x` where it is positive, else `alpha * (e^(x / alpha) - 1)`."""
    if not alpha > 0:
        raise UnsupportedError(f"alpha={alpha:g}, not positive")
    inner = assembly.divide(value, scalar(alpha)) if alpha != 1 else value
    return assembly.scaled(assembly.activation(Elu(1.0), inner), alpha)


def expm1(assembly: Assembly, value: Operand) -> int:
    return assembly.add(assembly.activation(Exp(), value), scalar(-1.0))


def log1p(assembly: Assembly, value: Operand) -> int:
    return assembly.activation(Log(), assembly.add(value, scalar(1.0)))


def inverse_root(assembly: Assembly, value: Operand) -> int:
    return assembly.activation(Reciprocal(), assembly.activation(Sqrt(), value))


def power(assembly: Assembly, value: Operand, exponent: Tensor) -> int:
    """`x^exponent` for whole exponents but 0, for 0.5 and for -0.5."""
    if exponent.numel() != 1:
        raise UnsupportedError("several exponents")
    value = assembly.fitting(value, exponent.double())
    number = float(exponent)
    size = abs(number)
    if size == 0.5:
        result = assembly.activation(Sqrt(), value)
    elif number and size == math.floor(size) and size <= LARGEST_EXPONENT:
        result = computed_value(value) if size == 1 else assembly.activation(Power(int(size)), value)
    else:
        raise UnsupportedError(f"an exponent of {number:g}")
    return assembly.activation(Reciprocal(), result) if number < 0 else result


def _scaled(assembly: Assembly, activation: Softplus | Silu, value: Operand, beta: float) -> int:
    """`f(beta x) / beta`."""
    if beta == 0 or not math.isfinite(beta):
        raise UnsupportedError(f"beta={beta:g}")
    if beta == 1:
        return assembly.activation(activation, value)
    return assembly.divide(assembly.activation(activation, assembly.multiply(value, scalar(beta))), scalar(beta))


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
