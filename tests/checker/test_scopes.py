"""The scopes of rules: the check bounds the same neurons, from the same side and as far, as what it checks."""

from __future__ import annotations

import math

import pytest
import torch

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RECORDED
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.relaxers import RELAXERS
from relucert.checker.fixed_region import FixedRegion
from relucert.checker.lines import BOUND_BITS
from relucert.checker.relaxation import FixedRelaxation
from relucert.checker.rules import rule_bounds
from relucert.checker.trees import RULES, BoundingRule
from tests.nets import NETWORKS, centres

RADII = (0.02, 0.05, 0.1)
CHECKED = [name for name in RELAXERS if name in RULES]  # a relaxer without a rule of the check has no proofs


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize("network_name", ["convolutional", "image residual"])
def test_signs_are_told_as_they_were_found(network_name: str, name: str, radius: float) -> None:
    network = NETWORKS[network_name]()
    point = centres(network, 1).float().double()
    found = hidden_bounds(network.cast(torch.float64), Region.around(point, radius, "inf"), RELAXERS[name], RECORDED)
    region = FixedRegion.ball(point[0].tolist(), math.inf, radius, None, None)
    checked = rule_bounds(FixedRelaxation.of(network, region), BoundingRule(name, "signs"), "real")
    for value, interval in found.items():
        for side, numbers in zip(interval, (checked[value].lower, checked[value].upper), strict=True):
            exact = torch.tensor([number / (1 << BOUND_BITS) for number in numbers], dtype=torch.float64)
            torch.testing.assert_close(side[0], exact, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", CHECKED)
def test_wider_scopes_have_tighter_bounds_of_the_first_deep_layer(name: str) -> None:
    """What comes before it is bounded the same way by all."""
    network = NETWORKS["image residual"]()
    point = centres(network, 1).float().double()
    region = FixedRegion.ball(point[0].tolist(), math.inf, 0.05, None, None)
    rules = BoundingRule(name, "signs"), BoundingRule(name, "all")
    signs, every = (rule_bounds(FixedRelaxation.of(network, region), rule, "real") for rule in rules)
    deep = next(value for value in network.preactivations if network.activation_depths[value])
    best = every[deep]
    assert bool((best.unstable | ~signs[deep].unstable).all())
    for neuron in signs[deep].unstable.nonzero().flatten().tolist():
        assert signs[deep].lower[neuron] >= best.lower[neuron]
        assert signs[deep].upper[neuron] <= best.upper[neuron]
