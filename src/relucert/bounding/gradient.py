"""Gradients over a ball: linear forms on the output are pulled back to the input with their coefficients as intervals.

Where every neuron's bounds hold, a ReLU multiplies a derivative by 1 (active), by 0 (dead), or by one of the two
(undecided). So each coefficient of a form is known up to a radius, and a layer is two products: of the centres with
the weights, and of the radii with the weights' absolute values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.bounding.forward import INPUT, Bounds
from relucert.bounding.relaxers import Interval
from relucert.network import Affine, Network
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


def pull(network: Network, value: int, forms: Forms, rule: ReluRule, arithmetic: Arithmetic) -> Forms | None:
    """Pulls forms on a value back to the input; `rule` takes those on a ReLU's result to those on its source.

    A rule may end the way by returning None; so does this function where no way leads to the input.
    """
    pending = {value: forms}
    for current in range(value, INPUT, -1):
        if current not in pending:
            continue
        node, form = network.nodes[current - 1], pending.pop(current)
        if isinstance(node.operation, Affine):
            parts = _through_affine(node.operation, network.shapes[current], form, arithmetic)
        else:
            part = rule(node.inputs[0], form)
            parts = [] if part is None else [part]
        for source, part in zip(node.inputs, parts, strict=bool(parts)):
            pending[source] = pending[source].add(part, arithmetic) if source in pending else part
    return pending.get(INPUT)


def pull_to_input(network: Network, value: int, forms: Forms, rule: ReluRule, arithmetic: Arithmetic) -> Forms:
    """The same with a rule that never ends the way."""
    found = pull(network, value, forms, rule, arithmetic)
    assert found is not None
    return found


def _through_affine(operation: Affine, shape: tuple[int, ...], form: Forms, arithmetic: Arithmetic) -> list[Forms]:
    """Rounding moves a coefficient by at most gamma times the absolute values that were summed for it."""
    radius = form.radius
    if arithmetic.rigorous:
        radius = radius + arithmetic.gamma(operation.terms + 2) * form.centre.abs()
    centres = operation.transpose(form.centre.unflatten(-1, shape))
    radii = operation.absolute.transpose(radius.unflatten(-1, shape))
    return [
        Forms(centre.flatten(2), arithmetic.above(reach.flatten(2), operation.terms + 4))
        for centre, reach in zip(centres, radii, strict=True)
    ]


def gradient_sizes(network: Network, forms: Tensor, bounds: Bounds, arithmetic: Arithmetic) -> Tensor:
    """Upper bounds of every component of the gradients of forms on the output: (batch, forms, input size).

    forms: (batch, forms, classes); bounds: every neuron before its ReLU, (batch, size). They hold wherever the
    bounds do: the paper's Algorithm 2 (Fast-Lip), from the output towards the input.
    """

    def rule(source: int, form: Forms) -> Forms:
        return _widen(form, bounds[source], arithmetic)

    return pull_to_input(network, network.output, Forms.exact(forms), rule, arithmetic).sizes(arithmetic)


def _widen(form: Forms, bounds: Interval, arithmetic: Arithmetic) -> Forms:
    """An undecided neuron's coefficient may be anything between 0 and what it was."""
    keep, either = bounds.active[:, None], bounds.undecided[:, None]
    low = arithmetic.floor(form.centre - form.radius).clamp(max=0)
    high = arithmetic.ceil(form.centre + form.radius).clamp(min=0)
    middle = (low + high) / 2
    reach = arithmetic.above(torch.maximum(high - middle, middle - low), 1)
    return Forms(
        torch.where(either, middle, form.centre * keep),
        torch.where(either, reach, form.radius * keep),
    )
