"""Bounds that only tell signs: those of back-substitution to the input, wherever a neuron stays unstable."""

from __future__ import annotations

import pytest
import torch

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.interval import Interval, TracedBounds, propagate
from relucert.bounding.layerwise import enclose
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import RELAXERS
from relucert.bounding.signs import bound_signs
from relucert.network import Network
from tests.nets import NETWORKS, centres

BACKWARD = ("convolutional", "image residual", "residual", "five layers")
BOXES = (None, (-1.5, 1.25))


def region_of(network: Network, count: int, norm: str, box: tuple[float, float] | None) -> Region:
    points = centres(network, count).clamp(-1.5, 1.25)
    return Region.around(points, {"inf": 0.05, "2": 0.2, "1": 0.4}[norm], norm, box=box)


@pytest.mark.parametrize("relaxer", RELAXERS)
@pytest.mark.parametrize("name", BACKWARD)
@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.parametrize("box", BOXES)
def test_unstable_neurons_have_the_bounds_of_back_substitution(
    name: str, relaxer: str, norm: str, box: tuple[float, float] | None
) -> None:
    """And stable ones keep their sign; tight bounds are those, too."""
    network = NETWORKS[name]().cast(torch.float64)
    region = region_of(network, 3, norm, box)
    path = ReferencePath(network, region, {}, RELAXERS[relaxer], RIGOROUS)
    for value in network.preactivations:
        pulled = enclose(path, value)
        if network.activation_depths[value]:
            by_intervals = propagate(network, region, path.bounds, value, RIGOROUS)
            signed, tight = bound_signs(path, value, by_intervals)
            best = pulled.meet(by_intervals)
            unstable = ~network.stable(value, *signed)
            assert bool((unstable == ~network.stable(value, *best) & unstable).all())
            for side, wanted in zip(signed, best, strict=True):
                exact = unstable | (tight.all(1) & ~network.stable(value, *by_intervals))
                torch.testing.assert_close(side[exact], wanted[exact], rtol=1e-12, atol=1e-12)
            assert bool((signed.lower <= pulled.upper).all())
            assert bool((signed.upper >= pulled.lower).all())
            assert bool((tight.all(1) | ~unstable).all())
        path.bounds[value] = pulled


@pytest.mark.parametrize("relaxer", RELAXERS)
@pytest.mark.parametrize("name", BACKWARD)
def test_bounds_hold_and_a_batch_equals_its_members(name: str, relaxer: str) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    region = region_of(network, 3, "inf", None)
    together = hidden_bounds(network, region, RELAXERS[relaxer], RIGOROUS)
    chance = torch.Generator().manual_seed(0)
    steps = 2 * torch.rand(200, network.sizes[0], generator=chance, dtype=torch.float64) - 1
    for member in range(3):
        alone = hidden_bounds(network, region.select(torch.tensor([member])), RELAXERS[relaxer], RIGOROUS)
        points = region.points[member] + float(region.radius[member]) * torch.cat([steps, steps.sign()])
        values = network.values(points.unflatten(1, network.input_shape))
        for value, interval in together.items():
            own = interval.select(torch.tensor([member]))
            for one, other in zip(own, alone[value], strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
            reached = values[value].flatten(1)
            assert bool((own.lower <= reached).all())
            assert bool((reached <= own.upper).all())
        if isinstance(together, TracedBounds):
            assert isinstance(alone, TracedBounds)
            for value, tight in together.tight.items():
                assert torch.equal(tight[member], alone.tight[value][0])


@pytest.mark.parametrize("relaxer", RELAXERS)
def test_forms_stop_at_an_activation_that_tells_their_sign(relaxer: str) -> None:
    """Some neurons that intervals leave open are stable without bounds that are tight on both sides."""
    network = NETWORKS["image residual"]().cast(torch.float64)
    region = region_of(network, 2, "inf", None)
    bounds = hidden_bounds(network, region, RELAXERS[relaxer], RIGOROUS)
    assert isinstance(bounds, TracedBounds)
    early = 0
    for value, tight in bounds.tight.items():
        by_intervals: Interval = propagate(network, region, bounds, value, RIGOROUS)
        early += int((~tight.all(1) & ~network.stable(value, *by_intervals)).sum())
    assert early > 0
