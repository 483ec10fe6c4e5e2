"""Bounds with optimised slopes: they hold, whatever the ascent proposes, and are no worse than what they start from."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

import relucert
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import FLOAT, RIGOROUS, Arithmetic
from relucert.bounding import optimised
from relucert.bounding.ascent import BestBounds, Effort, Slopes, ascend
from relucert.bounding.interval import Bounds, select
from relucert.bounding.memory import SlopeMemory
from relucert.bounding.optimised import optimised_bounds, optimised_margins
from relucert.common.names import MethodName, RelaxerName
from relucert.methods.table import find_method
from relucert.network import Network
from relucert.query.targets import rivals
from tests.nets import NETWORKS, centres, mlp
from tests.regions import LIMITS, samples

RADIUS = 0.3
BELOW: tuple[RelaxerName, ...] = ("fast-lin", "crown")


class Asked(NamedTuple):
    network: Network
    region: Region
    prop: Property


def ask(name: str, norm: float = float("inf"), limits: str = "none", count: int = 2) -> Asked:
    network = NETWORKS[name]().cast(torch.float64)
    points = centres(network, count)
    region = Region.around(points, RADIUS, norm, **({} if limits == "none" else LIMITS[limits].given(points)))
    scores = network(points)
    labels = scores.argmax(1)
    return Asked(network, region, Property.margins(labels, rivals("untargeted", scores, labels, 0), network.classes))


def bounded(asked: Asked, method: str, arithmetic: Arithmetic = RIGOROUS) -> tuple[Bounds, Tensor]:
    dtype = arithmetic.dtype
    network, region, prop = asked.network.cast(dtype), asked.region.cast(dtype), asked.prop.cast(dtype)
    chosen = find_method(method)
    hidden = chosen.hidden(network, region, arithmetic)
    return hidden, chosen.margins(network, region, prop, hidden, arithmetic)


def assert_enclosed(asked: Asked, hidden: Bounds, margins: Tensor) -> None:
    generator = torch.Generator().manual_seed(5)
    for member in range(len(asked.region.radius)):
        values = asked.network.values(samples(asked.region, member, 200, generator))
        for value, (lower, upper) in hidden.items():
            assert (values[value] >= lower[member]).all()
            assert (values[value] <= upper[member]).all()
        assert (values[-1] @ asked.prop.rows[member].T >= margins[member]).all()


REGIONS = [*((norm, "none") for norm in (1.0, 1.5, 2.0, float("inf"))), *((2.0, limits) for limits in LIMITS)]


@pytest.mark.parametrize(("norm", "limits"), REGIONS)
@pytest.mark.parametrize("name", NETWORKS)
def test_samples_are_enclosed(name: str, norm: float, limits: str) -> None:
    asked = ask(name, norm, limits)
    assert_enclosed(asked, *bounded(asked, "alpha"))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("norm", "limits"), REGIONS)
@pytest.mark.sampled
def test_no_bound_is_worse_than_those_below(name: str, norm: float, limits: str) -> None:
    asked = ask(name, norm, limits)
    hidden, margins = bounded(asked, "alpha")
    for method in BELOW:
        others, other_margins = bounded(asked, method)
        for value, interval in others.items():
            assert (hidden[value].lower >= interval.lower).all()
            assert (hidden[value].upper <= interval.upper).all()
        assert (margins >= other_margins - 1e-3).all()


def test_the_ascent_gains_in_hidden_layers_and_in_margins() -> None:
    asked = ask("five layers")
    hidden, margins = bounded(asked, "alpha")
    (one, one_margins), (other, other_margins) = (bounded(asked, method) for method in BELOW)
    last = asked.network.preactivations[-1]
    assert (hidden[last].lower > torch.maximum(one[last].lower, other[last].lower) + 1e-3).any()
    assert (hidden[last].upper < torch.minimum(one[last].upper, other[last].upper) - 1e-3).any()
    assert (margins > torch.maximum(one_margins, other_margins) + 1e-3).all()


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("name", ["linear", "three layers", "residual", "image residual"])
@pytest.mark.sampled
def test_it_climbs_to_the_program_over_the_same_bounds(name: str, norm: float) -> None:
    asked = ask(name, norm)
    program = find_method("lp")
    hidden = program.hidden(asked.network, asked.region, RIGOROUS)
    wanted = program.margins(asked.network, asked.region, asked.prop, hidden, RIGOROUS).amin(1)
    start = find_method("fast-lin").margins(asked.network, asked.region, asked.prop, hidden, RIGOROUS).amin(1)
    margins = optimised_margins(
        asked.network,
        asked.region,
        asked.prop.rows,
        asked.prop.offsets,
        hidden,
        effort=Effort(150, decay=0.97, least=0),
    ).amin(1)
    assert (margins <= wanted + 1e-6).all()
    assert (wanted - margins <= 0.06 * (wanted - start) + 1e-5).all()


@pytest.mark.parametrize("lie", ["NaN", "noise", "large"])
def test_whatever_slopes_are_proposed_the_bounds_hold(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ask("residual")
    generator = torch.Generator().manual_seed(3)

    def spoilt(table: Tensor) -> Tensor:
        noise = torch.rand(table.shape, generator=generator, dtype=table.dtype)
        return {"NaN": table * torch.nan, "noise": noise, "large": 1e30 * (noise - 0.5)}[lie]

    def propose(bound: object, start: BestBounds, *_: object) -> BestBounds:
        return BestBounds(start.lower + 100, {value: spoilt(table) for value, table in start.slopes.items()})

    monkeypatch.setattr(optimised, "ascend", propose)
    hidden, margins = bounded(asked, "alpha")
    assert_enclosed(asked, hidden, margins)
    for method in BELOW:
        assert (margins >= bounded(asked, method)[1] - 1e-3).all()


def test_a_batch_equals_its_members() -> None:
    network, region, prop = ask("five layers", count=3)
    hidden, margins = bounded(Asked(network, region, prop), "alpha")
    for member in range(3):
        one = torch.tensor([member])
        alone, margin = bounded(Asked(network, region.select(one), prop.select(one)), "alpha")
        torch.testing.assert_close(margins[one], margin, rtol=0.05, atol=0.02)
        for value, interval in alone.items():
            torch.testing.assert_close(hidden[value].lower[one], interval.lower, rtol=0.05, atol=0.02)


def test_margins_of_a_region_are_remembered_when_others_of_its_batch_have_left() -> None:
    network, region, prop = ask("five layers", count=3)
    memory = SlopeMemory()
    hidden = optimised_bounds(network, region, memory=memory)
    optimised_margins(network, region, prop.rows, prop.offsets, hidden, memory=memory)
    last = torch.tensor([2])
    region, prop, hidden = region.select(last), prop.select(last), select(hidden, last)
    cold, warm = (
        optimised_margins(network, region, prop.rows, prop.offsets, hidden, memory=kept, effort=Effort(0))
        for kept in (None, memory)
    )
    assert (warm > cold + 1e-3).any()
    assert (warm >= cold - 1e-6).all()


@pytest.mark.parametrize(("curvature", "steps"), [(0.0, 3), (100.0, 20)])
def test_an_ascent_ends_where_its_gradient_leaves_little_to_be_gained(curvature: float, steps: int) -> None:
    """In three steps slopes reach 1, where a linear bound is highest; a parabola's top in between is passed again and
    again, and every gradient beside it tells of more."""
    taken: list[int] = []

    def bound(slopes: Slopes) -> Tensor:
        return (slopes[1] - curvature * (slopes[1] - 0.3).square()).sum(2)

    start = BestBounds(torch.full((1, 1), -torch.inf), {1: torch.zeros(1, 1, 2)})
    effort = Effort(20, decay=1.0, least=0, room=0.01)
    best = ascend(bound, start, [{1: torch.zeros(1, 1, 2)}], effort, report=lambda state: taken.append(state.step or 0))
    assert taken[-1] == steps
    assert bool((best.lower > 0.5).all())


def test_slopes_of_a_neighbouring_radius_are_remembered() -> None:
    """With them no further step is needed to come as far, also where other neurons are unstable."""
    asked = ask("five layers")
    near = asked.region.resized(asked.region.radius * 1.02)
    memory = SlopeMemory()
    optimised_bounds(asked.network, asked.region, memory=memory)
    warm = optimised_bounds(asked.network, near, memory=memory, effort=Effort(0))
    cold, optimised = (optimised_bounds(asked.network, near, effort=Effort(steps)) for steps in (0, 20))
    last = asked.network.preactivations[-1]
    total = [(bounds[last].lower * bounds[last].unstable).sum() for bounds in (cold, warm, optimised)]
    assert total[0] < total[1]
    assert total[2] - total[1] < 0.2 * (total[2] - total[0])


def test_neurons_that_are_off_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    network = mlp(6, 40, 40, 40, 5, seed=2).cast(torch.float64)
    points = centres(network, 1)
    region = Region.around(points, 0.05, 2)
    whole = optimised_bounds(network, region)
    monkeypatch.setattr("relucert.bounding.reference.WORTH_A_CUT", 1)
    memory = SlopeMemory()
    for share in (1.0, 1.01, 1.5):  # others are off at other radii
        cut = optimised_bounds(network, region.resized(share * region.radius), memory=memory)
    cut = optimised_bounds(network, region, memory=memory)
    for value, interval in whole.items():
        torch.testing.assert_close(cut[value].lower, interval.lower, rtol=1e-2, atol=1e-3)
        torch.testing.assert_close(cut[value].upper, interval.upper, rtol=1e-2, atol=1e-3)


def test_time_that_is_over_leaves_what_is_known() -> None:
    asked = ask("three layers")
    late = optimised_bounds(asked.network, asked.region, ends=0.0)
    for method in BELOW:
        for value, interval in bounded(asked, method)[0].items():
            assert (late[value].lower >= interval.lower).all()


def test_single_precision_predicts_what_is_then_proven() -> None:
    asked = ask("residual", 2.0)
    (_, quick), (_, proven) = (bounded(asked, "alpha", arithmetic) for arithmetic in (FLOAT, RIGOROUS))
    torch.testing.assert_close(quick.double(), proven, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.parametrize("name", ["five layers", "image residual"])
@pytest.mark.sampled
def test_radii_are_in_order_and_say_what_they_are_due_to(name: str, norm: str) -> None:
    network = NETWORKS[name]()
    points = centres(network, 2, seed=5)
    methods: tuple[MethodName, ...] = (*BELOW, "alpha")
    by_method = {method: relucert.certify(network, points, norm=norm, method=method) for method in methods}
    for fast_lin, crown, alpha in zip(*by_method.values(), strict=True):
        assert fast_lin.radius is not None and crown.radius is not None and alpha.radius is not None  # noqa: PT018
        assert alpha.proven
        assert alpha.radius >= max(fast_lin.radius, crown.radius) * (1 - 1e-4)
        assert alpha.due_to in ("fast-lin", "crown", "alpha")
        if alpha.radius > max(fast_lin.radius, crown.radius) * (1 + 1e-4):
            assert alpha.due_to == "alpha"
        assert (fast_lin.due_to, crown.due_to) == BELOW
