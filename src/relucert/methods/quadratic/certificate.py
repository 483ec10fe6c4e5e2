"""Finding the certificate: a quadratic inequality that holds everywhere in a region.

With weights pi >= 0 on the squared deviations of pre-activations, multipliers kappa >= 0 of the ball and tau >= 0 of
the sectors, the quadratic form `S = kappa y^2 + tau (e^2 - w^2 dz^2) - pi dz^2` on inputs y and sector errors e gives

    sum pi dz^2 + (y, e)' S (y, e)  <=  max over the ball of sum kappa y^2

at every point of the region. Where S is positive semidefinite that bounds a weighted sum of all squared deviations at
once. The multipliers come from low-rank power iterations on the primal problem, the largest `sum pi dz^2`, in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.arithmetic.rigor import DOUBLE
from relucert.common.deadline import check_time
from relucert.methods.quadratic.maps import Maps
from relucert.methods.quadratic.products import add_squares, cholesky_seconds

RANK = 16  # of the primal matrix in the power iterations
FLOOR = 1e-5  # share of the mean that every multiplier keeps
SURPLUS = 1.0003  # by which the multipliers exceed the least that seem to make the matrix semidefinite
SURPLUSES = 20  # times that, where it seems not to be so
SPARE = 3e-5  # least eigenvalue, relative to the multipliers, that is to be left
EIGEN_ROUNDS = 30
PROBES = 4  # random vectors beside the primal ones, when the largest eigenvalue is looked for
BUMPS = 10
FIRST_BUMP = 2e-3
TINIEST = 1e-30
LEAST_SQUARE = 1e-24


@dataclass(frozen=True, eq=False)
class Certificate:
    """Multipliers and weights; any that are not negative, with a semidefinite matrix, make a true inequality.

    Attributes:
        inputs: Of the ball, for every moving input (kappa).
        sectors: Of the sectors of loose neurons, for every hidden layer but the last (tau).
        weights: Of squared deviations, for every hidden layer (pi), (size,) each.
    """

    inputs: Tensor
    sectors: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]

    def scaled(self, factor: float) -> Certificate:
        """The same inequality, times a number > 0."""
        return Certificate(
            self.inputs * factor,
            tuple(part * factor for part in self.sectors),
            tuple(part * factor for part in self.weights),
        )


@dataclass(frozen=True, eq=False)
class Proposal:
    """A certificate whose right side is 1, and in float32 its matrix and the primal solution.

    Attributes:
        certificate: In float64.
        matrix: S, (rows, rows).
        vectors: The primal matrix's factor, (rows, rank).
        moments: The primal mean squares of the deviations, for every hidden layer, (size,) each.
    """

    certificate: Certificate
    matrix: Tensor
    vectors: Tensor
    moments: list[Tensor]


@dataclass(frozen=True, eq=False)
class Demand:
    """What the weights are chosen for: `gain / sqrt(mean^2 + variance)` of every neuron, for every hidden layer.

    That is, up to a factor, how fast the largest mean of `gain relu(z)` grows with the variance of z.

    Attributes:
        gains: (size,) each, none negative.
        means: Of the pre-activations, (size,) each.
    """

    gains: list[Tensor]
    means: list[Tensor]

    def weights(self, variances: list[Tensor]) -> list[Tensor]:
        return [
            gain / (variance + mean.square()).clamp(min=LEAST_SQUARE).sqrt()
            for gain, mean, variance in zip(self.gains, self.means, variances, strict=True)
        ]


def propose(maps: Maps, demand: Demand, vectors: Tensor, rounds: int) -> Proposal | None:
    """A certificate with suitable weights, from primal vectors (rows, rank) to start with; None where none is found."""
    vectors, inputs, sectors, moments = _iterate(maps, demand, vectors, rounds)
    weights = demand.weights(moments)
    matrix, diagonal = _semidefinite(maps, weights, inputs, sectors, vectors)
    if matrix is None:
        return None
    inputs, *sectors = maps.split(diagonal)
    total = float(maps.problem.region.norm.squares_bound(inputs.double(), DOUBLE))
    if not 0 < total < torch.inf or not bool(matrix.isfinite().all()):
        return None
    certificate = Certificate(
        inputs.double(), tuple(part.double() for part in sectors), tuple(part.double() for part in weights)
    ).scaled(1 / total)
    return Proposal(certificate, matrix / total, vectors, moments)


def start_vectors(maps: Maps, generator: torch.Generator) -> Tensor:
    """Primal vectors to start with: inputs spread over the ball, no sector errors. (rows, rank)"""
    size, *others = maps.problem.sizes
    inputs = torch.nn.functional.normalize(torch.randn(size, RANK, generator=generator), dim=1)
    norm = maps.problem.region.norm
    inputs = inputs * norm.spread(inputs.new_ones(size))[:, None]
    return torch.cat([inputs, inputs.new_zeros(sum(others), RANK)])


def _iterate(
    maps: Maps, demand: Demand, vectors: Tensor, rounds: int
) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Power iterations: every input and every sector error turns to where the weighted squares grow most.

    The weights follow the squares, so that it is the total of the demand that grows.

    Returns the vectors, the multipliers of inputs and of sectors at which they are stationary, and the moments.
    """
    norm, layers = maps.problem.region.norm, maps.layers
    widths = [layer.width[layer.loose] for layer in layers[:-1]]
    sectors = [torch.zeros_like(width) for width in widths]
    for _ in range(rounds):
        check_time()
        deviations = maps.deviations(vectors)
        moments = [deviation.square().sum(1) for deviation in deviations]
        weights = demand.weights(moments)
        forms = [weight[:, None] * deviation for weight, deviation in zip(weights, deviations, strict=True)]
        for layer, width, sector, form, deviation in zip(layers, widths, sectors, forms, deviations, strict=False):
            form[layer.loose] += (sector * width.square())[:, None] * deviation[layer.loose]
        towards, *others = maps.split(maps.transposed(forms))
        lengths = towards.norm(dim=1).clamp(min=TINIEST)
        spread = norm.spread(lengths).clamp(min=TINIEST)
        inputs = lengths / spread
        parts, sectors = [towards * (spread / lengths)[:, None]], []
        for layer, width, deviation, other in zip(layers, widths, deviations, others, strict=False):
            size = (width * deviation[layer.loose].norm(dim=1)).clamp(min=TINIEST)
            length = other.norm(dim=1).clamp(min=TINIEST)
            parts.append(other * (size / length)[:, None])
            sectors.append(length / size)
        vectors = torch.cat(parts)
    inputs = inputs + FLOOR * inputs.mean()
    for number, (layer, width) in enumerate(zip(layers, widths, strict=False)):
        squares = width.square() * moments[number][layer.loose]
        floor = FLOOR * (sectors[number] * squares).mean() / squares.clamp(min=TINIEST)
        sectors[number] = sectors[number] + floor
    return vectors, inputs, sectors, moments


def _semidefinite(
    maps: Maps, weights: list[Tensor], inputs: Tensor, sectors: list[Tensor], vectors: Tensor
) -> tuple[Tensor | None, Tensor]:
    """The matrix S and its diagonal multipliers, scaled up, with the weights as they are, until S is semidefinite.

    With F the part of the multipliers and K that of the weights, S = F - K: the factor is the largest eigenvalue of
    K relative to F. None where F could not be made positive definite.
    """
    blocks, bump = maps.blocks(), FIRST_BUMP
    for _ in range(BUMPS):
        diagonal = torch.cat([inputs, *sectors])
        scale = diagonal.rsqrt()
        factors = [
            sector.sqrt() * layer.width[layer.loose] for layer, sector in zip(maps.layers, sectors, strict=False)
        ]
        parts = [block[layer.loose] for block, layer in zip(blocks, maps.layers, strict=True)]
        forms = -_gram(parts, factors, scale)
        forms.diagonal().add_(1)
        check_time(cholesky_seconds(len(forms)))
        factor, failed = torch.linalg.cholesky_ex(forms)
        if not int(failed):
            break
        # Each layer's sectors are paid for by the multipliers of the layers before it: those grow more.
        inputs = inputs * (1 + bump * len(maps.layers))
        sectors = [sector * (1 + bump * (len(sectors) - place)) for place, sector in enumerate(sectors)]
        bump *= 2
    else:
        return None, diagonal
    gains = _gram(blocks, [weight.sqrt() for weight in weights], scale)
    times = _largest(factor, gains, vectors / scale[:, None])
    for _ in range(SURPLUSES):
        check_time(cholesky_seconds(len(forms)))
        times *= SURPLUS
        matrix = times * forms - gains
        matrix.diagonal().sub_(SPARE)
        if not int(torch.linalg.cholesky_ex(matrix).info):
            break
    return (times * forms - gains) / scale / scale[:, None], times * diagonal


def _gram(blocks: list[Tensor], factors: list[Tensor], scale: Tensor) -> Tensor:
    """The sum of squares of the blocks' rows, each times its factor, as a matrix with scaled rows and columns."""
    total = scale.new_zeros(len(scale), len(scale))
    for block, factor in zip(blocks, factors, strict=False):
        chosen = (factor > 0).nonzero().flatten()
        columns = block.shape[1]
        part = block[chosen] * factor[chosen, None] * scale[:columns]
        add_squares(total[:columns, :columns], part)
    return total


def _largest(factor: Tensor, gains: Tensor, vectors: Tensor) -> float:
    """About the largest eigenvalue of `gains` relative to `factor factor'`, by block power iterations."""
    probes = torch.randn(len(gains), PROBES, generator=torch.Generator().manual_seed(0), dtype=gains.dtype)
    block = torch.cat([factor.T @ vectors[:, :PROBES], probes], 1)
    value = 0.0
    for _ in range(EIGEN_ROUNDS):
        check_time()
        if not bool(block.isfinite().all()):
            return torch.nan
        block = torch.linalg.qr(block).Q
        image = torch.linalg.solve_triangular(factor.T, block, upper=True)
        image = torch.linalg.solve_triangular(factor, gains @ image, upper=False)
        projected = block.T @ image
        if not bool(projected.isfinite().all()):
            return torch.nan
        before, value = value, float(torch.linalg.eigvalsh(projected)[-1])
        block = image
        if abs(value - before) < 1e-5 * value:
            break
    return value
