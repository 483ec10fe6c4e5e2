"""A smooth activation with crude bounds: what any other one than ReLU looks like to methods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from relucert.arithmetic.rigor import Arithmetic
from relucert.network import (
    Activation,
    Cos,
    Elu,
    Erf,
    Exp,
    Gelu,
    GeluTanh,
    HardSwish,
    Linear,
    Log,
    Mish,
    Network,
    Node,
    Power,
    Reciprocal,
    Sigmoid,
    Silu,
    Sin,
    SmoothActivation,
    Softplus,
    Softsign,
    Sqrt,
    Tanh,
    registry,
)  # fmt: skip

DOUBT = 1e-6  # far above what torch.tanh may be off


@dataclass(frozen=True, eq=False)
class CrudeTanh(Activation):
    """tanh, enclosed by its values at the ends of an interval."""

    name: ClassVar[str] = "crude-tanh"

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].tanh()

    def image(self, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
        return lower.tanh() - DOUBT, upper.tanh() + DOUBT

    def least(self, slope: Tensor, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor:
        return self.image(lower, upper, arithmetic)[0] - torch.maximum(slope * lower, slope * upper) - DOUBT

    def largest(self, slope: Tensor, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor:
        return self.image(lower, upper, arithmetic)[1] - torch.minimum(slope * lower, slope * upper) + DOUBT

    def chord(self, lower: Tensor, upper: Tensor) -> Tensor:
        return (upper.tanh() - lower.tanh()) / (upper - lower).clamp(min=DOUBT)

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Any will do: one that falls, one that rises."""
        return -0.1 * torch.ones_like(lower), self.chord(lower, upper)

    def derivatives(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        ends = self.derivative(lower), self.derivative(upper)
        steepest = torch.where((lower <= 0) & (upper >= 0), 1.0, torch.maximum(*ends))
        return torch.minimum(*ends) - DOUBT, steepest + DOUBT

    def derivative(self, points: Tensor) -> Tensor:
        return 1 - points.tanh().square()

    def is_affine(self, lower: Tensor, upper: Tensor) -> Tensor:
        return torch.zeros_like(lower, dtype=torch.bool)

    @property
    def lipschitz(self) -> float:
        return 1.0

    @property
    def roundings(self) -> int:
        return 2**20


@contextmanager
def known_to_files(operation: type[Activation] = CrudeTanh) -> Iterator[None]:
    """The activation in the registry, for as long as that takes."""
    registry.register(operation)
    try:
        yield
    finally:
        del registry._REGISTRY[operation.name]


SMOOTH: dict[str, SmoothActivation] = {
    "sigmoid": Sigmoid(),
    "tanh": Tanh(),
    "erf": Erf(),
    "softsign": Softsign(),
    "softplus": Softplus(),
    "exp": Exp(),
    "elu": Elu(1.0),
    "elu with a kink below": Elu(0.4),
    "elu with a kink above": Elu(1.7),
    "silu": Silu(),
    "gelu": Gelu(),
    "gelu by tanh": GeluTanh(),
    "mish": Mish(),
    "hard swish": HardSwish(),
    "square": Power(2),
    "cube": Power(3),
    "fourth power": Power(4),
    "reciprocal": Reciprocal(),
    "square root": Sqrt(),
    "logarithm": Log(),
    "sine": Sin(),
    "cosine": Cos(),
}
"""Every activation by a formula."""


def smooth_network(seed: int = 0, inputs: int = 5, activation: Activation | None = None) -> Network:
    """Three classes after two layers of tanh, or of another activation, whose inputs are then positive at 0."""
    draw = torch.Generator().manual_seed(seed)
    nodes: list[Node] = []
    sizes = (inputs, 8, 7, 3)
    for before, after in pairwise(sizes):
        weight = torch.randn(after, before, generator=draw) / before**0.5
        bias = torch.randn(after, generator=draw)
        nodes.append(Node(Linear(weight, bias if activation is None else 2 + bias.abs()), (len(nodes),)))
        if after != sizes[-1]:
            nodes.append(Node(activation or CrudeTanh(), (len(nodes),)))
    return Network((inputs,), tuple(nodes), "smooth")
