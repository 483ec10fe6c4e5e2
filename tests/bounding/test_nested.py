"""Bounds in nested regions: those of Fast-Lin in each of them, and never wider than in a larger one."""

import math
import random

import pytest
import torch

from relucert.arithmetic.norm import Norm
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, RIGOROUS, Arithmetic
from relucert.bounding.forward import forward
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.nested import nested_bounds
from relucert.bounding.relaxers import FAST_LIN
from relucert.network import Network, Relu
from tests.nets import NETWORKS, NORMS, centres, chain, mlp
from tests.rational import evaluate_graph, exact
from tests.test_rounding import AWKWARD, SIZE, corners, linear, numbers

SHARES = torch.tensor([0.1, 0.3, 0.35, 0.6, 0.8, 1.0], dtype=torch.float64)
LARGEST = torch.tensor([0.05, 0.3, 0.9], dtype=torch.float64)


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every network were so large that not all regions fit into one batch."""
    monkeypatch.setattr("relucert.bounding.nested.EFFICIENT_BYTES", 0)


def regions(network: Network, norm: float, confined: bool) -> Region:
    """Three, of radii so different that their unstable neurons are."""
    points = centres(network, 3)
    scale = torch.linspace(0.2, 1.5, points.shape[1]) if confined else None
    return Region.around(points, LARGEST, norm, (points.min() - 0.1, points.max() + 0.1) if confined else None, scale)


def nested(network: Network, region: Region, arithmetic: Arithmetic) -> list[Bounds]:
    """The bounds in each of the regions."""
    bounds = nested_bounds(network, region, region.radius[:, None] * SHARES, arithmetic)
    parts = {
        value: interval.map(lambda side: side.unflatten(1, (len(SHARES), -1))) for value, interval in bounds.items()
    }
    return [
        {value: Interval(part.lower[:, number], part.upper[:, number]) for value, part in parts.items()}
        for number in range(len(SHARES))
    ]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("arithmetic", [RIGOROUS, DOUBLE], ids=["rigorous", "float"])
@pytest.mark.parametrize("confined", [False, True], ids=["every input", "box and scale"])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled
def test_they_are_fast_lins_in_each_region(name: str, norm: float, confined: bool, arithmetic: Arithmetic) -> None:
    """Of stable neurons, and of those that no other depends on, only the signs; with the bounds of larger regions some
    that are bounded backward are closer."""
    network = NETWORKS[name]().cast(torch.float64)
    region = regions(network, norm, confined)
    used = {source for value in network.preactivations for source in network.ancestors((value,)) if source != value}
    for share, bounds in zip(SHARES, nested(network, region, arithmetic), strict=True):
        plain = forward(network, region.resized(region.radius * share), FAST_LIN, arithmetic, network.preactivations)
        for value, interval in plain.items():
            unstable = bounds[value].unstable
            assert not (unstable & ~interval.unstable).any()
            if network.suits_forward:
                assert torch.equal(unstable, interval.unstable)
            if value in used:
                assert (bounds[value].lower >= interval.lower - 1e-9)[unstable].all()
                assert (bounds[value].upper <= interval.upper + 1e-9)[unstable].all()
                if network.suits_forward:
                    for side, wanted in zip(bounds[value], interval, strict=True):
                        torch.testing.assert_close(side[unstable], wanted[unstable], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_they_enclose_samples(norm: float) -> None:
    network = NETWORKS["five layers"]().cast(torch.float64)
    region = regions(network, norm, False)
    generator = torch.Generator().manual_seed(6)
    for share, bounds in zip(SHARES.tolist(), nested(network, region, RIGOROUS), strict=True):
        for member, centre in enumerate(region.points):
            values = network.values(Norm(norm).sample(centre, float(LARGEST[member]) * share, 100, generator))
            for value, interval in bounds.items():
                assert (values[value] >= interval.lower[member]).all()
                assert (values[value] <= interval.upper[member]).all()


@pytest.mark.parametrize("name", ["five layers", "residual", "image residual"])
def test_small_networks_in_one_batch_have_the_same_bounds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    region = regions(network, 2, False)
    one_by_one = nested(network, region, DOUBLE)
    monkeypatch.setattr("relucert.bounding.nested.EFFICIENT_BYTES", 2**40)
    for one, other in zip(one_by_one, nested(network, region, DOUBLE), strict=True):
        for value, interval in other.items():
            assert torch.equal(one[value].unstable, interval.unstable)


def test_a_batch_equals_its_members_and_chunks_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    network = NETWORKS["residual"]().cast(torch.float64)
    region = regions(network, 2, True)
    together = nested(network, region, RIGOROUS)
    monkeypatch.setattr("relucert.bounding.nested.CHUNK_BYTES", 1)
    monkeypatch.setattr("relucert.bounding.nested.SPARSE", 2)
    for member in range(3):
        alone = nested(network, region.select(torch.tensor([member])), RIGOROUS)
        for one, other in zip(together, alone, strict=True):
            for value, interval in other.items():
                assert torch.equal(interval.unstable[0], one[value].unstable[member])


def test_where_numbers_overflow_nothing_is_stable() -> None:
    network = mlp(4, 6, 6, 3, dtype=torch.float64)
    region = Region.around(centres(network, 1), 1e308, "inf")
    for bounds in nested(network, region, RIGOROUS)[3:]:
        assert all(interval.unstable.all() for interval in bounds.values())


@pytest.mark.parametrize("norm", [1.0, math.inf])
def test_no_corner_of_a_region_lies_outside(norm: float) -> None:
    """Numbers that cancel, against exact rational values."""
    for seed in range(15):
        draw = random.Random(seed)
        layers = [layer for _ in range(3) for layer in (linear(draw), Relu())]
        network, radius = chain((SIZE,), *layers[:-1]), abs(draw.choice(AWKWARD)) * draw.choice((2.0**-20, 1))
        centre = numbers(draw, SIZE)
        region = Region.around(centre[None], radius, norm)
        for share, bounds in zip(SHARES.tolist(), nested(network, region, RIGOROUS), strict=True):
            for point in corners(centre, radius * share, norm):
                values = evaluate_graph(network, point)
                for value, (lower, upper) in bounds.items():
                    for low, true, high in zip(exact(lower[0]), values[value], exact(upper[0]), strict=True):
                        assert low <= true <= high
