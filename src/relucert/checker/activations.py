"""The smooth activations whose proofs can be checked: formulas of f and f', and where f is convex or concave.

Formulas are computed in arb's balls, which enclose what they stand for. The derivative's is also computed in float64,
where it only finds the points that tangents touch: any are sound. An activation is a row of the table `PLAIN`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from flint import arb
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.network import Node

LARGEST_ACCURATE = 2**13  # up to which arguments the error of sine and cosine is known
WIDEST = 16  # pieces of a wave in an interval; with more of them the wave is only known to lie in [-1, 1]

Formula = Callable[[Any], Any]


class SmoothPiece(NamedTuple):
    """An interval on which f is convex (curvature 1) or concave (-1), with the formulas that hold there.

    Attributes:
        start, end: Balls around the ends of the piece; None: it does not end.
        value, slope: f and f' by formulas that hold on the closed piece.
    """

    start: arb | None
    end: arb | None
    curvature: int
    value: Formula
    slope: Formula


@dataclass(frozen=True, eq=False)
class SmoothFunction:
    """A function f of one variable. What gives balls gives them in the precision that is set when it is called.

    Attributes:
        name: That of the network's operation.
        value: f at a ball.
        slope: f' roughly at the numbers of a tensor; and at a ball, unless there are `formulas`.
        curvatures: The curvatures of the pieces, in order.
        breakpoints: Gives balls around the points between two pieces, in ascending order.
        formulas: By piece, f and f' as they are there; None: `value` and `slope` everywhere.
        pieces_between: Gives the pieces that cover an interval, where these depend on it, or None if they are too many.
        scale: Gives the size that the error of an evaluation between two numbers is relative to where |f| is smaller;
            None: no error is known.
        defined: Whether f is defined between two numbers.
        accurate: Gives the interval of arguments at which the error of evaluations is known, None for no such end, from
            the least positive number that is far from underflow.
        overflow_factor: How many times the larger of |f| and its scale a step of an evaluation may be.
    """

    name: str
    value: Formula
    slope: Formula
    curvatures: tuple[int, ...] = (1,)
    breakpoints: Callable[[], list[arb]] = list
    formulas: Sequence[tuple[Formula, Formula]] | None = None
    pieces_between: Callable[[arb, arb], Sequence[SmoothPiece] | None] | None = None
    scale: Callable[[arb, arb], arb] | None = None
    defined: Callable[[arb, arb], bool] = lambda low, high: True
    accurate: Callable[[arb], tuple[arb | None, arb | None]] = lambda smallest: (None, None)
    overflow_factor: int = 2

    def pieces(self, low: arb, high: arb) -> Sequence[SmoothPiece] | None:
        """Pieces that cover an interval, in order; None: they are too many."""
        if self.pieces_between is not None:
            return self.pieces_between(low, high)
        ends = pairwise([None, *self.breakpoints(), None])
        formulas = self.formulas or [(self.value, self.slope)] * len(self.curvatures)
        return [
            SmoothPiece(start, end, curvature, value, slope)
            for (start, end), curvature, (value, slope) in zip(ends, self.curvatures, formulas, strict=True)
        ]


Points = Callable[[], list[arb]]
LINE: tuple[Formula, Formula] = lambda x: x, lambda x: arb(1)
ZERO: tuple[Formula, Formula] = lambda x: arb(0), lambda x: arb(0)


def _always(number: float) -> Callable[[arb, arb], arb]:
    """A scale that is the same everywhere."""
    return lambda low, high: arb(number)


def _largest(low: arb, high: arb) -> arb:
    return arb.max(abs(low), abs(high))


def _from_smallest(smallest: arb) -> tuple[arb, None]:
    return smallest, None


def _near(*points: str) -> Points:
    """Balls of radius 1e-15 around decimal numbers."""
    return lambda: [arb(f"{point} +/- 1e-15") for point in points]


def _like(x: Any, constant: arb) -> Any:
    """A constant as a ball, or for tensors as a float."""
    return float(constant.mid()) if isinstance(x, Tensor) else constant


def _s_shaped(name: str, value: Formula, slope: Formula) -> SmoothFunction:
    """Convex below 0, concave above."""
    return SmoothFunction(name, value, slope, (1, -1), lambda: [arb(0)], scale=_always(1))


def _gated(name: str, value: Formula, slope: Formula, inflections: Points) -> SmoothFunction:
    """`x` times a gate between 0 and 1: concave, convex between two inflection points, concave."""
    return SmoothFunction(name, value, slope, (-1, 1, -1), inflections, scale=_largest)


def _wave(name: str, shift: int, value: Formula, slope: Formula) -> SmoothFunction:
    """`sin(x + shift pi / 2)`: concave from an even zero to the next one, convex from an odd one."""

    def zero_before(point: arb) -> int:
        """The number of the last zero up to a point, or one next to it."""
        return math.floor(float(point.mid()) / math.pi + shift / 2)

    def pieces(low: arb, high: arb) -> list[SmoothPiece] | None:
        width = float(high.mid()) - float(low.mid())
        if not width <= (WIDEST - 2) * math.pi or not abs(float(low.mid())) < 2.0**40:
            return None
        first, last = zero_before(low) - 1, zero_before(high) + 1
        zeros = [(number - arb(shift) / 2) * arb.pi() for number in range(first, last + 2)]
        return [
            SmoothPiece(start, end, 1 if number % 2 else -1, value, slope)
            for number, (start, end) in enumerate(pairwise(zeros), start=first)
        ]

    ends = arb(-LARGEST_ACCURATE), arb(LARGEST_ACCURATE)
    return SmoothFunction(name, value, slope, pieces_between=pieces, scale=_always(1), accurate=lambda smallest: ends)


def _softplus(x: arb) -> arb:
    return x.exp().log1p() if x < 0 else x + (-x).exp().log1p()


def _gelu_slope(x: Any) -> Any:
    density = (-x * x / 2).exp() / _like(x, (2 * arb.pi()).sqrt())
    return (-x / _like(x, arb(2).sqrt())).erfc() / 2 + x * density


def _gelu_tanh_argument(x: Any) -> Any:
    """`2 sqrt(2 / pi) (x + 0.044715 x^3)`: the GELU by tanh is x times the sigmoid of this."""
    return x * _like(x, _tanh_factor()) * (1 + _like(x, arb("0.044715")) * (x * x))


def _gelu_tanh_slope(x: Any) -> Any:
    inner = _gelu_tanh_argument(x)
    steepness = _like(x, _tanh_factor()) * (1 + 3 * _like(x, arb("0.044715")) * (x * x))
    return 1 / (1 + (-inner).exp()) + x * steepness / ((-inner).exp() + 2 + inner.exp())


def _tanh_factor() -> arb:
    return 2 * (2 / arb.pi()).sqrt()


def _mish_gate(x: Any) -> Any:
    """`tanh(log(1 + e^x))`, which with w = e^x is `1 - 2 / (1 + (1 + w)^2)`."""
    rise = 1 + x.exp()
    return (rise - 1) * (rise + 1) / (1 + rise * rise) if isinstance(x, arb) else 1 - 2 / (1 + rise * rise)


def _mish_slope(x: Any) -> Any:
    rise = 1 + x.exp()
    return _mish_gate(x) + x * 4 * x.exp() / rise / (rise + 1 / rise) / (rise + 1 / rise)


def _hard_swish(x: arb) -> arb:
    return x * (x + 3) / 6


def _hard_swish_slope(x: Tensor) -> Tensor:
    return torch.where(x < -3, 0.0, torch.where(x > 3, 1.0, (2 * x + 3) / 6))


@lru_cache(maxsize=None, typed=True)
def _elu(alpha: float) -> SmoothFunction:
    """Both of its pieces are convex; at 0 the derivative jumps from alpha to 1."""
    if not 0 < alpha < math.inf:
        raise UnsupportedError(f"an ELU is checked for a positive alpha, not {alpha!r}")
    below: tuple[Formula, Formula] = lambda x: alpha * x.expm1(), lambda x: alpha * x.exp()
    return SmoothFunction(
        "elu", below[0], lambda x: torch.where(x < 0, alpha * x.exp(), 1.0), (1, 1), lambda: [arb(0)], (below, LINE),
        scale=_always(alpha),
    )  # fmt: skip


@lru_cache(maxsize=None, typed=True)
def _power(exponent: int) -> SmoothFunction:
    if not (type(exponent) is int and exponent >= 2):
        raise UnsupportedError(f"powers are checked for whole exponents from 2 on, not {exponent!r}")
    curvatures, breakpoints = ((-1, 1), [0]) if exponent % 2 else ((1,), [])
    return SmoothFunction(
        "power", lambda x: x**exponent, lambda x: exponent * x ** (exponent - 1), curvatures,
        lambda: [arb(point) for point in breakpoints],
    )  # fmt: skip


PLAIN = {
    function.name: function
    for function in (
        _s_shaped("sigmoid", lambda x: 1 / (1 + (-x).exp()), lambda x: 1 / ((-x).exp() + 2 + x.exp())),
        _s_shaped("tanh", lambda x: x.tanh(), lambda x: 4 / ((-2 * x).exp() + 2 + (2 * x).exp())),
        _s_shaped("erf", lambda x: x.erf(), lambda x: 2 * (-x * x).exp() / _like(x, arb.pi().sqrt())),
        _s_shaped("softsign", lambda x: x / (1 + abs(x)), lambda x: 1 / ((1 + abs(x)) * (1 + abs(x)))),
        SmoothFunction("softplus", _softplus, lambda x: 1 / (1 + (-x).exp()), scale=_always(1)),
        SmoothFunction("exp", lambda x: x.exp(), lambda x: x.exp(), scale=_always(0)),
        _gated(
            "silu",
            lambda x: x / (1 + (-x).exp()),
            lambda x: 1 / (1 + (-x).exp()) + x / ((-x).exp() + 2 + x.exp()),
            _near("-2.39935728051546766783", "2.39935728051546766783"),
        ),
        _gated(
            "gelu",  # by the error function
            lambda x: x * (-x / arb(2).sqrt()).erfc() / 2,
            _gelu_slope,
            lambda: [-arb(2).sqrt(), arb(2).sqrt()],
        ),
        _gated(
            "gelu tanh",
            lambda x: x * (1 / (1 + (-_gelu_tanh_argument(x)).exp())),
            _gelu_tanh_slope,
            _near("-1.41850400879082825", "1.41850400879082825"),
        ),
        _gated(
            "mish", lambda x: x * _mish_gate(x), _mish_slope, _near("-2.2563763963607929", "1.4905711794854285")
        ),
        SmoothFunction(
            "hard swish",  # 0, then a parabola, then x itself
            _hard_swish,
            _hard_swish_slope,
            (1, 1, 1),
            lambda: [arb(-3), arb(3)],
            (ZERO, (_hard_swish, lambda x: (2 * x + 3) / 6), LINE),
            scale=_largest,
            overflow_factor=8,  # it is a sixth of a product of up to 6 |x|
        ),
        SmoothFunction(
            "reciprocal", lambda x: 1 / x, lambda x: -1 / (x * x), (-1, 1), lambda: [arb(0)],
            defined=lambda low, high: bool(low > 0) or bool(high < 0),
        ),
        SmoothFunction(
            "sqrt", lambda x: x.sqrt(), lambda x: 1 / (2 * x.sqrt()), (-1,),
            scale=_always(0), defined=lambda low, high: bool(low >= 0), accurate=_from_smallest,
        ),
        SmoothFunction(
            "log", lambda x: x.log(), lambda x: 1 / x, (-1,),
            scale=_always(1), defined=lambda low, high: bool(low > 0), accurate=_from_smallest,
        ),
        _wave("sin", 0, lambda x: x.sin(), lambda x: x.cos()),
        _wave("cos", 1, lambda x: x.cos(), lambda x: -x.sin()),
    )
}  # fmt: skip
"""The functions without settings, by the name of an operation."""

PARAMETRIC: dict[str, Callable[..., SmoothFunction]] = {"elu": _elu, "power": _power}
"""What makes a function of the stored settings of an operation, by its name."""

FUNCTIONS = (*PLAIN, *PARAMETRIC)


def is_activation(node: Node) -> bool:
    """Whether an operation is ReLU or one of these functions."""
    return node.operation.name in ("relu", *FUNCTIONS)


def smooth_function(node: Node) -> SmoothFunction:
    """The function of a node whose operation is one of `FUNCTIONS`; the same one for the same settings."""
    settings = node.operation.settings()
    return PARAMETRIC[node.operation.name](**settings) if settings else PLAIN[node.operation.name]
