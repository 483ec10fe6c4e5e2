"""The proof of margins: from the numbers of a certificate alone, in float64 with every rounding error bounded.

Nothing is taken over from where the numbers were found. docs/sdp.md has the theorem. What rounds is charged in three
places. Deviations are counted from the computed values of the network at a reference, so that an affine operation
misses its own by a residual; the residuals, and with `inference` the noise of the network's evaluation, move every
deviation by a drift. Forms have errors of their own, and so have the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.rigor import RIGOROUS, TINY, short
from relucert.bounding.interval import Bounds, Centred, Interval, affine_image
from relucert.bounding.noise import noise, rounds
from relucert.common.deadline import check_time
from relucert.methods.passes import Passes
from relucert.methods.quadratic.dual import DualPoint, Pulled, Term, Weights, squares_bound, term
from relucert.methods.quadratic.linearised_network import LinearisedNetwork, Neurons
from relucert.network import INPUT, Activation, FlatAffine, Rows

NOTHING = -torch.inf


@dataclass(frozen=True, eq=False)
class RigorousLinearisation:
    """What all proofs in one region share, in float64.

    Attributes:
        linearised: The region, with the reference that its neurons count from.
        bounds: Proven ones of every pre-activation, (1, size) each.
        residuals: By affine value, how far it may be from its operation on the values before, and from any evaluation
            of it that the network's inference allows, (1, size) each.
    """

    linearised: LinearisedNetwork
    bounds: Bounds
    residuals: dict[int, Tensor]

    @classmethod
    def of(cls, linearised: LinearisedNetwork, bounds: Bounds) -> RigorousLinearisation:
        network = linearised.network
        residuals = {}
        sizes: dict[int, Centred] = {INPUT: Centred.of_input(linearised.region, RIGOROUS)}
        for value, node in network.steps():
            check_time()
            if isinstance(node.operation, Activation):
                sizes[value] = Centred.activated(node.operation, bounds[node.inputs[0]], RIGOROUS)
                continue
            affine, gamma = FlatAffine.of(network, value), RIGOROUS.gamma(node.operation.terms + 3)
            size = affine.absolute(*(linearised.values[source].abs() for source in node.inputs))
            size = affine.plus_constant(size, 1.0)
            residual = RIGOROUS.above(gamma * size, node.operation.terms + 4)
            if network.inference.rounds:
                sizes[value] = affine_image(network, value, [sizes[source] for source in node.inputs], RIGOROUS)
                if value in bounds:
                    met = sizes[value].interval(RIGOROUS).meet(bounds[value])
                    sizes[value] = Centred.of(Interval(torch.minimum(met.lower, met.upper), met.upper), RIGOROUS)
                if rounds(network, value):
                    magnitudes = [sizes[source].centre.abs() + sizes[source].radius for source in node.inputs]
                    residual = RIGOROUS.above(residual + noise(network, value, magnitudes, RIGOROUS), 1)
            residuals[value] = residual
        return cls(linearised, bounds, residuals)

    @cached_property
    def path_error(self) -> float:
        """By how much a linear pass over the whole network may be off, relatively to one with absolute coefficients."""
        network = self.linearised.network
        affine = (network.affine(value) for value in self.residuals)
        return RIGOROUS.gamma(sum(operation.terms + 4 for operation in affine) + 8 * len(network.nodes))

    @cached_property
    def absolute(self) -> Passes:
        network = self.linearised.network
        return Passes(
            network.with_operations({value: network.affine(value).absolute for value in self.residuals}), False
        )

    def max_deviation(self, value: int) -> Tensor:
        """How far the neurons of a layer may lie from their reference, at most: (1, size)."""
        lower, upper = self.bounds[value]
        centre = self.linearised.values[value]
        return RIGOROUS.above(torch.maximum(upper - centre, centre - lower).clamp(min=0), 1)

    def max_output_deviation(self, value: int) -> Tensor:
        """How far the activations of a layer may lie from their reference, at most: (1, size)."""
        neurons, max_deviation = self.linearised.neurons[value], self.max_deviation(value)
        if not len(neurons):
            return max_deviation
        size = torch.stack([piece.size for piece in neurons.pieces]).amax(0)
        return max_deviation.index_copy(1, neurons.index, RIGOROUS.above(size, 4)[None])

    def drift(self, inputs: Tensor, errors: dict[int, Tensor]) -> dict[int, Tensor]:
        """How far computed deviations of unstable neurons may be from the true ones, by layer, (forms, count) each.

        It covers the residuals, and the rounding of passes over vectors of at most these absolute values, of y,
        (forms, inputs), and of e by layer.
        """
        linearised, drifts = self.linearised, {}

        def activate(value: int, moved: Tensor) -> Tensor:
            neurons = linearised.neurons[value]
            drifts[value] = RIGOROUS.above(moved[:, neurons.index], 4)
            through = moved * linearised.stable[value]
            if neurons.following and len(neurons):
                through[:, neurons.index] = neurons.slope.abs() * drifts[value] + self.path_error * errors[value]
            return through

        self.absolute.forward(self.path_error * inputs * linearised.radii, activate, self.residuals)
        return {value: RIGOROUS.up(amounts * (1 + self.path_error), 4) + TINY for value, amounts in drifts.items()}


def pull_back(rigorous: RigorousLinearisation, forms: Tensor, point: DualPoint) -> tuple[Pulled, Tensor]:
    """Pulls forms on the output, (forms, classes), back to the input.

    Returns:
        The computed coefficients of unstable ReLUs and of the input (in units of x), and exactly the links; and what
        all errors of coefficients, and all residuals, may cost at most, (forms,).
    """
    linearised, network = rigorous.linearised, rigorous.linearised.network
    pending: dict[int, tuple[Tensor, Tensor]] = {network.output: (forms, torch.zeros_like(forms))}
    on_relus: dict[int, tuple[Tensor, Tensor]] = {}
    coefficients, links = {}, {}
    lost = forms.new_zeros(len(forms))
    for value in range(network.output, INPUT - 1, -1):
        check_time()
        if value in linearised.neurons:
            zeros = forms.new_zeros(len(forms), network.sizes[value])
            reached, error = on_relus.pop(value, (zeros, zeros))
            index = linearised.neurons[value].index
            coefficients[value] = reached[:, index]
            links[value] = short(point.shares[value] * coefficients[value])
            through = (reached * linearised.stable[value]).index_copy_(1, index, links[value])
            lost = lost + (error * rigorous.max_output_deviation(value)).sum(1)
            _join(pending, value, (through, torch.zeros_like(through)))
        if value not in pending or value == INPUT:
            continue
        form, error = pending.pop(value)
        if value in network.activations:
            _join(on_relus, network.source(value), (form, error))
            continue
        operation = network.affine(value)
        lost = lost + ((form.abs() + error) * rigorous.residuals[value]).sum(1)
        forms_before = operation.transpose(form.unflatten(1, network.shapes[value]))
        spread = error + RIGOROUS.gamma(operation.terms + 3) * form.abs()
        errors_before = operation.absolute.transpose(spread.unflatten(1, network.shapes[value]))
        for source, form_before, error_before in zip(
            network.node(value).inputs, forms_before, errors_before, strict=True
        ):
            _join(
                pending, source, (form_before.flatten(1), RIGOROUS.above(error_before.flatten(1), operation.terms + 4))
            )
    form, error = pending.get(INPUT, (forms.new_zeros(len(forms), network.sizes[INPUT]),) * 2)
    lost = lost + (error * linearised.radii).sum(1)
    count = max(network.sizes) * (len(network.nodes) + 1)
    return Pulled(coefficients, links, form), RIGOROUS.above(lost, count)


def _join(forms: dict[int, tuple[Tensor, Tensor]], value: int, added: tuple[Tensor, Tensor]) -> None:
    if value not in forms:
        forms[value] = added
        return
    total = forms[value][0] + added[0]
    forms[value] = total, RIGOROUS.above(forms[value][1] + added[1] + RIGOROUS.gamma(1) * total.abs(), 2)


class ProvenMargins(NamedTuple):
    """Lower bounds, (forms,), minus infinity where there is none, and by layer exactly the numbers lambda."""

    bounds: Tensor
    links: dict[int, Tensor]


def prove_margins(
    rigorous: RigorousLinearisation, forms: Tensor, offsets: Tensor, weights: Weights, point: DualPoint,
    signs: Tensor | None = None,
) -> ProvenMargins:  # fmt: skip
    """Lower bounds of `forms @ outputs + offsets` in the region.

    Args:
        rigorous: Of the region.
        forms: (forms, classes).
        offsets: (forms,).
        weights: Of certificates that are proven: `D - A'PA` is semidefinite, with A as it is, or as passes compute it.
            A factor that multiplied them since costs one rounding, which the charges of every product have room for.
        point: Any numbers.
        signs: Of unstable ReLUs in the subdomain of each form, (forms, unstable), 0 where they have none; by default
            the bounds are about the whole region.
    """
    linearised = rigorous.linearised
    confined = linearised if signs is None else linearised.split(signs)
    pulled, lost = pull_back(rigorous, forms, point)
    total = _Total(len(forms))
    total.lose(torch.where(weights.usable, 0.0, torch.inf)[:, None])
    total.add(forms * linearised.values[linearised.network.output])
    total.add(offsets[:, None])
    total.lose(lost[:, None])
    vertices = linearised.forward(point.inputs, point.errors)
    max_deviations = {
        value: rigorous.max_deviation(value)[:, neurons.index] for value, neurons in linearised.neurons.items()
    }
    largest = {}
    for value, centres in point.errors.items():
        neurons = linearised.neurons[value]
        outputs = rigorous.max_output_deviation(value)[:, neurons.index]
        largest[value] = centres.abs() + outputs + neurons.slope.abs() * max_deviations[value]
    drift = rigorous.drift(1 + 2 * point.inputs.abs(), {value: 2 * amounts for value, amounts in largest.items()})
    for value, neurons in linearised.neurons.items():
        if not len(neurons):
            continue
        neuron_term = term(value, pulled, weights, vertices[value], point)
        total.lose(2 * neuron_term.weight * (max_deviations[value] + neuron_term.vertex.abs()) * drift[value])
        _add_neurons(total, confined.neurons[value], neuron_term)
    _add_inputs(total, linearised, pulled.inputs, weights.inputs, point.inputs)
    return ProvenMargins(total.lower(), pulled.links)


class _Total:
    """Sums of products, one for each form, with a bound of their rounding errors and of all else that may be lost."""

    def __init__(self, forms: int) -> None:
        self._sum = torch.zeros(forms, dtype=torch.float64)
        self._size = torch.zeros_like(self._sum)
        self._lost = torch.zeros_like(self._sum)
        self._count = 16

    def add(self, terms: Tensor) -> None:
        """Numbers, (forms or 1, count), that each are products of a few numbers: at most eight roundings."""
        self._sum = self._sum + terms.sum(1)
        self._size = self._size + terms.abs().sum(1)
        self._count += terms.shape[1] + 1

    def lose(self, amounts: Tensor) -> None:
        """Upper bounds, but for rounding, of what may be lost; none is negative."""
        self._lost = self._lost + amounts.sum(1)
        self._count += amounts.shape[1] + 1

    def lower(self) -> Tensor:
        lost = self._lost + RIGOROUS.gamma(self._count + 8) * self._size + self._count * TINY
        lower = RIGOROUS.floor(self._sum - RIGOROUS.above(lost, self._count + 8))
        return torch.where(lower < torch.inf, lower, NOTHING)  # NaN and infinity prove nothing


def _add_inputs(total: _Total, linearised: LinearisedNetwork, form: Tensor, weights: Tensor, centre: Tensor) -> None:
    """The least of `form dx - D (y - t)^2` over the region."""
    radii = linearised.radii
    shares = torch.where(radii > 0, 2 * weights * centre / torch.where(radii > 0, radii, 1), 0)
    whole = form + shares
    total.lose(RIGOROUS.gamma(4) * (form.abs() + shares.abs()) * radii)
    total.lose(torch.where(radii > 0, 0, (2 * weights * centre).abs()) + TINY)  # coordinates that stay
    rows = Rows(whole[None], (len(radii),))
    total.lose(linearised.region.deviation(rows, RIGOROUS, False).below[0][:, None])
    total.lose(squares_bound(linearised, weights, RIGOROUS)[:, None])
    total.add(-weights * centre.square())


def _add_neurons(total: _Total, neurons: Neurons, term: Term) -> None:
    """The least of every neuron's term on its bounds.

    A convex piece lies above its tangent at any point, so a point near its minimum will do; a concave one is least at
    one of its ends. That a curvature near 0 may have the other sign is charged with the rounding of the value.
    """
    least = torch.full_like(term.link, torch.inf)
    for piece in neurons.pieces:
        low, high = piece.low, piece.high
        curvature, slope = term.curvature(piece), term.slope(piece)
        convex = curvature > 0
        vertex_point = (-slope / torch.where(convex, 2 * curvature, 1)).minimum(high).maximum(low)
        tangent = slope + 2 * curvature * vertex_point
        fall = torch.maximum(tangent * (vertex_point - low), tangent * (vertex_point - high)).clamp(min=0)
        ends = torch.minimum(term.at(piece, low), term.at(piece, high))
        least_on_piece = torch.where(convex, term.at(piece, vertex_point) - fall, ends)
        largest, shift = torch.maximum(low.abs(), high.abs()), piece.shift.abs()
        size = term.coefficient.abs() * piece.size + term.link.abs() * largest
        size = size + term.weight * (largest + term.vertex.abs()).square()
        size = size + term.error_weight * (piece.steep.abs() * largest + shift + term.error_centre.abs()).square()
        least_on_piece = least_on_piece - RIGOROUS.above(RIGOROUS.gamma(256) * size, 16)
        least = torch.minimum(least, torch.where(low > high, torch.inf, least_on_piece))
    total.add(torch.where(least < torch.inf, least, torch.nan))  # a neuron whose numbers are none has no bound
