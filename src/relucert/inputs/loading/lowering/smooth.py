"""Smooth activations: the operation itself, with the scales around it that parameters ask for."""

from __future__ import annotations

import math

from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.operands import Operand, computed_value, scalar
from relucert.network import Elu, Exp, Log, Power, Reciprocal, Silu, Softplus, Sqrt
from relucert.network.algebraic import LARGEST_EXPONENT

LEAST_THRESHOLD = 20.0  # from which on PyTorch's softplus is the identity: it differs by 2e-9 there


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
