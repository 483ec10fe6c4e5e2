"""Small networks and regions for tests of quadratic certificates, with proposals for them."""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.relaxers import CROWN
from relucert.methods.quadratic.certificate import Certificate, Demand, propose, start_vectors
from relucert.methods.quadratic.chain import Chain
from relucert.methods.quadratic.maps import DTYPE, Maps
from relucert.methods.quadratic.problem import Problem
from relucert.network import Network
from tests.nets import mlp

SIZES = ((4, 6, 3), (3, 5, 5, 3), (3, 4, 4, 4, 2))


def chain_and_region(seed: int, norm: float, radius: float = 1.0) -> tuple[Network, Chain, Region]:
    network = mlp(*SIZES[seed % len(SIZES)], seed=seed, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randn(1, network.sizes[0], generator=generator, dtype=torch.float64)
    return network, Chain.of(network), Region.around(centre, radius, norm)


def problem_of(network: Network, chain: Chain, region: Region) -> Problem:
    return Problem.of(chain, region, hidden_bounds(network, region, CROWN, RIGOROUS))


def certificate_for(problem: Problem, seed: int) -> Certificate | None:
    """One with random weights."""
    maps, generator = Maps(problem), torch.Generator().manual_seed(seed)
    gains = [torch.rand(len(layer.bias), generator=generator, dtype=DTYPE) for layer in problem.layers]
    demand = Demand(gains, [layer.centre.to(DTYPE) for layer in problem.layers])
    proposal = propose(maps, demand, start_vectors(maps, generator), 30)
    return None if proposal is None else proposal.certificate


def deviations(problem: Problem, points: Tensor) -> tuple[list[Tensor], Tensor]:
    """At points (count, inputs): the squared deviations of every hidden layer, and the certificate's vectors."""
    moving = problem.moving
    parts = [(points - problem.centre)[:, moving] / problem.radii[moving]]
    outputs, at_centre, squares = points, problem.centre, []
    for number, layer in enumerate(problem.layers):
        before, zero = outputs @ layer.weight.T + layer.bias, layer.weight @ at_centre + layer.bias
        outputs, at_centre = before.clamp(min=0), zero.clamp(min=0)
        squares.append((before - zero).square())
        if number + 1 < len(problem.layers):
            parts.append((outputs - at_centre - layer.slope * (before - zero))[:, layer.loose])
    return squares, torch.cat(parts, 1)
