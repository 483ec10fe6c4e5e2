"""Intervals that certificates tighten: they hold, are never wider than CROWN's, and make larger radii provable."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import relucert
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS, short
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.interval import Bounds
from relucert.bounding.relaxers import CROWN
from relucert.common.deadline import TimeUp
from relucert.methods import sdp
from relucert.methods.quadratic import intervals
from relucert.methods.quadratic.dual import Weights
from relucert.methods.quadratic.feasible import feasible_joint
from relucert.methods.quadratic.intervals import Tightened, prefix_of, tightened, tightened_until
from relucert.methods.sdp import DecidingMargin
from relucert.network import Network
from tests.methods.quadratic.linearised import NAMES, is_feasible, joint_for, linearise
from tests.nets import NETWORKS, centres, mlp
from tests.regions import LIMITS

DEEP = (6, 12, 12, 12, 12, 12, 4)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "STEPS", 20)
    monkeypatch.setattr(intervals, "STEPS_AGAIN", 10)
    monkeypatch.setattr(intervals, "STEPS_OWN", 10)


def both(network: Network, region: Region, before: Tightened | None = None) -> tuple[Bounds, Tightened]:
    bounds = hidden_bounds(network, region, CROWN, RIGOROUS)
    return bounds, tightened(network, region, bounds, {} if before is None else before.memories)


def assert_sound(network: Network, region: Region, bounds: Bounds, found: Tightened) -> None:
    """Points of the region, many at its boundary, lie within, and CROWN's bounds are nowhere tighter."""
    generator = torch.Generator().manual_seed(0)
    away = torch.randn(600, network.sizes[0], generator=generator, dtype=torch.float64)
    away = away.sign() if region.norm.p == math.inf else away / away.norm(p=region.norm.p, dim=1, keepdim=True)
    points = region.centre + 0.999999 * region.radius[0] * (1 if region.scale is None else region.scale) * away
    if region.box is not None:
        points = torch.minimum(torch.maximum(points, region.box[0]), region.box[1])
    values = network.values(points)
    for value, (lower, upper) in found.bounds.items():
        assert bool(((lower <= values[value]) & (values[value] <= upper)).all())
        assert bool(((lower >= bounds[value].lower) & (upper <= bounds[value].upper)).all())


@pytest.mark.parametrize("norm", [math.inf, 2.0, 1.0])
@pytest.mark.parametrize("name", NAMES)
def test_they_hold_for_every_network(name: str, norm: float) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    region = Region.around(centres(network, 1).double(), 0.5, norm)
    assert_sound(network, region, *both(network, region))


@pytest.mark.parametrize("limits", LIMITS)
def test_they_hold_within_boxes_and_scales(limits: str) -> None:
    network = mlp(*DEEP, seed=3, dtype=torch.float64)
    points = centres(network, 1).double()
    region = Region.around(points, 0.7, 2.0, **LIMITS[limits].given(points))
    assert_sound(network, region, *both(network, region))


def test_layers_that_are_not_reached_in_time_keep_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    network = mlp(*DEEP, seed=3, dtype=torch.float64)
    region = Region.around(centres(network, 1).double(), 0.5, "inf")
    bounds = hidden_bounds(network, region, CROWN, RIGOROUS)
    whole = tightened_until(network, region, bounds, math.inf)
    assert_sound(network, region, bounds, Tightened(whole))
    none = tightened_until(network, region, bounds, -math.inf)
    third = network.preactivations[2]
    tighten = Tightened.tighten

    def late(self: Tightened, network: Network, region: Region, value: int, *rest: Any) -> None:
        if value == third:
            raise TimeUp
        tighten(self, network, region, value, *rest)

    monkeypatch.setattr(Tightened, "tighten", late)
    some = tightened_until(network, region, bounds, math.inf)
    for value in network.preactivations:
        reached = whole if value < third else bounds
        for found, expected in ((some, reached), (none, bounds)):
            assert torch.equal(found[value].lower, expected[value].lower)
            assert torch.equal(found[value].upper, expected[value].upper)
    assert any(not torch.equal(whole[value].lower, bounds[value].lower) for value in network.preactivations)


def test_they_are_tighter_where_crown_loses_count_and_start_again_nearby() -> None:
    network = mlp(*DEEP, seed=3, dtype=torch.float64)
    first = None
    for radius in (0.5, 0.51):
        region = Region.around(centres(network, 1).double(), radius, "inf")
        bounds, found = both(network, region, first)
        assert_sound(network, region, bounds, found)
        last = network.preactivations[-1]
        widths = [float((its[last].upper - its[last].lower).mean()) for its in (bounds, found.bounds)]
        assert widths[1] < 0.8 * widths[0]
        first = found


def test_weights_of_their_own_tighten_what_shared_ones_leave_open(monkeypatch: pytest.MonkeyPatch) -> None:
    network = mlp(*DEEP, seed=3, dtype=torch.float64)
    region = Region.around(centres(network, 1).double(), 0.5, "inf")
    bounds, own = both(network, region)
    monkeypatch.setattr(intervals._Layer, "prove_own", lambda *_: [])
    _, shared = both(network, region)
    assert_sound(network, region, bounds, own)
    last = network.preactivations[-1]
    widths = [float((found.bounds[last].upper - found.bounds[last].lower).mean()) for found in (shared, own)]
    assert widths[1] < 0.98 * widths[0]
    assert max(map(len, own.proofs.values())) > 1
    assert max(map(len, shared.proofs.values())) == 1


def test_radii_are_larger_and_below_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    network = mlp(*DEEP, seed=5)
    image = centres(network, 1)
    (exact,) = relucert.exact(network, image, tolerance=0.01)
    radii = []
    for hopeless in (math.inf, 0.5):
        monkeypatch.setattr(sdp, "HOPELESS", hopeless)
        (answer,) = relucert.certify(network, image, method="sdp", tolerance=2e-3)
        assert answer.radius is not None
        radii.append(answer.radius)
    assert exact.upper is not None
    assert radii[1] <= exact.upper
    assert radii[1] > 0.99 * radii[0]


def test_a_prefix_computes_the_value_that_it_ends_at() -> None:
    for name in NAMES:
        network = NETWORKS[name]().cast(torch.float64)
        points = centres(network, 3).double()
        for value in network.preactivations:
            if value:
                assert torch.equal(prefix_of(network, value)(points), network.values(points)[value])


@pytest.mark.parametrize("name", ["three layers", "residual", "convolutional"])
def test_weights_are_made_feasible_by_little_and_only_if_they_are_numbers(name: str) -> None:
    _, linearised, _ = linearise(name, 2.0)
    weights = joint_for(linearised, 1)
    for factor in (1e-3, 1.0, 1e3):  # too small ones are raised, too large ones lowered
        found = feasible_joint(linearised, weights.inflated(torch.tensor([factor], dtype=torch.float64)))
        assert found is not None
        assert is_feasible(linearised, found)
        assert not is_feasible(linearised, found.inflated(torch.tensor([0.999], dtype=torch.float64)))

    def spoilt(number: float) -> Weights:
        def change(part: Tensor) -> Tensor:
            changed = part.clone()
            changed[:, :1] = number
            return changed

        return weights.map(change)

    for number in (math.nan, math.inf, -1.0):
        assert feasible_joint(linearised, spoilt(number)) is None


def test_short_numbers_have_24_bits() -> None:
    numbers = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).exp()
    rounded = short(numbers)
    assert torch.equal(rounded, rounded.float().double())
    assert bool(((rounded - numbers).abs() <= 2.0**-24 * numbers).all())
    assert torch.equal(short(numbers * 2.0**300), rounded * 2.0**300)


def test_a_margin_that_breaks_down_is_looked_for_half_way() -> None:
    curve = DecidingMargin()
    curve.add(0, 1.0, 2.0, 3.0)
    curve.add(1, 4.0, -100.0, 3.0)
    guesses = curve.at(torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64))
    assert guesses is not None
    assert guesses.tolist() == pytest.approx([2.0, 0.0, -100.0], abs=1e-9)


def test_guesses_go_through_the_radii_on_both_sides() -> None:
    """However flat the margin is between those that passed, a radius that failed stays above the guess."""
    curve = DecidingMargin()
    for radius, margin in ((1.0, 3.0), (1.01, 2.98), (1.1, -1.0)):
        curve.add(0, radius, margin, 10.0)
    guesses = curve.at(torch.tensor([1.01, 1.1, 4.0], dtype=torch.float64))
    assert guesses is not None
    assert guesses[:2].tolist() == pytest.approx([2.98, -1.0], abs=1e-9)
    assert float(guesses[2]) < -1.0


def test_what_can_not_be_tightened_keeps_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where numbers are so far apart that eigenvectors are not found."""

    def broken(*_: object) -> None:
        raise torch.linalg.LinAlgError  # type: ignore[attr-defined]

    monkeypatch.setattr(intervals._Layer, "ascent", broken)
    network = mlp(*DEEP).cast(torch.float64)
    bounds, found = both(network, Region.around(centres(network, 1), 0.5, "inf"))
    assert not found.proofs
    assert all(torch.equal(found.bounds[value].lower, interval.lower) for value, interval in bounds.items())
