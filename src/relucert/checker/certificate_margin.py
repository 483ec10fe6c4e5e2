"""The margin that a feasible certificate proves: a sum of the least values of functions of one neuron each.

With weights P and D, a centre t and links lambda, everywhere in the region

    row >= m0 + sum of (g dh - lambda dz + P (dz - At)^2 - D (e - t)^2) + g0 dx - D0 (y - t)^2,

where g are the coefficients of ReLUs that the row and the lambda of later layers make. Any lambda and any t are sound,
so those of the file are rounded first. Other roundings, residuals and noise are charged as they arise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from flint import fmpq

from relucert.checker.activations import is_activation
from relucert.checker.ball_region import Numbers, fixed, fraction
from relucert.checker.certificate_document import CertificateEntry, RowEntry
from relucert.checker.certificate_feasible import check_counts
from relucert.checker.fixed_point import Fixed, aligned, of_floats, sums
from relucert.checker.graphs import LinePiece
from relucert.checker.linearised_network import INPUT, CheckedNetwork, UnstableNeurons, numbers_of

SUM_BITS = 128  # behind the point, of the terms of the margin
ZERO = fmpq(0)


@dataclass(eq=False)
class Margin:
    """A lower bound of one form in the region, added up.

    Attributes:
        inputs: The weights of all inputs, 0 for those that stay.
    """

    linearised: CheckedNetwork
    certificate: CertificateEntry
    inputs: Numbers
    entry: RowEntry
    total: fmpq = field(default_factory=lambda: fmpq(0))

    def __post_init__(self) -> None:
        counts, errors = self.linearised.counts
        check_counts("links", self.entry.links, counts)
        check_counts("centres of errors", self.entry.errors, errors)
        if len(self.entry.inputs) != len(self.inputs):
            check_counts("centres of inputs", {INPUT: self.entry.inputs}, {INPUT: len(self.inputs)})
        self.factor = fraction(self.entry.factor)

    def least(self, row: list[float], offset: float) -> fmpq:
        """A lower bound of a row, a form on the last value, plus its offset."""
        output = numbers_of(self.linearised.values[self.linearised.end])
        products = (fraction(factor) * number for factor, number in zip(row, output, strict=True) if factor)
        self.total = fraction(offset) + sum(products, ZERO)
        coefficients, links, form = self._pull(row)
        centres = {
            value: of_floats(torch.tensor(self.entry.errors.get(value, []), dtype=torch.float64)[None])
            for value in self.linearised.neurons
        }
        region = self.linearised.region
        shifted = [fraction(centre) * radius for centre, radius in zip(self.entry.inputs, region.radii, strict=True)]
        vertices, drift = self.linearised.forward(
            fixed(shifted), {value: replace(numbers, error=0) for value, numbers in centres.items()}
        )
        for value, neurons in self.linearised.neurons.items():
            if len(neurons):
                terms = coefficients[value], links[value], vertices[value].at(neurons.index), centres[value]
                self._add_neurons(value, neurons, terms, drift[value].at(neurons.index))
        self._add_inputs(form)
        return self.total

    def _pull(self, row: list[float]) -> tuple[dict[int, Numbers], dict[int, Numbers], Numbers]:
        """Back-substitutes a row.

        Returns:
            By pre-activation the coefficients g of unstable neurons; by pre-activation the lambda; the coefficients of
            the input.
        """
        network = self.linearised.network
        forms = of_floats(torch.tensor(row, dtype=torch.float64)[None])
        pending: dict[int, Fixed] = {self.linearised.end: forms}
        on_relus: dict[int, Fixed] = {}
        coefficients: dict[int, Numbers] = {}
        links: dict[int, Numbers] = {}
        for value in range(self.linearised.end, INPUT - 1, -1):
            if value in self.linearised.neurons:
                nothing = Fixed(torch.zeros(1, network.sizes[value], dtype=torch.int64), 0)
                reached = on_relus.pop(value, nothing)
                coefficients[value] = numbers_of(reached.at(self.linearised.neurons[value].index))
                passed, links[value] = self._choose(value, reached)
                _join(pending, value, passed)
            if value not in pending or value == INPUT:
                continue
            form = pending.pop(value)
            if is_activation(network.node(value)):
                _join(on_relus, network.source(value), form)
                continue
            self._lose(form, self.linearised.residuals[value])
            pulled = self.linearised.relaxation.layers[value].transpose(form)
            for source in network.node(value).inputs:
                _join(pending, source, pulled)
        if INPUT not in pending:
            return coefficients, links, [ZERO] * network.sizes[INPUT]
        form = pending[INPUT]
        self._lose(form, self.linearised.residuals[INPUT])
        self.total -= fmpq(form.error) * fmpq(2) ** -form.bits * sum(self.linearised.region.radii, ZERO)
        return coefficients, links, numbers_of(form)

    def _choose(self, value: int, reached: Fixed) -> tuple[Fixed, Numbers]:
        """The form on a pre-activation for a form on its ReLUs, and the lambda that are its coefficients, exactly."""
        neurons = self.linearised.neurons[value]
        links = of_floats(torch.tensor(self.entry.links.get(value, []), dtype=torch.float64)[None])
        links, passed = aligned(replace(links, error=0), reached)
        lost = replace(passed, units=torch.zeros_like(passed.units))
        self._lose(lost, self.linearised.max_deviation[value])
        units = passed.units * (self.linearised.slopes[value].units > 0)
        units[:, neurons.index] = links.units
        return Fixed(units, passed.bits), numbers_of(links)

    def _lose(self, form: Fixed, amounts: Fixed) -> None:
        """Subtracts what a form, (1, size), loses where every coordinate may be off by an amount, (size,)."""
        sizes = replace(form, units=form.units.abs() + form.error, error=0)
        (lost,) = sums(sizes, amounts)
        self.total -= lost * fmpq(2) ** -(form.bits + amounts.bits)

    def _add_neurons(
        self, value: int, neurons: UnstableNeurons, terms: tuple[Numbers, Numbers, Fixed, Fixed], drift: Fixed
    ) -> None:
        """Adds the least values of a pre-activation's unstable neurons.

        Args:
            terms: The coefficients g, the lambda, the vertices A t, and the centres t of errors.
            drift: How far the vertices may be off.
        """
        g, link, vertices, centres = terms
        count = len(neurons)
        weights = [self.factor * fraction(number) for number in self.certificate.deviations[value]]
        error_weights, error_centres = [ZERO] * count, [ZERO] * count
        if neurons.followed:
            error_weights = [self.factor * fraction(number) for number in self.certificate.errors[value]]
            error_centres = numbers_of(centres)
        amounts = numbers_of(drift)
        for neuron, vertex in enumerate(numbers_of(vertices)):
            low, high, weight = neurons.lower[neuron], neurons.upper[neuron], weights[neuron]
            least = _least_of_neuron(
                neurons.pieces[neuron], neurons.slope[neuron], g[neuron], link[neuron], weight, vertex,
                error_weights[neuron], error_centres[neuron],
            )  # fmt: skip
            away = max(abs(low - vertex), abs(high - vertex))
            self._add(least - 2 * weight * away * amounts[neuron])

    def _add_inputs(self, form: Numbers) -> None:
        """Adds the least of `form dx - D (y - t)^2` over the region."""
        region = self.linearised.region
        weights = [self.factor * weight for weight in self.inputs]
        centres = [fraction(number) for number in self.entry.inputs]
        whole = [
            coefficient * radius + 2 * weight * centre
            for coefficient, radius, weight, centre in zip(form, region.radii, weights, centres, strict=True)
        ]
        squares = sum((weight * centre * centre for weight, centre in zip(weights, centres, strict=True)), ZERO)
        self._add(-region.fall(whole) - region.most_squares(weights) - squares)

    def _add(self, number: fmpq) -> None:
        self.total += fmpq((number * (1 << SUM_BITS)).floor(), 1 << SUM_BITS)


def _least_of_neuron(
    pieces: list[LinePiece], slope: fmpq, g: fmpq, link: fmpq, weight: fmpq, vertex: fmpq, error_weight: fmpq,
    error_centre: fmpq,
) -> fmpq:  # fmt: skip
    """The least of `g dh - link dz + P (dz - a)^2 - D (dh - s dz - t)^2` on the pieces, exactly."""
    candidates = []
    for rise, shift, first, last in pieces:
        steep, apart = rise - slope, shift - error_centre
        curvature = weight - error_weight * steep * steep
        linear = rise * g - link - 2 * weight * vertex - 2 * error_weight * steep * apart
        constant = g * shift + weight * vertex * vertex - error_weight * apart * apart
        ends = [first, last]
        if curvature > 0:
            stationary = -linear / (2 * curvature)
            ends = [min(max(stationary, first), last)]
        candidates += [constant + point * (linear + curvature * point) for point in ends]
    return min(candidates)


def _join(forms: dict[int, Fixed], value: int, form: Fixed) -> None:
    forms[value] = forms[value].plus(form) if value in forms else form
