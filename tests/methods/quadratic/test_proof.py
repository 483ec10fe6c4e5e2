"""The certificate's inequality holds at points, margins hold whatever the dual variables are, and spoilt multipliers
are refused."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.methods.quadratic.certificate import Certificate
from relucert.methods.quadratic.chain import Chain
from relucert.methods.quadratic.problem import Problem
from relucert.methods.quadratic.proof import ProposedDual, ProvenCertificate, prove_certificate, prove_margin
from relucert.network import Affine, Network
from tests.methods.quadratic.problems import certificate_for, chain_and_region, deviations, problem_of
from tests.nets import NETWORKS, NORMS, centres

Proven = tuple[Problem, Certificate, ProvenCertificate]


def proven(seed: int, norm: float) -> tuple[Network, Chain, Region, Proven]:
    network, chain, region = chain_and_region(seed, norm)
    problem = problem_of(network, chain, region)
    certificate = certificate_for(problem, seed)
    assert certificate is not None
    inequality = prove_certificate(problem, certificate)
    assert inequality is not None
    return network, chain, region, (problem, certificate, inequality)


def points_in(region: Region, count: int, seed: int) -> Tensor:
    """Spread in the ball, and corners."""
    generator = torch.Generator().manual_seed(seed)
    centre, radius = region.centre[0], float(region.radius[0])
    inside = region.norm.sample(centre, radius, count, generator)
    corners = region.norm.project(torch.randn(count, len(centre), generator=generator).double() * 9, region.radius[:1])
    return torch.cat([inside, centre + corners, centre[None]])


def violation(problem: Problem, inequality: ProvenCertificate, points: Tensor) -> float:
    """By how much the worst point violates the inequality."""
    squares, vectors = deviations(problem, points)
    left = sum(square @ weight for square, weight in zip(squares, inequality.weights, strict=True))
    left = left + ((vectors @ inequality.matrix) * vectors).sum(1)
    return float((left - inequality.right).max())


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(6))
def test_no_point_violates_the_inequality(seed: int, norm: float) -> None:
    _, _, region, (problem, _, inequality) = proven(seed, norm)
    points = points_in(region, 500, seed)
    assert violation(problem, inequality, points) <= 1e-12
    for _ in range(10):  # the worst ones, pushed on
        squares, _ = deviations(problem, points)
        sums = sum(square @ weight for square, weight in zip(squares, inequality.weights, strict=True))
        worst = points[torch.as_tensor(sums).topk(50).indices]
        moved = worst + 0.1 * torch.randn(worst.shape, generator=torch.Generator().manual_seed(seed)).double()
        offsets = region.norm.project(moved - region.centre[0], region.radius.expand(50))
        points = torch.cat([worst, region.centre[0] + offsets])
        assert violation(problem, inequality, points) <= 1e-12


def test_a_sector_too_narrow_would_be_violated() -> None:
    """What the test above is worth: with half the width its inequality fails at some points."""
    worst = -torch.inf
    for seed in range(12):
        network, chain, region = chain_and_region(seed, torch.inf)
        problem = problem_of(network, chain, region)
        narrow = replace(problem, layers=tuple(replace(layer, width=layer.width / 2) for layer in problem.layers))
        certificate = certificate_for(narrow, seed)
        assert certificate is not None
        inequality = prove_certificate(narrow, certificate)
        if inequality is not None:
            worst = max(worst, violation(problem, inequality, points_in(region, 500, seed)))
    assert worst > 1e-3


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(6))
def test_margins_hold_whatever_the_dual_variables_are(seed: int, norm: float) -> None:
    network, chain, region, (problem, _, inequality) = proven(seed, norm)
    generator = torch.Generator().manual_seed(seed)
    points = points_in(region, 500, seed)
    row = torch.randn(network.classes, generator=generator).double()
    values = network(points) @ row - 0.5
    best = -torch.inf
    for size in (0.0, 1e-3, 0.1, 1.0, 1e3):
        for _ in range(4):
            links = tuple(size * torch.randn(len(layer.bias), generator=generator).double() for layer in problem.layers)
            tangent = size * torch.randn(problem.rows, generator=generator).double()
            dual = ProposedDual(torch.rand((), generator=generator).double() + 1e-3, links, tangent)
            bound = prove_margin(problem, inequality, dual, chain.layers[-1], row, torch.tensor(-0.5).double())
            assert bound <= float(values.min())
            best = max(best, bound)
    assert best > -torch.inf


def test_spoilt_multipliers_are_refused() -> None:
    _, _, _, (problem, certificate, _) = proven(1, torch.inf)

    def spoil(part: Tensor, number: float) -> Tensor:
        spoilt = part.clone()
        spoilt[0] = number
        return spoilt

    for number in (torch.nan, torch.inf, -1e-12, -1.0):
        assert prove_certificate(problem, replace(certificate, inputs=spoil(certificate.inputs, number))) is None
        sectors = (spoil(certificate.sectors[0], number), *certificate.sectors[1:])
        assert prove_certificate(problem, replace(certificate, sectors=sectors)) is None
        weights = (spoil(certificate.weights[0], number), *certificate.weights[1:])
        assert prove_certificate(problem, replace(certificate, weights=weights)) is None


def test_multipliers_too_small_are_refused() -> None:
    """A hair below what makes the matrix semidefinite."""
    _, _, _, (problem, certificate, _) = proven(1, torch.inf)
    assert prove_certificate(problem, replace(certificate, inputs=certificate.inputs * 0.99)) is None


def test_spoilt_dual_variables_prove_nothing() -> None:
    network, chain, _, (problem, _, inequality) = proven(1, torch.inf)
    links = tuple(torch.zeros(len(layer.bias)).double() for layer in problem.layers)
    fine = ProposedDual(torch.tensor(1.0).double(), links, torch.zeros(problem.rows).double())
    row, zero = torch.ones(network.classes).double(), torch.tensor(0.0).double()
    assert prove_margin(problem, inequality, fine, chain.layers[-1], row, zero) > -torch.inf
    for number in (torch.nan, torch.inf, -torch.inf):
        spoilt = (
            replace(fine, rate=torch.tensor(number).double()),
            replace(fine, tangent=torch.full((problem.rows,), number).double()),
            replace(fine, links=(links[0] + number, *links[1:])),
        )
        for dual in spoilt:
            assert prove_margin(problem, inequality, dual, chain.layers[-1], row, zero) == -torch.inf
    for rate in (0.0, -1.0):
        dual = replace(fine, rate=torch.tensor(rate).double())
        assert prove_margin(problem, inequality, dual, chain.layers[-1], row, zero) == -torch.inf


@pytest.mark.parametrize("name", NETWORKS)
def test_chains_compute_what_their_networks_do(name: str) -> None:
    """Within their noise; networks that branch are refused by name."""
    network = NETWORKS[name]().cast(torch.float64)
    branches = any(len(node.inputs) != 1 or node.inputs[0] != value - 1 for value, node in network.steps())
    if branches:
        with pytest.raises(Exception, match="the network branches"):
            Chain.of(network)
        return
    chain, points = Chain.of(network), centres(network, 4).double()
    assert chain.values == network.preactivations
    values, outputs = network.values(points), points.flatten(1)
    for layer, value in zip(chain.layers, (*chain.values, network.output), strict=True):
        outputs = outputs @ layer.weight.T + layer.bias
        torch.testing.assert_close(outputs, values[value], rtol=1e-12, atol=1e-12)
        rounds = [node for _, node in network.steps() if isinstance(node.operation, Affine) and node.operation.terms]
        assert layer.weight_error is None or (len(rounds) and float(layer.weight_error.max()) < 1e-12)
        outputs = outputs.clamp(min=0)
