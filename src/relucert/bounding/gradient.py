"""Gradients over a region: linear forms on the output are pulled back to the input, their coefficients as intervals.

Where every neuron's bounds hold, a ReLU multiplies a derivative by 1 (active), by 0 (dead), or by one of the two
(unstable). So each coefficient of a form is known up to a radius, and a layer is two products: of the centres with
the weights, and of the radii with the weights' absolute values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.bounding.interval import Bounds, Interval
from relucert.network import INPUT, Affine, Network, pull_back
from relucert.rigor import Arithmetic


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

    def sizes(self, arithmetic: Arithmetic) -> Tensor:
        """The largest absolute value of every coefficient."""
        return arithmetic.above(self.centre.abs() + self.radius, 1)


ReluRule = Callable[[int, Forms], Forms | None]


def pull(network: Network, value: int, forms: Forms, through_relu: ReluRule, arithmetic: Arithmetic) -> Forms | None:
    """Pulls forms on a value back to the input; None where no way leads there.

    through_relu: from a ReLU's source and the forms on its value to the forms on the source; None ends the way.
    """
    return pull_back(network, value, forms, _IntervalRule(network, through_relu, arithmetic)).get(INPUT)


def pull_to_input(network: Network, value: int, forms: Forms, through_relu: ReluRule, arithmetic: Arithmetic) -> Forms:
    """The same where no rule ends the way."""
    reached = pull(network, value, forms, through_relu, arithmetic)
    assert reached is not None
    return reached


@dataclass(frozen=True, eq=False)
class _IntervalRule:
    """Rounding moves a coefficient by at most gamma times the absolute values that were summed for it."""

    network: Network
    through_relu: ReluRule
    arithmetic: Arithmetic

    def affine(self, value: int, form: Forms) -> list[Forms]:
        operation, shape = self.network.nodes[value - 1].operation, self.network.shapes[value]
        assert isinstance(operation, Affine)
        radius = form.radius
        if self.arithmetic.rigorous:
            radius = radius + self.arithmetic.gamma(operation.terms + 2) * form.centre.abs()
        centres = operation.transpose(form.centre.unflatten(-1, shape))
        radii = operation.absolute.transpose(radius.unflatten(-1, shape))
        return [
            Forms(centre.flatten(2), self.arithmetic.above(reach.flatten(2), operation.terms + 4))
            for centre, reach in zip(centres, radii, strict=True)
        ]

    def relu(self, value: int, source: int, form: Forms) -> Forms | None:
        return self.through_relu(source, form)

    def join(self, value: int, one: Forms, other: Forms) -> Forms:
        return one.add(other, self.arithmetic)


def gradient_sizes(network: Network, forms: Tensor, bounds: Bounds, arithmetic: Arithmetic) -> Tensor:
    """Upper bounds of every component of the gradients of forms on the output: (batch, forms, input size).

    forms: (batch, forms, classes); bounds: every neuron before its ReLU, (batch, size). They hold wherever the
    bounds do: the paper's Algorithm 2 (Fast-Lip), from the output towards the input.
    """

    def rule(source: int, form: Forms) -> Forms:
        return _widen(form, bounds[source], arithmetic)

    return pull_to_input(network, network.output, Forms.exact(forms), rule, arithmetic).sizes(arithmetic)


def _widen(form: Forms, bounds: Interval, arithmetic: Arithmetic) -> Forms:
    """An unstable neuron's coefficient may be anything between 0 and what it was."""
    keep, either = bounds.active[:, None], bounds.unstable[:, None]
    low = arithmetic.floor(form.centre - form.radius).clamp(max=0)
    high = arithmetic.ceil(form.centre + form.radius).clamp(min=0)
    middle = (low + high) / 2
    reach = arithmetic.above(torch.maximum(high - middle, middle - low), 1)
    return Forms(
        torch.where(either, middle, form.centre * keep),
        torch.where(either, reach, form.radius * keep),
    )
