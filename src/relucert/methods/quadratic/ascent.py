"""Ascents of the dual bound in float32: on slopes and centres, and on the certificate's weights.

The bounds of all forms of a region are raised together, each with variables of its own in one row of a table. Weights
are either those of one composed certificate times a factor for each form, or each form's own (the joint certificate).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.arithmetic.rigor import DOUBLE
from relucert.bounding.adam import Adam
from relucert.common.deadline import check_time
from relucert.methods.quadratic.dual import (
    TINIEST,
    DualPoint,
    Evaluated,
    Gradient,
    Pulled,
    Weights,
    bound,
    evaluate,
    gradient,
    squares_bound,
)
from relucert.methods.quadratic.joint import PowerIteration, Spectrum
from relucert.methods.quadratic.linearised_network import LinearisedNetwork

SMALLEST_STEP = 1e-12  # by which Adam divides at the least
SHARE_RATE = 0.06
CENTRE_RATE = 0.08  # in units of how far coordinates move
FACTOR_RATE = 0.05
WEIGHT_RATE = 0.15
AGAIN = 0.5  # share of the rates, from what was found at another radius
COOLED = 0.02  # share of the rates that is left at the end
LOOSE = 0.3  # share of a neuron's largest error that is a unit of its centre
SETTLING = 8  # power iterations after which an eigenvalue is believed
CHECKED = 10  # steps between two looks at who is done


@dataclass(frozen=True, eq=False)
class VariableLayout:
    """Where variables are in a row of the table: slices of shares, centres and logarithms of weights."""

    linearised: LinearisedNetwork
    own: bool

    @property
    def sizes(self) -> list[int]:
        neurons, inputs = self.linearised.neurons, len(self.linearised.radii)
        every = [len(unstable) for unstable in neurons.values()]
        errors = [len(neurons[value]) for value in self.linearised.followed]
        weights = [*every, *errors, self.input_weights] if self.own else [1]
        return [*every, inputs, *errors, *weights]

    @property
    def input_weights(self) -> int:
        """One weight for all inputs where only the largest counts."""
        return 1 if self.linearised.region.norm.p <= 2 else len(self.linearised.radii)

    def point(self, table: Tensor) -> DualPoint:
        """The dual point of a table, or of gradients in its place, as views."""
        columns = iter(table.split(self.sizes, 1))
        shares = dict(zip(self.linearised.neurons, columns, strict=False))
        return DualPoint(shares, next(columns), dict(zip(self.linearised.followed, columns, strict=False)))

    def logarithms(self, table: Tensor) -> Weights:
        """The logarithms of own weights, as views."""
        layers, followed = self.linearised.neurons, self.linearised.followed
        columns = iter(table.split(self.sizes, 1)[len(layers) + 1 + len(followed) :])
        deviations = dict(zip(layers, columns, strict=False))
        return Weights(deviations, dict(zip(followed, columns, strict=False)), next(columns))

    def weight_columns(self, weights: Weights) -> Tensor:
        """The logarithms of weights as `logarithms` finds them, in the last columns of a table: (rows, ...)."""
        deviations = [weights.deviations[value] for value in self.linearised.neurons]
        errors = [weights.errors[value] for value in self.linearised.followed]
        inputs = weights.inputs.expand(-1, self.input_weights)
        return torch.cat([*deviations, *errors, inputs], 1).clamp(min=TINIEST).log()

    def start(self, pulled: Pulled) -> Tensor:
        """A table for pulled forms, (forms, variables): with the shares that searches start with, and 0 besides."""
        table = pulled.inputs.new_zeros(len(pulled.inputs), sum(self.sizes))
        for value, shares in self.point(table).shares.items():
            shares.copy_(self.linearised.first_shares(value, pulled.coefficients[value]))
        return table

    def rates(self) -> Tensor:
        """The step of every variable, (1, variables)."""
        linearised = self.linearised
        even = linearised.radii.new_full((len(linearised.radii),), linearised.region.norm.even(len(linearised.radii)))
        followed = [linearised.neurons[value] for value in linearised.followed]
        largest_errors = [
            LOOSE * unstable.width * torch.maximum(-unstable.lower, unstable.upper) for unstable in followed
        ]
        shares = [torch.full((len(unstable),), SHARE_RATE) for unstable in linearised.neurons.values()]
        centres = [CENTRE_RATE * units for units in (even, *largest_errors)]
        rest = sum(self.sizes) - sum(map(len, shares)) - sum(map(len, centres))
        return torch.cat([*shares, *centres, torch.full((rest,), WEIGHT_RATE if self.own else FACTOR_RATE)])[None]


def cooling(step: int, steps: int) -> float:
    """The share of the rates at a step of an ascent."""
    return 1 - (1 - COOLED) * step / steps


@dataclass(eq=False)
class BoundAscent:
    """The state of an ascent of the dual bounds of some forms.

    Attributes:
        layout: Of the table.
        forms: On the output, (forms, classes).
        heights: Their values at the reference, (forms,).
        table: The variables of every form, (forms, variables): its dual point, and the logarithm of its factor of
            weights that forms share, or of its own weights.
    """

    layout: VariableLayout
    forms: Tensor
    heights: Tensor
    table: Tensor

    @property
    def linearised(self) -> LinearisedNetwork:
        return self.layout.linearised

    @property
    def point(self) -> DualPoint:
        return self.layout.point(self.table)

    @property
    def factors(self) -> Tensor:
        """Of weights that forms share, (forms,)."""
        return self.table[:, -1].exp()

    def evaluate(self, weights: Weights) -> Evaluated:
        return evaluate(self.linearised, self.forms, self.heights, weights, self.point)

    def gradient(self, weights: Weights) -> Gradient:
        return gradient(self.linearised, weights, self.point, self.evaluate(weights))


@dataclass(eq=False)
class CertificateAscent(BoundAscent):
    """An ascent of every form with a factor of weights that stay, or with weights of its own.

    Attributes:
        base: The composed certificate that factors multiply; its weights are where own ones start.
        power: Of own weights.
    """

    base: Weights
    power: PowerIteration | None

    def __post_init__(self) -> None:
        self._adam = Adam([self.table], tiny=SMALLEST_STEP)

    def weights(self) -> tuple[Weights, Spectrum | None]:
        """The weights of every form, and how own ones were made feasible."""
        if self.power is None:
            return self.base.times(self.factors), None
        weights = self.layout.logarithms(self.table).map(torch.exp)
        spectrum = self.power.step(weights)
        return weights.inflated(spectrum.largest), spectrum

    def steps(self, count: int, speed: float = 1.0) -> Iterator[tuple[Tensor, Evaluated]]:
        """Takes a number of steps, for all forms that are kept; yields the table before each, and the bounds there."""
        rates = speed * self.layout.rates()
        for step in range(count):
            check_time()
            weights, spectrum = self.weights()
            before, point, evaluated = self.table, self.point, self.evaluate(weights)
            slope = gradient(self.linearised, weights, point, evaluated)
            on_weights = None if spectrum is None else weight_gradient(self.layout, slope.weights, spectrum)
            (direction,) = self._adam.directions([table_gradient(slope, on_weights)])
            self.table = before + direction * (rates * cooling(step, count))
            yield before, evaluated

    def settled(self) -> tuple[Tensor, Weights]:
        """The bounds, (forms,), with weights whose feasibility is known well."""
        if self.power is not None:
            weights = self.layout.logarithms(self.table).map(torch.exp)
            for _ in range(SETTLING):
                self.power.step(weights)
        weights, _ = self.weights()
        return self.evaluate(weights).bounds, weights

    def keep(self, rows: Tensor) -> None:
        """Goes on with some forms."""
        self.forms, self.heights, self.table = self.forms[rows], self.heights[rows], self.table[rows]
        self._adam.select(rows)
        if self.power is not None:
            self.power.vectors = self.power.vectors[rows]


def best_factors(
    linearised: LinearisedNetwork, heights: Tensor, weights: Weights, pulled: Pulled, point: DualPoint,
    size: Tensor, factors: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The logarithm of the best factor of the weights for every form, and the bound with it, (forms,) each.

    Centres count as 0. The factors that are tried, (factors,), are times that with which the input costs `size`.
    """
    zero_vertices = {value: torch.zeros_like(links) for value, links in pulled.links.items()}
    best, logarithms = torch.full_like(heights, -torch.inf), torch.zeros_like(heights)
    cost = squares_bound(linearised, weights.inputs, DOUBLE).clamp(min=TINIEST)[0]
    for factor in (size / cost).clamp(TINIEST, 1 / TINIEST) * factors:
        scaled = weights.times(factor.expand(len(best)))
        bounds = bound(linearised, heights, scaled, pulled, point, zero_vertices).bounds
        logarithms = torch.where(bounds > best, factor.log(), logarithms)
        best = torch.maximum(best, bounds)
    return logarithms, best


def table_gradient(slope: Gradient, on_weights: Tensor | None = None) -> Tensor:
    """The gradient in all columns of a table, (forms, variables).

    on_weights: That in the logarithms of own weights; by default forms have factors of weights that they share.
    """
    if on_weights is None:
        weights = slope.weights
        derivatives = [weights.inputs, *weights.errors.values(), *weights.deviations.values()]
        on_weights = torch.cat(derivatives, 1).sum(1, keepdim=True)
    return torch.cat([*slope.point.shares.values(), slope.point.inputs, *slope.point.errors.values(), on_weights], 1)


def weight_gradient(layout: VariableLayout, slope: Weights, spectrum: Spectrum) -> Tensor:
    """The gradient in the logarithms of own weights, which are scaled until they are feasible: (forms, ...)."""
    carried = slope.inputs.sum(1, keepdim=True) + sum(
        derivative.sum(1, keepdim=True) for derivative in slope.errors.values()
    )
    shares = spectrum.shares
    derivatives = [derivative + carried * shares.deviations[value] for value, derivative in slope.deviations.items()]
    derivatives += [derivative - carried * shares.errors[value] for value, derivative in slope.errors.items()]
    inputs = slope.inputs - carried * shares.inputs
    return torch.cat([*derivatives, inputs.sum(1, keepdim=True) if layout.input_weights == 1 else inputs], 1)
