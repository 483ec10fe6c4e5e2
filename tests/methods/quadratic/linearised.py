"""Regions of small networks for tests of quadratic certificates, and certificates with random weights."""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.interval import Bounds
from relucert.bounding.relaxers import CROWN
from relucert.methods.quadratic import feasible
from relucert.methods.quadratic.composed import Composed, UniformPlan, compose
from relucert.methods.quadratic.dual import DualPoint, Weights
from relucert.methods.quadratic.joint import PowerIteration
from relucert.methods.quadratic.linearised_network import LinearisedNetwork
from relucert.network import Network
from tests.nets import NETWORKS, centres
from tests.regions import LIMITS

NAMES = [name for name in NETWORKS if name != "linear"]


def linearise(
    name: str, norm: float, limits: str | None = None, radius: float = 0.5
) -> tuple[Network, LinearisedNetwork, Bounds]:
    network = NETWORKS[name]().cast(torch.float64)
    points = centres(network, 1).double()
    region = Region.around(points, radius, norm)
    if limits is not None:
        region = Region.around(points, radius, norm, **LIMITS[limits].given(points))
    bounds = hidden_bounds(network, region, CROWN, RIGOROUS)
    return network, LinearisedNetwork.of(network, region, bounds), bounds


def composed_for(linearised: LinearisedNetwork, seed: int) -> Composed:
    """One with random weights."""
    generator = torch.Generator().manual_seed(seed)
    weights = {
        value: torch.rand(len(neurons), generator=generator, dtype=torch.float64)
        for value, neurons in linearised.neurons.items()
    }
    return compose(linearised, linearised.quick(), UniformPlan(weights))


def joint_for(linearised: LinearisedNetwork, seed: int) -> Weights:
    """Random weights of every neuron's own, feasible by about a percent."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(size: int) -> Tensor:
        return (2 * torch.randn(1, size, generator=generator, dtype=torch.float64)).exp()

    inputs = 1 if linearised.region.norm.p <= 2 else len(linearised.radii)
    weights = Weights(
        {value: drawn(len(neurons)) for value, neurons in linearised.neurons.items()},
        {value: drawn(len(neurons)) for value, neurons in linearised.neurons.items() if neurons.following},
        drawn(inputs),
    )
    power = PowerIteration(linearised, 1)
    for _ in range(200):
        spectrum = power.step(weights)
    return weights.inflated(1.01 * spectrum.largest.clamp(min=1e-3))  # 0 where nothing is unstable


def is_feasible(linearised: LinearisedNetwork, weights: Weights) -> bool:
    """Whether weights, one row of each, are proven to be feasible as they are."""
    matrix = feasible._joint_matrix(linearised, weights, feasible.deviation_map(linearised))
    return matrix is not None and feasible._is_short(matrix, 6)


def random_point(linearised: LinearisedNetwork, forms: int, size: float, generator: torch.Generator) -> DualPoint:
    def drawn(count: int) -> Tensor:
        return size * torch.randn(forms, count, generator=generator, dtype=torch.float64)

    return DualPoint(
        {value: drawn(len(neurons)) for value, neurons in linearised.neurons.items()},
        drawn(len(linearised.radii)),
        {value: drawn(len(neurons)) for value, neurons in linearised.neurons.items() if neurons.following},
    )


def true_vectors(linearised: LinearisedNetwork, points: Tensor) -> tuple[Tensor, dict[int, Tensor], dict[int, Tensor]]:
    """At points (count, inputs) of the region: y, and e and dz of unstable neurons by layer."""
    values = linearised.network.values(points)
    inputs = torch.where(
        linearised.radii > 0,
        (points - linearised.reference) / torch.where(linearised.radii > 0, linearised.radii, 1),
        0,
    )
    errors, moved = {}, {}
    for value, neurons in linearised.neurons.items():
        found = values[value][:, neurons.index]
        moved[value] = found - neurons.centre
        errors[value] = found.clamp(min=0) - neurons.centre.clamp(min=0) - neurons.slope * moved[value]
    return inputs, errors, moved
