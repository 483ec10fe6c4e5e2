"""Elementary functions in float64 with proven errors; those of a library have no specified accuracy.

Each is an argument reduction and a polynomial or a fraction, in the operations +, -, *, / of IEEE arithmetic alone, so
the standard model of `rigor` bounds its error, with or without fused multiply-add. Errors are counted in units of
u = 2^-53, relative to the result unless another size is named, and where numbers underflow there are a few 2^-1074
beside them. What is no number stays none, and what is too large is infinite.

Every function here is off by at most 64 u, and what activations make of it in a few more operations by at most
RELATIVE = 128 u: they count their own. Beside the counts here, python-flint's balls are the referee in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

RELATIVE = 2.0**-46  # 128 u
TINY = 2.0**-1000  # above what underflows lose
LN2 = float.fromhex("0x1.62e42fefa2p-1"), float.fromhex("0x1.9ef35793c7673p-41")
"""log 2 as a number of 40 bits, whose products with exponents are exact, and the remainder, to 2^-102."""
HALF_PI = tuple(map(float.fromhex, ("0x1.921fb544p+0", "0x1.0b46118p-34", "0x1.313198a2e037p-61")))
"""pi / 2 as two numbers of at most 31 bits, whose products with whole numbers up to 2^20 are exact, and a remainder."""
LARGEST_ANGLE = 2.0**20  # from which on sine and cosine are only known to lie in [-1, 1]
TAIL = 3.0  # from which on erfc is a continued fraction
ROOT_PI = 1.7724538509055160273

_EXPONENTIAL = [1 / math.factorial(power + 1) for power in range(13)]
_LOGARITHM = [1 / (2 * power + 1) for power in range(12)]
_LOGARITHM_OF_TWO = [1 / (2 * power + 1) for power in range(18)]
_ERROR = [1 / math.prod(range(1, 2 * power + 2, 2)) for power in range(46)]
_SINE = [(-1) ** power / math.factorial(2 * power + 1) for power in range(9)]
_COSINE = [(-1) ** power / math.factorial(2 * power) for power in range(9)]
_LEVELS = 30  # of the continued fraction


def exp(points: Tensor) -> Tensor:
    """e^x = 2^k (1 + q), off by at most 8 u: 1 + q is at least 0.7 and sums errors of 2.5 u of q and one of its own."""
    exponent, q = _reduced_exponential(points.clamp(-746.0, 710.0))
    half = exponent >> 1
    return (1 + q) * _power_of_two(half) * _power_of_two(exponent - half)


def expm1(points: Tensor) -> Tensor:
    """e^x - 1 = 2^k q + (2^k - 1) for x <= 0, off by at most 12 u.

    Where k is 0 this is q, which is off by 4 u. Else the result is at least 0.29 in size, 2^k q is at most 1.3 u off,
    and two sums add 1 u each.
    """
    exponent, q = _reduced_exponential(points.clamp(min=-60.0))
    power = _power_of_two(exponent)
    return power * q + (power - 1)


def log(points: Tensor) -> Tensor:
    """log x = k log 2 + log m with m in [0.7, 1.42], off by at most 12 u; no number where x < 0.

    Where k is 0 it is log m, off by 6 u: m - 1 is exact. Else it is at least 0.34 in size.
    """
    mantissa, exponent = torch.frexp(points)
    small = mantissa < math.sqrt(0.5)
    mantissa, exponent = torch.where(small, 2 * mantissa, mantissa), (exponent - small.to(exponent.dtype)).double()
    result = exponent * LN2[0] + (_log_ratio(mantissa - 1, _LOGARITHM) + exponent * LN2[1])
    result = torch.where(points == torch.inf, torch.inf, result)
    return torch.where(points > 0, result, torch.where(points == 0, -torch.inf, torch.nan))


def log1p(points: Tensor) -> Tensor:
    """log(1 + x) for x in [0, 1], off by at most 6 u."""
    return _log_ratio(points, _LOGARITHM_OF_TWO)


def sqrt(points: Tensor) -> Tensor:
    """The square root, off by at most 4 u: IEEE arithmetic's own, and a step of Newton's, after which an error of the
    guess of up to 2^-30 would not matter."""
    guess = torch.sqrt(points)
    usable = (guess > 0) & (guess < torch.inf)
    safe = torch.where(usable, guess, 1)
    refined = safe / 2 + torch.where(usable, points, 1) / safe / 2
    return torch.where(usable, refined, guess)


def erf(points: Tensor) -> Tensor:
    """The error function, off by at most 64 u."""
    size = points.abs()
    return torch.where(size < TAIL, _erf_series(size), 1 - _erfc_fraction(size)) * points.sign()


def erfc(points: Tensor) -> Tensor:
    """1 - erf x, off by at most 64 u (1 + x^2) where x > TAIL, elsewhere by 64 u in absolute value."""
    size = points.abs()
    near = 1 - _erf_series(size) * points.sign()
    tail = _erfc_fraction(size)
    return torch.where(size < TAIL, near, torch.where(points < 0, 2 - tail, tail))


def sin(points: Tensor) -> Tensor:
    """The sine, off by at most 8 u in absolute value; no number beyond LARGEST_ANGLE."""
    return _wave(points, 0)


def cos(points: Tensor) -> Tensor:
    """The cosine, off by at most 8 u in absolute value; no number beyond LARGEST_ANGLE."""
    return _wave(points, 1)


def tanh(points: Tensor) -> Tensor:
    """-E / (2 + E) with E = e^(-2 |x|) - 1, with the sign of x: E is off by 12 u and 2 + E >= 1 by as much, so the
    quotient by at most 32 u."""
    fall = expm1(-2 * points.abs())
    return -fall / (2 + fall) * points.sign()


def _polynomial(coefficients: Sequence[float], points: Tensor) -> Tensor:
    """Horner's scheme. In the term of degree n meet 2 n + 1 roundings and that of the coefficient."""
    total = points * coefficients[-1]
    for coefficient in reversed(coefficients[1:-1]):
        total = total.add_(coefficient).mul_(points)
    return total.add_(coefficients[0])


def _power_of_two(exponent: Tensor) -> Tensor:
    """2^k, exactly, for whole k from -1022 to 1023."""
    return ((exponent + 1023) << 52).view(torch.float64)


def _reduced_exponential(points: Tensor) -> tuple[Tensor, Tensor]:
    """k and q = e^r - 1 with x = k log 2 + r and |r| <= 0.3467.

    r sums two rounded differences of at most 0.35: it is within 0.75 u, and exact where k is 0. The series of q / r to
    r^12 misses r^13 / 14! < 0.01 u; it is at least 0.84, and its terms' roundings sum up to 2 u. So q is off by 4 u of
    itself and, where k is not 0, by 0.75 u e^r beside: 2.5 u in absolute value.
    """
    rounded = torch.round(points * (1 / LN2[0]))
    remainder = (points - rounded * LN2[0]) - rounded * LN2[1]
    return rounded.nan_to_num(0).to(torch.int64), remainder * _polynomial(_EXPONENTIAL, remainder)


def _log_ratio(excess: Tensor, coefficients: Sequence[float]) -> Tensor:
    """log(1 + x) = 2 artanh s with s = x / (2 + x) and artanh s = s (1 + s^2 / 3 + s^4 / 5 + ...).

    3 roundings meet in s, 2 more in the result, and those of the sum, whose first term is exact. What the series leaves
    out is below 0.1 u: s^2 is at most 0.0295 for log, where 0.0295^12 / 25 < 2^-64, and 1/9 for log1p, where
    9^-18 / 37 < 2^-62.
    """
    ratio = excess / (2 + excess)
    return 2 * ratio * _polynomial(coefficients, ratio * ratio)


def _erf_series(size: Tensor) -> Tensor:
    """erf x = 2 x e^(-x^2) / sqrt(pi) * (1 + y / 3 + y^2 / (3 * 5) + ...) with y = 2 x^2, for 0 <= x <= 3.

    All terms are positive. The mean degree, weighed by the terms, is at most 8.6: the polynomial is off by 20 u, and by
    8.6 u since y is rounded. e^(-x^2) is off by 9 u as x^2 is rounded, and by 8 u. Six more roundings: 52 u. What the
    series leaves out from y^46 on is below 0.01 u.
    """
    size = size.clamp(max=TAIL)
    square = size * size
    return size * (2 / ROOT_PI) * exp(-square) * _polynomial(_ERROR, 2 * square)


def _erfc_fraction(size: Tensor) -> Tensor:
    """erfc x = e^(-x^2) / sqrt(pi) / (x + (1/2) / (x + (2/2) / (x + (3/2) / ...))) for x >= 3.

    The values of such a fraction at neighbouring levels enclose it, and differ by a constant over a polynomial of x
    with positive coefficients, most at x = 3: there by 2 u from level 29 to 30. Its roundings sum up to 3 u, as a
    level's are damped by those above it. e^(-x^2) is off by x^2 u, as x^2 is rounded, and by 8 u.
    """
    size = size.clamp(TAIL, 40.0)
    fraction = size
    for level in range(_LEVELS, 0, -1):
        fraction = size + (level / 2) / fraction
    return exp(-(size * size)) / (ROOT_PI * fraction)


def _wave(points: Tensor, quarter: int) -> Tensor:
    """The sine of x + quarter pi / 2, by x = k pi / 2 + r with |r| <= 0.79.

    r sums three rounded differences of at most 0.79: it is within 2.4 u. The polynomials are off by 3 u; what they
    leave out is below 0.1 u.
    """
    reducible = points.abs() <= LARGEST_ANGLE
    rounded = torch.round(torch.where(reducible, points, 0) * (1 / HALF_PI[0]))
    remainder = points
    for term in HALF_PI:
        remainder = remainder - rounded * term
    turns = (rounded.to(torch.int64) + quarter) & 3
    square = remainder * remainder
    wave = torch.where(turns % 2 == 0, remainder * _polynomial(_SINE, square), _polynomial(_COSINE, square))
    return torch.where(reducible, torch.where(turns >= 2, -wave, wave), torch.nan)


Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ElementaryFunctions:
    """Elementary functions by their names: what a formula is written in once, for proofs and for searches."""

    exp: Function
    expm1: Function
    log: Function
    log1p: Function
    sqrt: Function
    erf: Function
    erfc: Function
    sin: Function
    cos: Function
    tanh: Function


def logistic(points: Tensor, functions: ElementaryFunctions) -> tuple[Tensor, Tensor]:
    """The sigmoid and its derivative, off by at most 18 u and 28 u with `PROVEN` functions: with e = e^-|x|, off by
    8 u, 1 / (1 + e) or e / (1 + e), and e / (1 + e)^2."""
    fall = functions.exp(-points.abs())
    share = 1 / (1 + fall)
    return torch.where(points < 0, fall * share, share), fall * share * share


PROVEN = ElementaryFunctions(exp, expm1, log, log1p, sqrt, erf, erfc, sin, cos, tanh)
PLAIN = ElementaryFunctions(
    torch.exp, torch.expm1, torch.log, torch.log1p, torch.sqrt, torch.erf, torch.erfc, torch.sin, torch.cos, torch.tanh
)  # the library's: fast, in any precision, differentiable, and no proof
