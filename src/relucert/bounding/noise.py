"""What a network's evaluation in floating point adds to each affine operation: noise, whatever the order of summation.

A computed value is the real value of the computed inputs plus noise of at most `gamma(n) (|W| |v| + |b|)`, with n
roundings and the unit of the network's inference, plus what underflow may add. Every bound here is about computed
values, so the noise widens pre-activations and is charged wherever a form leaves an operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relucert.network import INPUT, Affine, Network
from relucert.rigor import Arithmetic

if TYPE_CHECKING:
    from relucert.bounding.interval import Bounds


def rounds(network: Network, value: int) -> bool:
    """Whether computing this value, of an affine operation, may add noise."""
    node, inference = network.nodes[value - 1], network.inference
    assert isinstance(node.operation, Affine)
    return inference.rounds and not node.exact and node.operation.roundings > 0


def noise(network: Network, value: int, sizes: list[Tensor], arithmetic: Arithmetic) -> Tensor:
    """The noise of a value that `rounds`: (batch, size); infinite where an intermediate result might overflow.

    sizes: upper bounds of the absolute values of the operation's computed inputs, (batch, size) each.
    """
    node, inference = network.nodes[value - 1], network.inference
    operation = node.operation
    assert isinstance(operation, Affine)
    shapes = [network.shapes[source] for source in node.inputs]
    # An operand below the normal range may be flushed to zero: gamma times the addend is more than that loses.
    addend = inference.underflow / inference.unit
    parts = [(size + addend).unflatten(-1, shape) for size, shape in zip(sizes, shapes, strict=True)]
    total = operation.absolute.linear(*parts).flatten(1)
    if operation.constant is not None:
        total = total + operation.constant.abs().expand(network.shapes[value]).flatten()
    total = arithmetic.above(total, operation.terms + 6)
    largest = torch.cat([size.amax(1, keepdim=True) for size in sizes], 1).amax(1, keepdim=True)
    underflow = inference.underflow * (operation.roundings + 4) * (4 + largest)
    lost = arithmetic.above(inference.gamma(operation.roundings) * total + underflow, 6)
    return torch.where(2 * total <= inference.largest, lost, torch.inf)


def size_within(network: Network, bounds: Bounds, value: int) -> Tensor | None:
    """How large a value may be in absolute value, (batch, size), where bounds tell it."""
    if value in bounds:
        lower, upper = bounds[value]
        return torch.maximum(upper, -lower)
    source = network.nodes[value - 1].inputs[0] if value != INPUT else INPUT
    if value == INPUT or isinstance(network.nodes[value - 1].operation, Affine) or source not in bounds:
        return None
    return bounds[source].upper.clamp(min=0)
