"""Margins at points, from below: the plain evaluation of the network, and what rounding may have moved."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import assert_never

from relucert.arithmetic.property import Property
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.interval import Centred, Interval
from relucert.bounding.noise import noise, rounds
from relucert.common.deadline import check_time
from relucert.network import INPUT, Activation, Affine, Network


def scores_at(
    network: Network, points: Tensor, arithmetic: Arithmetic, errors: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The class scores at points (batch, size) and how far each may be from those of the network's evaluation, in real
    arithmetic or in whatever it is evaluated in: (batch, classes) each. Raises TimeUp between two layers once time is
    over.

    errors: How far the inputs that are asked about may be from the points, (batch, size); None: they are the points.
    """
    distances = torch.zeros_like(points) if errors is None else errors
    values = {INPUT: (points.unflatten(-1, network.input_shape), distances.unflatten(-1, network.input_shape))}
    for value, unneeded in network.schedule((network.output,)):
        check_time()
        if value != INPUT:
            operands, doubts = ([values[source][index] for source in network.node(value).inputs] for index in (0, 1))
            values[value] = _evaluated(network, value, operands, doubts, arithmetic)
        scores = values[value]
        for source in unneeded:
            del values[source]
    return scores


def _evaluated(
    network: Network, value: int, operands: list[Tensor], errors: list[Tensor], arithmetic: Arithmetic
) -> tuple[Tensor, Tensor]:
    """A value, and how far it may be off, from those of its operands."""
    operation = network.node(value).operation
    if isinstance(operation, Activation) and operation.roundings and arithmetic.rigorous:
        return _image(operation, operands[0], errors[0], arithmetic)
    result = operation.apply(*operands)
    if isinstance(operation, Activation):
        return result, _activation_error(operation, operands[0], errors[0], arithmetic)
    if not isinstance(operation, Affine):
        assert_never(operation)
    if not arithmetic.rigorous:
        return result, torch.zeros_like(result)
    error = _error(operation, operands, errors, arithmetic)
    if rounds(network, value):
        sizes = [(operand.abs() + its_error).flatten(1) for operand, its_error in zip(operands, errors, strict=True)]
        added = noise(network, value, sizes, arithmetic).reshape(error.shape)
        error = arithmetic.above(error + added, 1)
    return result, torch.where(result.isfinite(), error, torch.inf)  # a sum that overflowed says nothing


def _activation_error(activation: Activation, value: Tensor, error: Tensor, arithmetic: Arithmetic) -> Tensor:
    """How far an f that does not round may be apart at two numbers: their distance times the steepest derivative
    between them."""
    lower, upper = arithmetic.floor(value - error), arithmetic.ceil(value + error)
    least, largest = activation.derivatives(lower, upper)
    steepest = torch.maximum(-least, largest)
    moved = torch.where(steepest == 1, error, arithmetic.above(error * steepest, 1))
    return torch.where(steepest == 0, 0, moved)


def _image(activation: Activation, value: Tensor, error: Tensor, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
    """The middle of the image of an interval, and how far its ends are."""
    interval = Interval(arithmetic.floor(value - error), arithmetic.ceil(value + error))
    return Centred.activated(activation, interval, arithmetic)


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
