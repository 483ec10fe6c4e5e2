"""The smooth activations whose proofs can be checked, one class per activation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from flint import arb
from torch import Tensor

from relucert.checker.smooth_function import SmoothFunction, SmoothPiece
from relucert.errors import UnsupportedError
from relucert.network import Node

LARGEST_ACCURATE = 2**13  # up to which arguments the error of sine and cosine is known
WIDEST = 16  # pieces of a wave in an interval; with more of them the wave is only known to lie in [-1, 1]


class _SShaped(SmoothFunction):
    """Convex below 0, concave above."""

    curvatures = (1, -1)
    fixed_scale = 1

    def breakpoints(self) -> list[arb]:
        return [arb(0)]


class _Gated(SmoothFunction):
    """`x` times a gate between 0 and 1: concave, convex between two inflection points, concave."""

    curvatures = (-1, 1, -1)

    def scale(self, low: arb, high: arb) -> arb:
        return arb.max(abs(low), abs(high))


@dataclass(frozen=True)
class Sigmoid(_SShaped):
    def value(self, x: arb) -> arb:
        return 1 / (1 + (-x).exp())

    def slope(self, x: Any) -> Any:
        return 1 / ((-x).exp() + 2 + x.exp())


@dataclass(frozen=True)
class Tanh(_SShaped):
    def value(self, x: arb) -> arb:
        return x.tanh()

    def slope(self, x: Any) -> Any:
        return 4 / ((-2 * x).exp() + 2 + (2 * x).exp())


@dataclass(frozen=True)
class Erf(_SShaped):
    def value(self, x: arb) -> arb:
        return x.erf()

    def slope(self, x: Any) -> Any:
        return 2 * (-x * x).exp() / _like(x, arb.pi().sqrt())


@dataclass(frozen=True)
class Softsign(_SShaped):
    def value(self, x: arb) -> arb:
        return x / (1 + abs(x))

    def slope(self, x: Any) -> Any:
        return 1 / ((1 + abs(x)) * (1 + abs(x)))


@dataclass(frozen=True)
class Softplus(SmoothFunction):
    fixed_scale = 1

    def value(self, x: arb) -> arb:
        return x.exp().log1p() if x < 0 else x + (-x).exp().log1p()

    def slope(self, x: Any) -> Any:
        return 1 / (1 + (-x).exp())


@dataclass(frozen=True)
class Exp(SmoothFunction):
    fixed_scale = 0

    def value(self, x: arb) -> arb:
        return x.exp()

    def slope(self, x: Any) -> Any:
        return x.exp()


@dataclass(frozen=True)
class Elu(SmoothFunction):
    """Both of its pieces are convex; at 0 the derivative jumps from alpha to 1."""

    alpha: float
    curvatures = (1, 1)

    def value(self, x: arb) -> arb:
        return self.alpha * x.expm1()

    def slope(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            return torch.where(x < 0, self.alpha * x.exp(), 1.0)
        return self.alpha * x.exp()

    def breakpoints(self) -> list[arb]:
        return [arb(0)]

    def pieces(self, low: arb, high: arb) -> Sequence[SmoothPiece]:
        zero = arb(0)
        return SmoothPiece(None, zero, 1, self.value, self.slope), SmoothPiece(zero, None, 1, _itself, _unit)

    def scale(self, low: arb, high: arb) -> arb:
        return arb(self.alpha)


@dataclass(frozen=True)
class Silu(_Gated):
    def value(self, x: arb) -> arb:
        return x / (1 + (-x).exp())

    def slope(self, x: Any) -> Any:
        return 1 / (1 + (-x).exp()) + x / ((-x).exp() + 2 + x.exp())

    def breakpoints(self) -> list[arb]:
        return [_near("-2.39935728051546766783"), _near("2.39935728051546766783")]


@dataclass(frozen=True)
class Gelu(_Gated):
    """By the error function."""

    def value(self, x: arb) -> arb:
        return x * (-x / arb(2).sqrt()).erfc() / 2

    def slope(self, x: Any) -> Any:
        density = (-x * x / 2).exp() / _like(x, (2 * arb.pi()).sqrt())
        return (-x / _like(x, arb(2).sqrt())).erfc() / 2 + x * density

    def breakpoints(self) -> list[arb]:
        return [-arb(2).sqrt(), arb(2).sqrt()]


@dataclass(frozen=True)
class GeluTanh(_Gated):
    """By tanh, which is `x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3))`."""

    def value(self, x: arb) -> arb:
        gate: arb = 1 / (1 + (-self._argument(x)).exp())
        return x * gate

    def slope(self, x: Any) -> Any:
        inner = self._argument(x)
        steepness = _like(x, _tanh_factor()) * (1 + 3 * _like(x, _tanh_cube()) * (x * x))
        return 1 / (1 + (-inner).exp()) + x * steepness / ((-inner).exp() + 2 + inner.exp())

    def _argument(self, x: Any) -> Any:
        return x * _like(x, _tanh_factor()) * (1 + _like(x, _tanh_cube()) * (x * x))

    def breakpoints(self) -> list[arb]:
        return [_near("-1.41850400879082825"), _near("1.41850400879082825")]


@dataclass(frozen=True)
class Mish(_Gated):
    """`x tanh(log(1 + e^x))`; with w = e^x the tanh is `1 - 2 / (1 + (1 + w)^2)`."""

    def value(self, x: arb) -> arb:
        gate: arb = self._gate(x)
        return x * gate

    def slope(self, x: Any) -> Any:
        rise = 1 + x.exp()
        return self._gate(x) + x * 4 * x.exp() / rise / (rise + 1 / rise) / (rise + 1 / rise)

    def _gate(self, x: Any) -> Any:
        rise = 1 + x.exp()
        return (rise - 1) * (rise + 1) / (1 + rise * rise) if isinstance(x, arb) else 1 - 2 / (1 + rise * rise)

    def breakpoints(self) -> list[arb]:
        return [_near("-2.2563763963607929"), _near("1.4905711794854285")]


@dataclass(frozen=True)
class HardSwish(_Gated):
    """0, then a parabola, then x itself."""

    curvatures = (1, 1, 1)
    overflow_factor = 8  # it is a sixth of a product of up to 6 |x|

    def value(self, x: arb) -> arb:
        return x * (x + 3) / 6

    def slope(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            return torch.where(x < -3, 0.0, torch.where(x > 3, 1.0, (2 * x + 3) / 6))
        return (2 * x + 3) / 6

    def breakpoints(self) -> list[arb]:
        return [arb(-3), arb(3)]

    def pieces(self, low: arb, high: arb) -> Sequence[SmoothPiece]:
        first, second = self.breakpoints()
        return (
            SmoothPiece(None, first, 1, _zero, _zero),
            SmoothPiece(first, second, 1, self.value, self.slope),
            SmoothPiece(second, None, 1, _itself, _unit),
        )


@dataclass(frozen=True)
class Power(SmoothFunction):
    exponent: int

    @property
    def curvatures(self) -> tuple[int, ...]:  # type: ignore[override]
        return (-1, 1) if self.exponent % 2 else (1,)

    def value(self, x: arb) -> arb:
        return x**self.exponent

    def slope(self, x: Any) -> Any:
        return self.exponent * x ** (self.exponent - 1)

    def breakpoints(self) -> list[arb]:
        return [arb(0)] if self.exponent % 2 else []


@dataclass(frozen=True)
class Reciprocal(SmoothFunction):
    curvatures = (-1, 1)

    def value(self, x: arb) -> arb:
        return 1 / x

    def slope(self, x: Any) -> Any:
        return -1 / (x * x)

    def pieces(self, low: arb, high: arb) -> Sequence[SmoothPiece]:
        return (SmoothPiece(None, None, 1 if low > 0 else -1, self.value, self.slope),)

    def defined(self, low: arb, high: arb) -> bool:
        return bool(low > 0) or bool(high < 0)


@dataclass(frozen=True)
class Sqrt(SmoothFunction):
    curvatures = (-1,)
    fixed_scale = 0

    def value(self, x: arb) -> arb:
        return x.sqrt()

    def slope(self, x: Any) -> Any:
        return 1 / (2 * x.sqrt())

    def defined(self, low: arb, high: arb) -> bool:
        return bool(low >= 0)

    def accurate(self, smallest: arb) -> tuple[arb, None]:
        return smallest, None


@dataclass(frozen=True)
class Log(SmoothFunction):
    curvatures = (-1,)
    fixed_scale = 1

    def value(self, x: arb) -> arb:
        return x.log()

    def slope(self, x: Any) -> Any:
        return 1 / x

    def defined(self, low: arb, high: arb) -> bool:
        return bool(low > 0)

    def accurate(self, smallest: arb) -> tuple[arb, None]:
        return smallest, None


class _Wave(SmoothFunction):
    """`sin(x + shift pi / 2)`: concave from an even zero to the next one, convex from an odd one."""

    shift: int
    fixed_scale = 1

    def pieces(self, low: arb, high: arb) -> Sequence[SmoothPiece] | None:
        width = float(high.mid()) - float(low.mid())
        if not width <= (WIDEST - 2) * math.pi or not abs(float(low.mid())) < 2.0**40:
            return None
        first, last = self._number(low) - 1, self._number(high) + 1
        zeros = [(number - arb(self.shift) / 2) * arb.pi() for number in range(first, last + 2)]
        return [
            SmoothPiece(zeros[index], zeros[index + 1], 1 if (first + index) % 2 else -1, self.value, self.slope)
            for index in range(len(zeros) - 1)
        ]

    def _number(self, point: arb) -> int:
        """The number of the last zero up to a point, or one next to it."""
        return math.floor(float(point.mid()) / math.pi + self.shift / 2)

    def accurate(self, smallest: arb) -> tuple[arb, arb]:
        return arb(-LARGEST_ACCURATE), arb(LARGEST_ACCURATE)


@dataclass(frozen=True)
class Sin(_Wave):
    shift = 0

    def value(self, x: arb) -> arb:
        return x.sin()

    def slope(self, x: Any) -> Any:
        return x.cos()


@dataclass(frozen=True)
class Cos(_Wave):
    shift = 1

    def value(self, x: arb) -> arb:
        return x.cos()

    def slope(self, x: Any) -> Any:
        return -x.sin()


FUNCTIONS: dict[str, Callable[..., SmoothFunction]] = {
    "sigmoid": Sigmoid, "tanh": Tanh, "erf": Erf, "softsign": Softsign, "softplus": Softplus, "exp": Exp, "elu": Elu,
    "silu": Silu, "gelu": Gelu, "gelu tanh": GeluTanh, "mish": Mish, "hard swish": HardSwish, "power": Power,
    "reciprocal": Reciprocal, "sqrt": Sqrt, "log": Log, "sin": Sin, "cos": Cos,
}  # fmt: skip
"""The classes by the name of an operation, whose stored settings are their arguments."""


def is_activation(node: Node) -> bool:
    """Whether an operation is ReLU or one of these functions."""
    return node.operation.name == "relu" or node.operation.name in FUNCTIONS


def smooth_function(node: Node) -> SmoothFunction:
    """The function of a node whose operation is one of `FUNCTIONS`."""
    settings = node.operation.settings()
    if "exponent" in settings and not (type(settings["exponent"]) is int and settings["exponent"] >= 2):
        raise UnsupportedError(f"powers are checked for whole exponents from 2 on, not {settings['exponent']!r}")
    if "alpha" in settings and not 0 < settings["alpha"] < math.inf:
        raise UnsupportedError(f"an ELU is checked for a positive alpha, not {settings['alpha']!r}")
    return FUNCTIONS[node.operation.name](**settings)


def _near(text: str) -> arb:
    """A ball of radius 1e-15 around a decimal number."""
    return arb(f"{text} +/- 1e-15")


def _like(x: Any, constant: arb) -> Any:
    """A constant as a ball, or for tensors as a float."""
    return float(constant.mid()) if isinstance(x, Tensor) else constant


def _tanh_factor() -> arb:
    return 2 * (2 / arb.pi()).sqrt()


def _tanh_cube() -> arb:
    return arb("0.044715")


def _itself(x: arb) -> arb:
    return x


def _unit(x: arb) -> arb:
    return arb(1)


def _zero(x: arb) -> arb:
    return arb(0)
