"""Ascents of the dual bound in float32: on slopes and centres, and on the certificate's weights.

The bounds of all forms of a region are raised together, each with variables of its own in one row of a table. Weights
are either those of one composed certificate times a factor for each form, or each form's own (the joint certificate).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.arithmetic.rigor import DOUBLE
from relucert.bounding.adam import Adam
from relucert.common.deadline import check_time
from relucert.methods.quadratic.dual import (
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
from relucert.methods.quadratic.joint import TINIEST, PowerIteration, Spectrum
from relucert.methods.quadratic.linearised_network import LinearisedNetwork

DECAY = (0.9, 0.99)
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
    def _followed(self) -> list[int]:
        return [value for value, neurons in self.linearised.neurons.items() if neurons.following]

    @property
    def sizes(self) -> list[int]:
        neurons, followed, inputs = self.linearised.neurons, self._followed, len(self.linearised.radii)
        every, errors = [len(unstable) for unstable in neurons.values()], [len(neurons[value]) for value in followed]
        weights = [*every, *errors, self.input_weights] if self.own else [1]
        return [*every, inputs, *errors, *weights]

    @property
    def input_weights(self) -> int:
        """One weight for all inputs where only the largest counts."""
        return 1 if self.linearised.region.norm.p <= 2 else len(self.linearised.radii)

    def point(self, table: Tensor) -> DualPoint:
        """The dual point of a table, or of gradients in its place, as views."""
        columns = table.split(self.sizes, 1)
        layers, followed = list(self.linearised.neurons), self._followed
        shares = dict(zip(layers, columns, strict=False))
        errors = dict(zip(followed, columns[len(layers) + 1 :], strict=False))
        return DualPoint(shares, columns[len(layers)], errors)

    def logarithms(self, table: Tensor) -> Weights:
        """The logarithms of own weights, as views."""
        layers, followed = list(self.linearised.neurons), self._followed
        columns = table.split(self.sizes, 1)[len(layers) + 1 + len(followed) :]
        deviations = dict(zip(layers, columns, strict=False))
        errors = dict(zip(followed, columns[len(layers) :], strict=False))
        return Weights(deviations, errors, columns[-1])

    def rates(self) -> Tensor:
        """The step of every variable, (1, variables)."""
        linearised = self.linearised
        even = linearised.radii.new_full((len(linearised.radii),), linearised.region.norm.even(len(linearised.radii)))
        followed = [linearised.neurons[value] for value in self._followed]
        largest_errors = [
            LOOSE * unstable.width * torch.maximum(-unstable.lower, unstable.upper) for unstable in followed
        ]
        shares = [torch.full((len(unstable),), SHARE_RATE) for unstable in linearised.neurons.values()]
        centres = [CENTRE_RATE * units for units in (even, *largest_errors)]
        rest = sum(self.sizes) - sum(map(len, shares)) - sum(map(len, centres))
        return torch.cat([*shares, *centres, torch.full((rest,), WEIGHT_RATE if self.own else FACTOR_RATE)])[None]


@dataclass(eq=False)
class CertificateAscent:
    """The state of an ascent.

    Attributes:
        layout: Of the table.
        forms: On the output, (forms, classes).
        heights: Their values at the reference, (forms,).
        base: The composed certificate that factors multiply; its weights are where own ones start.
        table: (forms, variables).
        power: Of own weights.
    """

    layout: VariableLayout
    forms: Tensor
    heights: Tensor
    base: Weights
    table: Tensor
    power: PowerIteration | None

    @property
    def linearised(self) -> LinearisedNetwork:
        return self.layout.linearised

    def weights(self) -> tuple[Weights, Spectrum | None]:
        """The weights of every form, and how own ones were made feasible."""
        if self.power is None:
            return self.base.times(self.table[:, -1].exp()), None
        weights = self.layout.logarithms(self.table).map(torch.exp)
        spectrum = self.power.step(weights)
        return weights.inflated(spectrum.largest), spectrum

    def ascend(self, steps: int) -> None:
        """Takes a number of steps, for all forms."""
        adam, rates = Adam([self.table], DECAY, 1e-12), self.layout.rates()
        for step in range(steps):
            self.step(adam, rates * (1 - (1 - COOLED) * step / steps))

    def step(self, adam: Adam, rates: Tensor) -> Evaluated:
        """One step; returns the bounds before it."""
        check_time()
        weights, spectrum = self.weights()
        point = self.layout.point(self.table)
        evaluated = evaluate(self.linearised, self.forms, self.heights, weights, point)
        slope = gradient(self.linearised, weights, point, evaluated)
        (direction,) = adam.directions([torch.cat([point_gradient(slope), self._weight_gradient(slope, spectrum)], 1)])
        self.table.add_(direction * rates)
        return evaluated

    def _weight_gradient(self, slope: Gradient, spectrum: Spectrum | None) -> Tensor:
        return factor_gradient(slope) if spectrum is None else weight_gradient(self.layout, slope, spectrum)

    def settled(self) -> tuple[Tensor, Weights]:
        """The bounds, (forms,), with weights whose feasibility is known well."""
        if self.power is not None:
            weights = self.layout.logarithms(self.table).map(torch.exp)
            for _ in range(SETTLING):
                self.power.step(weights)
        weights, _ = self.weights()
        return evaluate(
            self.linearised, self.forms, self.heights, weights, self.layout.point(self.table)
        ).bounds, weights

    def select(self, rows: Tensor) -> CertificateAscent:
        power = None if self.power is None else self.power.select(rows)
        return CertificateAscent(self.layout, self.forms[rows], self.heights[rows], self.base, self.table[rows], power)


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


def point_gradient(slope: Gradient) -> Tensor:
    """The gradient in the dual point as the first columns of a table, (forms, ...)."""
    return torch.cat([*slope.point.shares.values(), slope.point.inputs, *slope.point.errors.values()], 1)


def factor_gradient(slope: Gradient) -> Tensor:
    """The gradient in the logarithm of a factor on all weights, (forms, 1)."""
    derivatives = [slope.inputs, *slope.errors.values(), *slope.deviations.values()]
    return torch.cat(derivatives, 1).sum(1, keepdim=True)


def weight_gradient(layout: VariableLayout, slope: Gradient, spectrum: Spectrum) -> Tensor:
    """The gradient in the logarithms of own weights, which are scaled until they are feasible: (forms, ...)."""
    carried = slope.inputs.sum(1, keepdim=True) + sum(
        derivative.sum(1, keepdim=True) for derivative in slope.errors.values()
    )
    derivatives = [derivative + carried * spectrum.deviations[value] for value, derivative in slope.deviations.items()]
    derivatives += [derivative - carried * spectrum.errors[value] for value, derivative in slope.errors.items()]
    inputs = slope.inputs - carried * spectrum.inputs
    return torch.cat([*derivatives, inputs.sum(1, keepdim=True) if layout.input_weights == 1 else inputs], 1)
