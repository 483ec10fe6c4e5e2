"""Products and quotients of two values that are one activation of a single value, such as squares, and x times a gate.

GELU, SiLU and Mish are often written, or exported, as such products, softsign and sigmoids as quotients. Where a
formula has a rounded sqrt(2) or sqrt(2 / pi), the number is meant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from relucert.network import (
    Activation,
    Add,
    Erf,
    Exp,
    Gelu,
    GeluTanh,
    Mish,
    Node,
    Power,
    Relu,
    Scale,
    Shift,
    Sigmoid,
    Silu,
    Softplus,
    Softsign,
    Tanh,
)
from relucert.network.algebraic import LARGEST_EXPONENT


class Gated(NamedTuple):
    """A product of two values: an activation of a value, and the scales that follow, each a factor or a divisor."""

    activation: Activation
    value: int
    scales: tuple[Scale, ...]


def product(nodes: Sequence[Node], left: int, right: int) -> Gated | None:
    """The product of two values, by their numbers, where it is one activation; nodes: what computes them."""
    graph = _Graph(nodes)
    for (first, scales), (second, right_scales) in itertools.product(graph.unscaled(left), graph.unscaled(right)):
        for value, gate in ((first, second), (second, first)):
            gated = graph.power(value, gate) or graph.gated(value, gate)
            if gated is not None:
                return gated._replace(scales=(*gated.scales, *scales, *right_scales))
    return None


def quotient(nodes: Sequence[Node], top: int | None, bottom: int) -> Gated | None:
    """`top / bottom`, without a top `1 / bottom`, if it is `x / (1 + |x|)`, `x / (1 + e^-x)` or `1 / (1 + e^-x)`."""
    graph = _Graph(nodes)
    if not graph.adds_one(bottom):
        return None
    inner = graph.source(bottom)
    if isinstance(graph.operation(inner), Exp):
        value = graph.negated(graph.source(inner))
        if value is not None and top in (None, value):
            return Gated(Sigmoid() if top is None else Silu(), value, ())
    return Gated(Softsign(), top, ()) if top is not None and graph.is_absolute(inner, top) else None


class _Graph:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes

    def operation(self, value: int) -> object:
        return self.nodes[value - 1].operation if value else None

    def source(self, value: int) -> int:
        return self.nodes[value - 1].inputs[0]

    def unscaled(self, value: int) -> list[tuple[int, tuple[Scale, ...]]]:
        """A value, and it without the last, the last two, ... plain numbers that it is multiplied with, and these."""
        scale = self.operation(value)
        if not isinstance(scale, Scale) or scale.factor.numel() != 1:
            return [(value, ())]
        return [(value, ()), *((inner, (*scales, scale)) for inner, scales in self.unscaled(self.source(value)))]

    def scales(self, argument: int, value: int) -> tuple[Scale, ...] | None:
        """The scales that lead from a value to the argument; None where none do."""
        return dict(self.unscaled(argument)).get(value)

    def power(self, value: int, gate: int) -> Gated | None:
        """A product of powers of one value."""
        (base, exponent), (gate_base, gate_exponent) = self._power(value), self._power(gate)
        if base != gate_base or exponent + gate_exponent > LARGEST_EXPONENT:
            return None
        return Gated(Power(exponent + gate_exponent), base, ())

    def _power(self, value: int) -> tuple[int, int]:
        power = self.operation(value)
        return (self.source(value), power.exponent) if isinstance(power, Power) else (value, 1)

    def gated(self, value: int, gate: int) -> Gated | None:
        operation = self.operation(gate)
        if isinstance(operation, Sigmoid):
            return self._swish(value, self.source(gate))
        if isinstance(operation, Tanh) and isinstance(self.operation(self.source(gate)), Softplus):
            return Gated(Mish(), value, ()) if self.source(self.source(gate)) == value else None
        return self._gelu(value, self.source(gate)) if self.adds_one(gate) else None

    def adds_one(self, value: int) -> bool:
        shift = self.operation(value)
        return isinstance(shift, Shift) and bool((shift.offset == 1).all())

    def negated(self, value: int) -> int | None:
        """The value whose negative this is, as far as one can see."""
        scale = self.operation(value)
        return self.source(value) if isinstance(scale, Scale) and bool((scale.factor == -1).all()) else None

    def is_absolute(self, absolute: int, value: int) -> bool:
        """Whether it is `2 relu(x) - x`, which imports write an absolute value in."""
        if not isinstance(self.operation(absolute), Add):
            return False
        doubled, negative = self.nodes[absolute - 1].inputs
        scale = self.operation(doubled)
        if not isinstance(scale, Scale) or scale.divide or bool((scale.factor != 2).any()):
            return False
        rectified = self.source(doubled)
        is_relu = isinstance(self.operation(rectified), Relu) and self.source(rectified) == value
        return is_relu and self.negated(negative) == value

    def _swish(self, value: int, argument: int) -> Gated | None:
        """`x sigmoid(c x) = silu(c x) / c`."""
        scales = self.scales(argument, value)
        if scales is None or any(float(scale.factor) == 0 for scale in scales):
            return None
        return Gated(Silu(), argument, tuple(Scale(scale.factor, not scale.divide) for scale in scales))

    def _gelu(self, value: int, inner: int) -> Gated | None:
        """`x (1 + erf(x / sqrt 2))` or `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`: twice a GELU."""
        doubled = (Scale(torch.tensor(2.0, dtype=torch.float64), divide=False),)
        operation = self.operation(inner)
        if isinstance(operation, Erf) and _is_meant(self.scales(self.source(inner), value), math.sqrt(0.5)):
            return Gated(Gelu(), value, doubled)
        if isinstance(operation, Tanh) and any(
            _is_meant(scales, math.sqrt(2 / math.pi)) and self._is_cubic(argument, value)
            for argument, scales in self.unscaled(self.source(inner))
        ):
            return Gated(GeluTanh(), value, doubled)
        return None

    def _is_cubic(self, argument: int, value: int) -> bool:
        """Whether it is `x + 0.044715 x^3`."""
        if not isinstance(self.operation(argument), Add) or value not in self.nodes[argument - 1].inputs:
            return False
        terms = [term for term in self.nodes[argument - 1].inputs if term != value]
        return len(terms) == 1 and any(
            self._power(cube) == (value, 3) and _is_meant(scales, 0.044715) for cube, scales in self.unscaled(terms[0])
        )


def _is_meant(scales: Sequence[Scale] | None, number: float) -> bool:
    """Whether scales are one factor, or divisor, that is a number rounded to float32 or float64; not to fewer bits, of
    which several numbers are as near."""
    if scales is None or len(scales) != 1:
        return False
    factor, wanted = float(scales[0].factor), 1 / number if scales[0].divide else number
    rounded = float(torch.tensor(wanted, dtype=torch.float64).float())
    return factor == rounded or abs(factor - wanted) <= 2 * torch.finfo(torch.float64).eps * wanted
