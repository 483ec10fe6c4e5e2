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
from relucert.network import INPUT, Activation, Affine, FlatAffine, Network


def scores_at(network: Network, points: Tensor, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
    """The class scores at points (batch, size) and how far each may be from those of the network's evaluation, in real
    arithmetic or in whatever it is evaluated in: (batch, classes) each. Raises TimeUp between two layers once time is
    over."""
    values = {INPUT: (points, torch.zeros_like(points))}
    for value, unneeded in network.schedule((network.output,)):
        check_time()
        if value != INPUT:
            operands, errors = ([values[source][index] for source in network.node(value).inputs] for index in (0, 1))
            values[value] = _evaluated(network, value, operands, errors, arithmetic)
        scores = values[value]
        for source in unneeded:
            del values[source]
    return scores


def _evaluated(
    network: Network, value: int, operands: list[Tensor], errors: list[Tensor], arithmetic: Arithmetic
) -> tuple[Tensor, Tensor]:
    """A value, and how far it may be off, from those of its operands."""
    operation = network.node(value).operation
    if isinstance(operation, Affine):
        affine, terms = FlatAffine.of(network, value), operation.terms
        result = affine.apply(*operands)
        if not arithmetic.rigorous:
            return result, torch.zeros_like(result)
        sizes = [operand.abs() + error for operand, error in zip(operands, errors, strict=True)]
        gamma = arithmetic.gamma(terms + 2)
        total = affine.magnitude(*(error + gamma * size for error, size in zip(errors, sizes, strict=True)))
        total = arithmetic.above(affine.plus_constant(total, gamma), 2 * terms + 12)
        if rounds(network, value):
            total = arithmetic.above(total + noise(network, value, sizes, arithmetic), 1)
        return result, torch.where(result.isfinite(), total, torch.inf)  # a sum that overflowed says nothing
    if isinstance(operation, Activation):
        interval = Centred(operands[0], errors[0]).interval(arithmetic)
        if operation.roundings and arithmetic.rigorous:
            return Centred.activated(operation, interval, arithmetic)
        return operation.apply(operands[0]), _activation_error(operation, interval, errors[0], arithmetic)
    assert_never(operation)


def _activation_error(activation: Activation, interval: Interval, error: Tensor, arithmetic: Arithmetic) -> Tensor:
    """How far an f that does not round may be apart at two numbers of an interval: their distance times the steepest
    derivative between them."""
    least, largest = activation.derivatives(*interval)
    steepest = torch.maximum(-least, largest)
    moved = torch.where(steepest == 1, error, arithmetic.above(error * steepest, 1))
    return torch.where(steepest == 0, 0, moved)


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
