"""Margins at points, from below: the plain evaluation of the network, and what rounding may have moved."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import assert_never

from relucert.arithmetic.property import Property
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.noise import noise, rounds
from relucert.network import Activation, Affine, Network


def scores_at(network: Network, points: Tensor, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
    """The class scores at points (batch, size) and how far each may be from those of the network's evaluation, in real
    arithmetic or in whatever it is evaluated in: (batch, classes) each."""
    values = [points.unflatten(-1, network.input_shape)]
    errors = [torch.zeros_like(values[0])]
    for value, node in network.steps():
        operands, before = ([kept[source] for source in node.inputs] for kept in (values, errors))
        values.append(node.operation.apply(*operands))
        if isinstance(node.operation, Activation):
            errors.append(_activation_error(node.operation, operands[0], before[0], arithmetic))
        elif not isinstance(node.operation, Affine):
            assert_never(node.operation)
        elif arithmetic.rigorous:
            error = _error(node.operation, operands, before, arithmetic)
            if rounds(network, value):
                sizes = [(one.abs() + other).flatten(1) for one, other in zip(operands, before, strict=True)]
                added = noise(network, value, sizes, arithmetic).reshape(error.shape)
                error = arithmetic.above(error + added, 1)
            errors.append(torch.where(values[-1].isfinite(), error, torch.inf))  # a sum that overflowed says nothing
        else:
            errors.append(torch.zeros_like(values[-1]))
    return values[-1], errors[-1]


def _activation_error(activation: Activation, value: Tensor, error: Tensor, arithmetic: Arithmetic) -> Tensor:
    """How far f may be apart at two numbers: their distance times the steepest derivative between them."""
    lower, upper = arithmetic.floor(value - error), arithmetic.ceil(value + error)
    least, largest = activation.derivatives(lower, upper)
    steepest = torch.maximum(-least, largest)
    moved = torch.where(steepest == 1, error, arithmetic.above(error * steepest, 1))
    moved = torch.where(steepest == 0, 0, moved)
    if not activation.roundings:
        return moved
    size = activation.apply(value).abs()
    return arithmetic.above(moved + arithmetic.gamma(activation.roundings) * size, 2)


def _error(operation: Affine, values: list[Tensor], errors: list[Tensor], arithmetic: Arithmetic) -> Tensor:
    gamma = arithmetic.gamma(operation.terms + 2)
    sources = [error + gamma * (value.abs() + error) for value, error in zip(values, errors, strict=True)]
    total = operation.magnitude(*sources)
    if operation.constant is not None:
        total = total + gamma * operation.constant.abs()
    return arithmetic.above(total, 2 * operation.terms + 12)


def lower_margins(
    network: Network, points: Tensor, which: Tensor | None, prop: Property, arithmetic: Arithmetic
) -> Tensor:
    """Lower bounds of a property's forms at each batch member's point, points[which] or points: (batch, rows)."""
    scores, errors = scores_at(network, points, arithmetic)
    if which is not None:
        scores, errors = scores[which], errors[which]
    margins = prop.values(scores)
    if not arithmetic.rigorous:
        return margins
    terms = prop.rows.shape[-1] + 3
    doubt = errors + arithmetic.gamma(terms) * (scores.abs() + errors)
    slack = (prop.rows.abs() @ doubt[..., None]).squeeze(-1) + arithmetic.gamma(terms) * prop.offsets.abs()
    return arithmetic.floor(margins - arithmetic.above(slack, terms + 3))
