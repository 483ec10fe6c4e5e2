"""The dual bound of margins for a quadratic certificate, and its gradient.

With any weights P >= 0 on deviations dz = A v and D >= 0 on v for which `D - A'PA` is positive semidefinite, any
centre t of v and any numbers lambda, everywhere

    margin >= m0 + g0 dx + sum over neurons of (g dh - lambda dz + P (dz - At)^2 - D (e - te)^2) - D0 (y - ty)^2,

where g are the coefficients that the margin and the lambda of later layers leave to a ReLU. The right side is a sum of
functions of one neuron each and of the input: each minimum has a closed form, with the ReLU itself and not a
relaxation of it. A neuron's is the least of two parabolas, convex or concave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Self

from relucert.arithmetic.rigor import DOUBLE, Arithmetic
from relucert.methods.quadratic.linearised_network import LinearisedNetwork, Neurons
from relucert.methods.quadratic.pieces import StraightPiece

SMALLEST = 2.0**-900  # of weights other than 0: products with them do not underflow
TINIEST = 1e-30  # in searches, in place of zeros that are divided by, or whose logarithms are taken


class _ByLayer:
    """Tensors, or by layer one each, with one row for each form."""

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        def mapped(numbers: Tensor | dict[int, Tensor]) -> Tensor | dict[int, Tensor]:
            if isinstance(numbers, Tensor):
                return function(numbers)
            return {value: function(each) for value, each in numbers.items()}

        return type(self)(**{name: mapped(numbers) for name, numbers in vars(self).items()})

    def select(self, rows: Tensor | slice) -> Self:
        """The rows of some forms."""
        return self.map(lambda numbers: numbers[rows])


@dataclass(eq=False)
class Weights(_ByLayer):
    """Weights of a certificate, one row for each form or one for all: (forms or 1, count) each.

    Attributes:
        deviations: P by layer.
        errors: D by layer, of layers that others follow.
        inputs: D of the inputs, in units of y; (forms or 1, inputs or 1).
    """

    deviations: dict[int, Tensor]
    errors: dict[int, Tensor]
    inputs: Tensor

    @classmethod
    def stacked(cls, rows: Sequence[Weights]) -> Weights:
        """Weights of one row each as the rows of one."""
        first = rows[0]
        return cls(
            {value: torch.cat([each.deviations[value] for each in rows]) for value in first.deviations},
            {value: torch.cat([each.errors[value] for each in rows]) for value in first.errors},
            torch.cat([each.inputs for each in rows]),
        )

    @property
    def usable(self) -> Tensor:
        """For which forms all weights are 0 or far above underflow, and finite, so that products round relatively."""
        usable = torch.ones(1, dtype=torch.bool)
        for numbers in (self.inputs, *self.deviations.values(), *self.errors.values()):
            usable = usable & ((numbers == 0) | ((numbers >= SMALLEST) & numbers.isfinite())).all(1)
        return usable

    def times(self, factors: Tensor) -> Weights:
        """The same certificate times a number > 0 for each form, (forms,)."""
        return self.map(lambda weights: weights * factors[:, None])

    def inflated(self, factors: Tensor) -> Weights:
        """The same weights of deviations, and those of v times a number for each form, (forms,)."""
        column = factors[:, None]
        errors = {value: weights * column for value, weights in self.errors.items()}
        return Weights(self.deviations, errors, self.inputs * column)


@dataclass(eq=False)
class DualPoint(_ByLayer):
    """The free variables of the dual bound: (forms, count) each.

    Attributes:
        shares: lambda / g by layer.
        inputs: The centre of y, (forms, inputs).
        errors: The centre of e by layer, of layers that others follow.
    """

    shares: dict[int, Tensor]
    inputs: Tensor
    errors: dict[int, Tensor]


class Term(NamedTuple):
    """A neuron's `g dh - lambda dz + P (dz - a)^2 - D (e - t)^2`, which is to be minimised: (forms, count) each.

    Attributes:
        coefficient: g.
        link: lambda.
        weight: P.
        vertex: a, of `A t`.
        error_weight: D.
        error_centre: t.
    """

    coefficient: Tensor
    link: Tensor
    weight: Tensor
    vertex: Tensor
    error_weight: Tensor
    error_centre: Tensor

    def at(self, piece: StraightPiece, deviation: Tensor) -> Tensor:
        """The term at a deviation dz within a straight piece."""
        from_vertex, from_centre = deviation - self.vertex, piece.steep * deviation + piece.shift - self.error_centre
        linear = self.coefficient * (piece.rise * deviation + piece.shift) - self.link * deviation
        return linear + self.weight * from_vertex.square() - self.error_weight * from_centre.square()

    def curvature(self, piece: StraightPiece) -> Tensor:
        return self.weight - self.error_weight * piece.steep.square()

    def slope(self, piece: StraightPiece) -> Tensor:
        """The derivative at dz = 0."""
        concave = self.error_weight * piece.steep * (piece.shift - self.error_centre)
        return piece.rise * self.coefficient - self.link - 2 * self.weight * self.vertex - 2 * concave


class Minimum(NamedTuple):
    """Where a neuron's term is least: the value, dz, dh and e there, (forms, count) each."""

    value: Tensor
    deviation: Tensor
    output: Tensor
    error: Tensor


def least(neurons: Neurons, term: Term) -> Minimum:
    """The least of every neuron's term on its bounds, as computed: that of parabolas, convex or concave."""
    best: Minimum | None = None
    for piece in neurons.pieces:
        curvature, slope = term.curvature(piece), term.slope(piece)
        ends = torch.where(slope + curvature * (piece.low + piece.high) > 0, piece.low, piece.high)
        free = (-slope / torch.where(curvature > 0, 2 * curvature, 1)).minimum(piece.high).maximum(piece.low)
        deviation = torch.where(curvature > 0, free, ends)
        output, error = piece.rise * deviation + piece.shift, piece.steep * deviation + piece.shift
        minimum = Minimum(term.at(piece, deviation), deviation, output, error)
        if best is None:
            best = minimum
            continue
        keep_best = best.value <= minimum.value
        best = Minimum(*(torch.where(keep_best, before, after) for before, after in zip(best, minimum, strict=True)))
    assert best is not None
    return best


class Pulled(NamedTuple):
    """Forms that were pulled back with some shares lambda / g.

    Attributes:
        coefficients: g by layer, (forms, count) each.
        links: lambda by layer, (forms, count) each.
        inputs: The coefficients of y, (forms, inputs).
    """

    coefficients: dict[int, Tensor]
    links: dict[int, Tensor]
    inputs: Tensor


class Evaluated(NamedTuple):
    """The dual bound of every form, (forms,), and what its gradient is made of."""

    bounds: Tensor
    pulled: Pulled
    vertices: dict[int, Tensor]
    minima: dict[int, Minimum]
    farthest: Tensor


Shares = Callable[[int, Tensor], Tensor]
"""From a layer and the coefficients g of its unstable ReLUs, (forms, count), to lambda / g."""


def pull(linearised: LinearisedNetwork, forms: Tensor, shares: Shares) -> Pulled:
    """Pulls forms on the output, (forms, classes), back to the input."""
    coefficients, links = {}, {}

    def choose(value: int, reached: Tensor) -> Tensor:
        index = linearised.neurons[value].index
        coefficients[value] = reached[:, index]
        links[value] = shares(value, coefficients[value]) * coefficients[value]
        return (reached * linearised.stable[value]).index_copy_(1, index, links[value])

    inputs = linearised.passes.backward(forms, choose, forms) * linearised.radii
    return Pulled(coefficients, links, inputs)


def evaluate(
    linearised: LinearisedNetwork, forms: Tensor, heights: Tensor, weights: Weights, point: DualPoint
) -> Evaluated:
    """Dual bounds of forms on the output, (forms, classes), that have these values at the reference, (forms,)."""
    pulled = pull(linearised, forms, lambda value, _: point.shares[value])
    return bound(linearised, heights, weights, pulled, point, linearised.forward(point.inputs, point.errors))


def bound(
    linearised: LinearisedNetwork,
    heights: Tensor,
    weights: Weights,
    pulled: Pulled,
    point: DualPoint,
    vertices: dict[int, Tensor],
) -> Evaluated:
    """Dual bounds from pulled forms, and from `A t` by layer, (forms, count) each."""
    form = pulled.inputs + 2 * weights.inputs * point.inputs
    farthest = -linearised.region.norm.farthest(form, linearised.walls)
    squares = squares_bound(linearised, weights.inputs, DOUBLE)
    bounds = heights + (form * farthest).sum(1) - squares - (weights.inputs * point.inputs.square()).sum(1)
    minima = {}
    for value, neurons in linearised.neurons.items():
        minima[value] = least(neurons, term(value, pulled, weights, vertices[value], point))
        bounds = bounds + minima[value].value.sum(1)
    return Evaluated(bounds, pulled, vertices, minima, farthest)


def term(value: int, pulled: Pulled, weights: Weights, vertex: Tensor, point: DualPoint) -> Term:
    """The terms of a layer's neurons; the ReLUs that nothing follows have no errors."""
    zeros = vertex.new_zeros(1, vertex.shape[1])
    return Term(
        pulled.coefficients[value], pulled.links[value], weights.deviations[value], vertex,
        weights.errors.get(value, zeros), point.errors.get(value, zeros),
    )  # fmt: skip


def squares_bound(linearised: LinearisedNetwork, weights: Tensor, arithmetic: Arithmetic) -> Tensor:
    """The most that a weighted sum of y^2 can be in the region: (forms,)."""
    by_input = weights.expand(len(weights), len(linearised.radii))
    bound = linearised.region.norm.squares_bound(by_input, arithmetic)
    walls = linearised.region.walls
    if walls is None:
        return bound
    within = (by_input * walls.largest[0].square()).sum(-1)
    return torch.minimum(bound, arithmetic.above(within, by_input.shape[-1] + 16))


class Gradient(NamedTuple):
    """The derivatives, by layer in the order of layers: in the dual point, and in the logarithms of the weights."""

    point: DualPoint
    weights: Weights

    @property
    def shared_weights(self) -> Weights:
        """Those in the logarithms of weights that all forms share, one row."""
        return self.weights.map(lambda derivatives: derivatives.sum(0, keepdim=True))


def gradient(linearised: LinearisedNetwork, weights: Weights, point: DualPoint, evaluated: Evaluated) -> Gradient:
    """The gradient in the dual point, and in the logarithms of the weights."""
    shares, on_vertices, log_deviations, log_errors = {}, {}, {}, {}

    def activate(value: int, moved: Tensor) -> Tensor:
        """From the derivatives in lambda that come from before to those in g."""
        index, minimum = linearised.neurons[value].index, evaluated.minima[value]
        link = moved[:, index] - minimum.deviation
        shares[value] = link * evaluated.pulled.coefficients[value]
        return (moved * linearised.stable[value]).index_copy_(1, index, minimum.output + point.shares[value] * link)

    linearised.passes.forward(evaluated.farthest * linearised.radii, activate)
    for value, minimum in evaluated.minima.items():
        away = minimum.deviation - evaluated.vertices[value]
        on_vertices[value] = -2 * weights.deviations[value] * away
        log_deviations[value] = weights.deviations[value] * away.square()
    on_inputs, on_errors = linearised.transposed(on_vertices)
    errors = {}
    for value, centre in point.errors.items():
        away = evaluated.minima[value].error - centre
        errors[value] = on_errors[value] + 2 * weights.errors[value] * away
        log_errors[value] = -weights.errors[value] * away.square()
    away = evaluated.farthest - point.inputs
    inputs = on_inputs + 2 * weights.inputs * away
    ordered = {value: shares[value] for value in linearised.neurons}
    log_inputs = -weights.inputs * away.square()
    return Gradient(DualPoint(ordered, inputs, errors), Weights(log_deviations, log_errors, log_inputs))
