"""The proof: from multipliers alone, in float64 with every rounding error bounded.

Nothing is taken over from where the multipliers were found: neither the matrix, nor that it is semidefinite, nor the
value of the dual function. See docs/sdp.md for the theorem and its proof.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.arithmetic.rigor import RIGOROUS, TINY
from relucert.methods.quadratic.certificate import Certificate
from relucert.methods.quadratic.chain import Layer
from relucert.methods.quadratic.maps import deviation_matrices
from relucert.methods.quadratic.problem import HiddenLayer, Problem
from relucert.methods.quadratic.products import add_squares
from relucert.methods.quadratic.semidefinite import is_semidefinite
from relucert.network import Rows

NOTHING = -torch.inf


@dataclass(frozen=True, eq=False)
class ProvenCertificate:
    """An inequality that holds in the region: `sum weights dz^2 + x' matrix x <= right`, with a semidefinite matrix.

    Attributes:
        weights: Of the squared deviations from the true pre-activations at the centre, for every hidden layer.
        matrix: On the moving inputs and the sector errors of loose neurons, (rows, rows), exactly these numbers.
        right: The right side, with what rounding of the matrix may cost.
    """

    weights: tuple[Tensor, ...]
    matrix: Tensor
    right: Tensor


@dataclass(frozen=True, eq=False)
class ProposedDual:
    """The variables of the margin's dual in float64; any finite numbers will do, with a rate > 0.

    Attributes:
        rate: Of the certificate.
        links: Of the equations of every hidden layer, (size,) each.
        tangent: (rows,).
    """

    rate: Tensor
    links: tuple[Tensor, ...]
    tangent: Tensor


def prove_certificate(problem: Problem, certificate: Certificate) -> ProvenCertificate | None:
    """The inequality of these multipliers; None where they are no numbers >= 0, or the matrix is not semidefinite."""
    numbers = torch.cat([certificate.inputs, *certificate.sectors, *certificate.weights])
    sectors = [layer.width for layer in problem.layers] + [layer.slope for layer in problem.layers]
    if not bool(((numbers >= 0) & numbers.isfinite()).all()) or not bool(torch.cat(sectors).isfinite().all()):
        return None
    matrix, doubt = _matrix(problem, certificate)
    if not bool(doubt.isfinite()) or not is_semidefinite(matrix):
        return None
    right = problem.region.norm.squares_bound(certificate.inputs, RIGOROUS)
    return ProvenCertificate(certificate.weights, matrix, RIGOROUS.above(right + doubt, 1))


def _matrix(problem: Problem, certificate: Certificate) -> tuple[Tensor, Tensor]:
    """The matrix as computed, symmetric, and a bound of what its rounding, and noise, change the inequality by.

    With m the largest absolute values of x, an error of the matrix within `|A|'|A|` times a number changes the form by
    at most that number times `| |A| m |^2`: products with one vector bound everything.
    """
    layers, gamma = problem.layers, RIGOROUS.gamma
    moving = problem.moving
    entrance = layers[0].weight[:, moving] * problem.radii[moving]
    loose = [layer.loose for layer in layers[:-1]]
    blocks = deviation_matrices(entrance, [layer.weight for layer in layers], [layer.slope for layer in layers], loose)
    largest = torch.cat([
        torch.ones(len(moving), dtype=torch.float64),
        *(RIGOROUS.above(layer.width * layer.max_deviation, 2)[layer.loose] for layer in layers[:-1]),
    ])  # fmt: skip
    diagonal = torch.cat([certificate.inputs, *certificate.sectors])
    matrix, terms = torch.diag(diagonal), sum(len(layer.bias) for layer in layers) + len(layers) + 4
    doubt = gamma(terms) * (diagonal * largest.square()).sum()
    error = sizes_before = torch.zeros(0, dtype=torch.float64)
    for number, (layer, block) in enumerate(zip(layers, blocks, strict=True)):
        columns = block.shape[1]
        sizes = block.abs() @ largest[:columns]
        if number:
            wide = len(layers[number - 1].bias)
            before = error + gamma(wide + 2) * sizes_before
            error = (layer.weight.abs() * layers[number - 1].slope) @ before
            error = RIGOROUS.above(error, wide + columns + 8) + TINY
        else:
            error = RIGOROUS.above(gamma(1) * sizes, columns + 2) + TINY
        factors = certificate.weights[number].clone()
        if number < len(certificate.sectors):
            factors[layer.loose] += certificate.sectors[number] * layer.width[layer.loose].square()
        doubt = doubt + (factors * layer.drift * (2 * layer.max_deviation + layer.drift)).sum()
        chosen = (factors > 0).nonzero().flatten()
        roots = factors[chosen].sqrt()
        part = block[chosen] * roots[:, None]
        add_squares(matrix[:columns, :columns], part, -1)
        doubt = doubt + TINY * sizes.square().sum()  # factors that underflowed
        magnitude = roots * sizes[chosen] * (1 + gamma(columns + 8))
        missed = roots * error[chosen] + gamma(8) * magnitude
        doubt = doubt + (gamma(terms) * magnitude.square() + 2 * magnitude * missed + missed.square()).sum()
        sizes_before = sizes
    matrix = matrix.tril() + matrix.tril(-1).T
    return matrix, RIGOROUS.above(doubt, terms + len(diagonal) + 16)


class _Total:
    """A sum of products with a bound of its rounding error, and of all else that may be lost."""

    def __init__(self) -> None:
        self._terms: list[Tensor] = []
        self._losses: list[Tensor] = []

    def add(self, terms: Tensor) -> None:
        """Numbers that each are products of a few numbers: exact but for at most eight roundings."""
        self._terms.append(terms.flatten())

    def lose(self, amounts: Tensor) -> None:
        """Upper bounds, but for rounding, of what may be lost; none is negative."""
        self._losses.append(amounts.flatten())

    def lower(self) -> float:
        terms, losses = torch.cat(self._terms), torch.cat(self._losses)
        count = len(terms) + len(losses) + 16
        lost = losses.sum() + RIGOROUS.gamma(count) * terms.abs().sum() + count * TINY
        value = float(RIGOROUS.floor(terms.sum() - RIGOROUS.above(lost, count)))
        return value if value < torch.inf else NOTHING  # NaN and infinity prove nothing


def prove_margin(
    problem: Problem, proven: ProvenCertificate, dual: ProposedDual, last: Layer, row: Tensor, offset: Tensor
) -> float:
    """A lower bound of `row @ scores + offset` over the region; minus infinity where these variables prove nothing.

    last: the layer of the class scores; row: (classes,); offset: a number.
    """
    numbers = torch.cat([dual.rate.reshape(1), dual.tangent, *dual.links])
    if not bool(numbers.isfinite().all()) or not bool(dual.rate > 0):
        return NOTHING
    total, gamma, layers = _Total(), RIGOROUS.gamma, problem.layers
    total.add(offset.reshape(1))
    total.add(row * last.bias)
    total.lose(row.abs() * last.noise(layers[-1].upper.clamp(min=0)))
    total.add(-dual.rate * proven.right.reshape(1))
    image = proven.matrix @ dual.tangent
    doubt = gamma(len(image) + 2) * (proven.matrix.abs() @ dual.tangent.abs())
    total.add(-dual.tangent * image / dual.rate)
    total.lose(dual.tangent.abs() * doubt / dual.rate)
    towards, *errors = image.split(problem.sizes)
    input_doubt, *error_doubts = doubt.split(problem.sizes)
    _add_inputs(total, problem, dual.links[0], towards)
    total.lose(2 * input_doubt)
    following = [(layer.weight, link) for layer, link in zip(layers[1:], dual.links[1:], strict=True)]
    following.append((last.weight, row))
    for number, (layer, link) in enumerate(zip(layers, dual.links, strict=True)):
        total.add(link * layer.bias)
        total.lose(link.abs() * layer.noise)
        weight, coefficients = following[number]
        cost = coefficients @ weight
        cost_doubt = gamma(len(coefficients) + 2) * (coefficients.abs() @ weight.abs())
        pull = torch.zeros_like(link)  # the tangent's coefficients of the sector errors
        if number < len(errors):
            pull[layer.loose] = 2 * errors[number]
            total.lose(2 * error_doubts[number] * (layer.width * layer.max_deviation)[layer.loose])
        curvature = RIGOROUS.floor(proven.weights[number] * dual.rate).clamp(min=0)
        _add_neurons(total, layer, cost, cost_doubt, pull, link, curvature)
    return total.lower()


def _add_inputs(total: _Total, problem: Problem, link: Tensor, towards: Tensor) -> None:
    """The least of the linear form on the inputs: that of the first layer's links and of the tangent."""
    weight, moving, gamma = problem.layers[0].weight, problem.moving, RIGOROUS.gamma
    form = link @ weight
    doubt = gamma(len(link) + 2) * (link.abs() @ weight.abs())
    total.add(form * problem.centre)
    total.lose(doubt * (problem.centre.abs() + problem.radii))
    shares = 2 * towards / problem.radii[moving]
    whole = form.clone()
    whole[moving] += shares
    total.lose(gamma(2) * (form[moving].abs() + shares.abs()) * problem.radii[moving])
    fall = problem.region.deviation(Rows(whole[None, None], problem.region.points.shape[1:]), RIGOROUS, False).below
    total.lose(fall)


def _add_neurons(
    total: _Total, layer: HiddenLayer, cost: Tensor, cost_doubt: Tensor, pull: Tensor, link: Tensor, curvature: Tensor
) -> None:
    """The least of every neuron's own term on its bounds.

    It is `cost relu(z) + curvature (z - zc)^2 - link z + pull e`, where e is `relu(z) - relu(zc) - slope (z - zc)`.
    """
    gamma = RIGOROUS.gamma
    total.add(-pull * layer.centre.clamp(min=0))
    total.add(pull * layer.slope * layer.centre)
    total.lose(pull.abs() * (1 + layer.slope) * layer.error)
    both, slope = cost + pull, link + pull * layer.slope
    farthest = torch.maximum(layer.lower.abs(), layer.upper.abs())
    total.lose((cost_doubt + gamma(2) * (cost.abs() + pull.abs())) * layer.upper.clamp(min=0))
    total.lose(gamma(3) * (link.abs() + pull.abs() * layer.slope) * farthest)
    total.lose(curvature * layer.error * (2 * layer.max_deviation + layer.error))
    pieces = (
        (layer.lower.clamp(max=0), layer.upper.clamp(max=0), -slope, (layer.lower < 0) | (layer.upper <= 0)),
        (layer.lower.clamp(min=0), layer.upper.clamp(min=0), both - slope, layer.upper > 0),
    )
    least = torch.full_like(link, torch.inf)
    for low, high, rise, there in pieces:
        value = _parabola(low, high, rise, both.abs() + slope.abs(), layer.centre, curvature)
        least = torch.minimum(least, torch.where(there, value, torch.inf))
    total.add(least)


def _parabola(low: Tensor, high: Tensor, rise: Tensor, size: Tensor, centre: Tensor, curvature: Tensor) -> Tensor:
    """Lower bounds of `rise z + curvature (z - centre)^2` on [low, high].

    A parabola lies above its tangent at any point; so the point need only be near the minimum. size: of what `rise` was
    the difference of, in one rounding.
    """
    gamma = RIGOROUS.gamma
    doubled = torch.where(curvature > 0, 2 * curvature, 1)
    free = torch.where(curvature > 0, centre - rise / doubled, torch.where(rise > 0, low, high))
    point = torch.minimum(torch.maximum(free, low), high)
    away = point - centre
    value = rise * point + curvature * away.square()
    steepness = rise + 2 * curvature * away
    fall = torch.maximum(steepness * (point - low), steepness * (point - high)).clamp(min=0)
    sizes = size + 2 * curvature * (point.abs() + centre.abs())
    magnitude = torch.maximum(high.abs(), low.abs()) * 2 + centre.abs()
    lost = fall + gamma(16) * sizes * magnitude
    return value - RIGOROUS.above(lost, 12)
