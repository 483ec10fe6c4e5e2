"""Gradients over a region: linear forms on the output are pulled back to the input, their coefficients as intervals.

Where every neuron's bounds hold, an activation multiplies a derivative by a number between its own least and largest
derivative: ReLU by 1 (active), by 0 (inactive), or by one of the two (unstable). So each coefficient of a form is known
up to a radius, and a layer is two products: of the centres with the weights, and of the radii with the weights'
absolute values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.interval import Bounds
from relucert.network import INPUT, Network, pull_back, transposed


class Forms(NamedTuple):
    """Linear forms on one value whose coefficients lie within a radius of a centre: (batch or 1, forms, size) each."""

    centre: Tensor
    radius: Tensor

    @classmethod
    def exact(cls, coefficients: Tensor) -> Forms:
        return cls(coefficients, torch.zeros_like(coefficients))

    def add(self, other: Forms, arithmetic: Arithmetic) -> Forms:
        centre, radius = self.centre + other.centre, self.radius + other.radius
        if arithmetic.rigorous:
            radius = radius + arithmetic.gamma(1) * centre.abs()
        return Forms(centre, arithmetic.above(radius, 3))

    def times(self, factor: Tensor, arithmetic: Arithmetic) -> Forms:
        """Each coefficient times a number of its own."""
        centre, radius = self.centre * factor, self.radius * factor.abs()
        if not arithmetic.rigorous or bool(((factor == 0) | (factor == 1)).all()):  # such products are exact
            return Forms(centre, radius)
        return Forms(centre, arithmetic.above(radius + arithmetic.gamma(1) * centre.abs(), 3))

    def sizes(self, arithmetic: Arithmetic) -> Tensor:
        """The largest absolute value of every coefficient."""
        return arithmetic.above(self.centre.abs() + self.radius, 1)


ActivationRule = Callable[[int, int, Forms], Forms | None]
"""From an activation's value, its pre-activation and forms on the value to forms on the pre-activation, or to none."""


def pull(network: Network, value: int, forms: Forms, through: ActivationRule, arithmetic: Arithmetic) -> Forms | None:
    """Back-substitutes forms on a value to the input; None where the value does not depend on it."""
    return pull_back(network, value, forms, _IntervalRule(network, through, arithmetic)).get(INPUT)


def pull_to_input(network: Network, value: int, forms: Forms, through: ActivationRule, arithmetic: Arithmetic) -> Forms:
    """Back-substitutes forms on a value to the input, where no activation rule returns None."""
    reached = pull(network, value, forms, through, arithmetic)
    assert reached is not None
    return reached


@dataclass(frozen=True, eq=False)
class _IntervalRule:
    """Rounding moves a coefficient by at most gamma times the absolute values that were summed for it."""

    network: Network
    through: ActivationRule
    arithmetic: Arithmetic

    def affine(self, value: int, form: Forms) -> list[Forms]:
        operation, radius = self.network.affine(value), form.radius
        if self.arithmetic.rigorous:
            radius = radius + self.arithmetic.gamma(operation.terms + 2) * form.centre.abs()
        radii = operation.absolute.transpose(radius.unflatten(-1, self.network.shapes[value]))
        return [
            Forms(centre, self.arithmetic.above(radius.flatten(2), operation.terms + 4))
            for centre, radius in zip(transposed(self.network, value, form.centre), radii, strict=True)
        ]

    def activation(self, value: int, source: int, form: Forms) -> Forms | None:
        return self.through(value, source, form)

    def join(self, value: int, forms: Forms, others: Forms) -> Forms:
        return forms.add(others, self.arithmetic)


def gradient_sizes(network: Network, forms: Tensor, bounds: Bounds, arithmetic: Arithmetic) -> Tensor:
    """Upper bounds of every component of the gradients of forms on the output: (batch, forms, input size).

    forms: (batch, forms, classes); bounds: every neuron before its ReLU, (batch, size). They hold wherever the
    bounds do: the paper's Algorithm 2 (Fast-Lip), from the output towards the input.
    """

    def rule(value: int, source: int, form: Forms) -> Forms:
        return _widen(form, network.activations[value].derivatives(*bounds[source]), arithmetic)

    return pull_to_input(network, network.output, Forms.exact(forms), rule, arithmetic).sizes(arithmetic)


def _widen(form: Forms, derivatives: tuple[Tensor, Tensor], arithmetic: Arithmetic) -> Forms:
    """Each coefficient times whatever number lies between the least and the largest derivative, (batch, size) each."""
    least, largest = (ends[:, None] for ends in derivatives)
    low, high = arithmetic.floor(form.centre - form.radius), arithmetic.ceil(form.centre + form.radius)
    below, above = torch.minimum(low * least, low * largest), torch.maximum(high * least, high * largest)
    if bool((least < 0).any()):
        below = torch.minimum(below, torch.minimum(high * least, high * largest))
        above = torch.maximum(above, torch.maximum(low * least, low * largest))
    whole = ((least == 0) | (least == 1)) & ((largest == 0) | (largest == 1))
    if not bool(whole.all()):  # products with 0 and 1 are exact
        below = torch.where(whole, below, arithmetic.down(below, 1))
        above = torch.where(whole, above, arithmetic.up(above, 1))
    centre = (below + above) / 2
    radius = arithmetic.above(torch.maximum(above - centre, centre - below), 1)
    single = whole & (least == largest)
    return Forms(torch.where(single, form.centre * least, centre), torch.where(single, form.radius * least, radius))
