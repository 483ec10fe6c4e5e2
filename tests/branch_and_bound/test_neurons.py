"""Splits by neurons with the bounds of the root kept: verdicts agree with mixed-integer programs, none is wrong."""

import math
import time

import pytest
import torch
from torch import Tensor

import relucert
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region, RegionShape
from relucert.arithmetic.rigor import RIGOROUS
from relucert.attacks.witness import AdversarialCheck
from relucert.bounding.hidden import cheap_bounds
from relucert.bounding.interval import Bounds
from relucert.branch_and_bound import node_tree, root
from relucert.branch_and_bound.confirm import OutputRows, proven_bounds
from relucert.branch_and_bound.descent import Descent
from relucert.branch_and_bound.dual_ascent import DualAscent, Nodes
from relucert.branch_and_bound.refine import Refining
from relucert.branch_and_bound.root import rooted
from relucert.branch_and_bound.stages import Stages
from relucert.branch_and_bound.tree import NeuronProver
from relucert.network import Network
from relucert.query.problem import Problem
from tests.branch_and_bound.liars import LIES, let_ascents_lie
from tests.milp import nearest
from tests.nets import NETWORKS, centres, mlp, residual

SMALL = {name: make() for name, make in NETWORKS.items()}
CASES = [mlp(6, 10, 10, 4, seed=0), residual(0), residual(3)]


def ordered(network: Network, centre: Tensor) -> list[int]:
    scores = network.cast(torch.float64)(centre[None])[0]
    return scores.argsort(descending=True).tolist()


def runner_up(network: Network, centre: Tensor) -> Property:
    order = ordered(network, centre)
    return Property.margins(torch.tensor(order[:1]), torch.tensor([order[1:2]]), network.classes)


class Attempt:
    """One search, its nodes, and the violations within the region that it came upon."""

    def __init__(
        self, network: Network, prop: Property, centre: Tensor, radius: float, norm: float = math.inf,
        box: tuple[float, float] | None = None,
    ) -> None:  # fmt: skip
        shape = RegionShape.parse(norm, box, None, network.input_shape)
        self.violations: list[Tensor] = []

        check = AdversarialCheck(network, shape)

        def violates(point: Tensor) -> bool:
            witness = check.beyond(centre, point, prop)
            if witness is not None and witness.distance <= radius:
                self.violations.append(witness.point)
            return bool(self.violations)

        problem = Problem(network, shape.around(centre[None], radius), prop)
        prover = NeuronProver(problem, violates, time.monotonic() + 30)
        with torch.no_grad():
            self.proven, self.failure = prover.run()
        self.nodes = prover.nodes


@pytest.mark.parametrize("always", [True, False])
def test_second_ascents_change_no_verdict(always: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_tree, "LONG_SHARE", 0.0 if always else 2.0)
    monkeypatch.setattr(node_tree, "LONG_VISITS", 1)
    network = CASES[0]
    centre = centres(network, 1)[0].double()
    order = ordered(network, centre)
    answer = nearest(network, centre, order[0], order[1], math.inf, 4.0)
    assert answer is not None
    assert Attempt(network, runner_up(network, centre), centre, 0.99 * answer[0]).proven
    assert Attempt(network, runner_up(network, centre), centre, 1.01 * answer[0]).violations


@pytest.mark.parametrize("box", [None, (-1.5, 1.5)], ids=["everywhere", "box"])
@pytest.mark.parametrize("norm", [math.inf, 1.0])
@pytest.mark.parametrize("network", CASES, ids=["three", "skips", "others"])
def test_agrees_with_a_mixed_integer_program(network: Network, norm: float, box: tuple[float, float] | None) -> None:
    centre = centres(network, 1)[0].double().clamp(-1.5, 1.5)
    order = ordered(network, centre)
    answer = nearest(network, centre, order[0], order[1], norm, 4.0, box)
    prop = runner_up(network, centre)
    if answer is None:
        assert Attempt(network, prop, centre, 2.0, norm, box).proven
        return
    below = Attempt(network, prop, centre, 0.98 * answer[0], norm, box)
    assert below.proven
    assert below.failure is None
    above = Attempt(network, prop, centre, 1.02 * answer[0], norm, box)
    assert not above.proven
    assert above.violations


def test_agrees_with_exact_answers_for_the_euclidean_norm() -> None:
    network = residual(1)
    centre = centres(network, 1)[0].double()
    (answer,) = relucert.exact(network, centre[None], norm="2", target="runner-up")
    assert answer.closed
    assert answer.lower is not None
    assert answer.upper is not None
    assert Attempt(network, runner_up(network, centre), centre, 0.99 * answer.lower, 2.0).proven
    assert Attempt(network, runner_up(network, centre), centre, 1.01 * answer.upper, 2.0).violations


@pytest.mark.parametrize("lie", LIES)
def test_an_ascent_that_lies_proves_nothing(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = mlp(6, 10, 10, 4, seed=0)
    centre = centres(network, 1)[0].double()
    order = ordered(network, centre)
    answer = nearest(network, centre, order[0], order[1], math.inf, 4.0)
    assert answer is not None
    let_ascents_lie(lie, monkeypatch)
    assert not Attempt(network, runner_up(network, centre), centre, 1.05 * answer[0]).proven


def region_of(network: Network, radius: float = 0.4, norm: float = math.inf) -> Region:
    return Region.around(centres(network, 1).double(), radius, norm)


def samples(region: Region, count: int = 400) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    steps = 2 * torch.rand(count, region.points.shape[1], generator=generator, dtype=torch.float64) - 1
    steps[: count // 2] = steps[: count // 2].sign()
    return region.points + region.radius[:, None] * steps


def check_enclosing(network: Network, region: Region, bounds: Bounds) -> None:
    values = network.values(samples(region))
    for value, interval in bounds.items():
        assert bool((values[value] >= interval.lower - 1e-12).all())
        assert bool((values[value] <= interval.upper + 1e-12).all())


@pytest.mark.parametrize("name", SMALL)
def test_the_root_encloses_and_gets_tighter(name: str) -> None:
    network = SMALL[name].cast(torch.float64)
    region = region_of(network)
    with torch.no_grad():
        known = cheap_bounds(network, region, RIGOROUS).bounds
        first = rooted(network, region, known, math.inf)
        second = rooted(network, region, first.bounds, math.inf, Refining(time.monotonic() + 2, 0.3))
    check_enclosing(network, region, first.bounds)
    check_enclosing(network, region, second.bounds)
    for value, interval in known.items():
        for earlier, later in ((interval, first.bounds[value]), (first.bounds[value], second.bounds[value])):
            assert bool((later.lower >= earlier.lower).all())
            assert bool((later.upper <= earlier.upper).all())


def ascent_of(name: str, norm: float) -> tuple[Region, Property, Stages, DualAscent]:
    """The root of a small network in a region of radius 0.3, and ascents on its runner-up's margin."""
    network = SMALL[name].cast(torch.float64)
    region = region_of(network, 0.3, norm)
    prop = runner_up(network, region.points[0])
    with torch.no_grad():
        stages = rooted(network, region, cheap_bounds(network, region, RIGOROUS).bounds, math.inf)
        return region, prop, stages, DualAscent(stages, stages.pulled(network.output, prop.rows[0], prop.offsets[0]))


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("norm", [math.inf, 2.0, 1.0])
@pytest.mark.parametrize("name", SMALL)
def test_stages_compute_the_network_and_bound_what_the_proof_bounds(
    name: str, norm: float, folded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root, "folds", lambda network, bounds: folded)
    region, prop, stages, dual_ascent = ascent_of(name, norm)
    network, roots = SMALL[name].cast(torch.float64), dual_ascent.roots()
    with torch.no_grad():
        first, result = dual_ascent.run(roots, 0, math.inf), dual_ascent.run(roots, 15, math.inf)
        rows = OutputRows(network.output, prop.rows[0], prop.offsets[0])
        proven = proven_bounds(stages, rows, result.nodes)
    points = region.points + 0.3 * (samples(region) - region.points) / len(region.points[0])
    margins = Descent(dual_ascent).margins(points.float())
    torch.testing.assert_close(margins, prop.values(network(points)).float(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(result.lower.double(), proven, rtol=1e-3, atol=1e-3)
    assert bool((result.lower >= first.lower).all())
    assert float(region.norm.distance(result.points.double(), region.points).max()) <= 0.3 * (1 + 1e-4)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("norm", [math.inf, 2.0, 1.0])
@pytest.mark.parametrize("name", SMALL)
def test_descents_go_below_samples_and_stay_in_the_region(
    name: str, norm: float, folded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root, "folds", lambda network, bounds: folded)
    region, prop, _, dual_ascent = ascent_of(name, norm)
    network, points = SMALL[name].cast(torch.float64), samples_of_ball(region)
    with torch.no_grad():
        ends = Descent(dual_ascent).run(torch.zeros(len(points), dtype=torch.long), points.float()).double()
    before, after = (prop.values(network(some)).flatten() for some in (points, ends))
    assert float(region.norm.distance(ends, region.points).max()) <= 0.3 * (1 + 1e-4)
    assert bool((after <= before + 1e-4).all())
    assert float(after.min()) < float(before.min())


def samples_of_ball(region: Region) -> Tensor:
    """Points of the region, many of them at its border."""
    offsets = region.norm.offsets(400, region.points.shape[1], torch.Generator().manual_seed(4), torch.float64)
    return region.points + region.radius[:, None] * offsets


def test_descents_from_relaxed_minimisers_find_violations_before_the_tree_grows() -> None:
    """Minimisers of relaxed rows themselves are no violations here, in the first 40,000 nodes."""
    network = mlp(10, 30, 30, 30, 4, seed=0)
    centre = centres(network, 1)[0].double()
    attempt = Attempt(network, runner_up(network, centre), centre, 0.684)
    assert attempt.violations
    assert attempt.nodes < 1000


def test_the_gradient_is_the_bound_s_own() -> None:
    """Small steps along the gradient gain what it promises, with and without known signs."""
    network = mlp(6, 10, 10, 4, seed=0).cast(torch.float64)
    region = region_of(network, 0.5)
    prop = runner_up(network, region.points[0])
    from relucert.branch_and_bound.dual_ascent import _AscentState

    with torch.no_grad():
        stages = rooted(network, region, cheap_bounds(network, region, RIGOROUS).bounds, math.inf)
        dual_ascent = DualAscent(stages, stages.pulled(network.output, prop.rows[0], prop.offsets[0]))
        roots = dual_ascent.roots()
        signs = roots.signs.clone()
        signs[:, ::3], signs[:, 1::3] = 1, -1
        nodes = Nodes(roots.rows, signs, torch.full_like(roots.duals, 0.4))
        ascent = _AscentState(dual_ascent, nodes, 0.3)
        ascent.pull()
        ascent.relax()
        gradient, before = ascent.gradient(), ascent.bound
        for neuron in range(dual_ascent.unstable_count):
            duals = nodes.duals.clone()
            duals[:, neuron] += 1e-2
            moved = _AscentState(dual_ascent, nodes._replace(duals=duals), 0.3)
            moved.pull()
            torch.testing.assert_close((moved.bound - before) / 1e-2, gradient[neuron], rtol=0.05, atol=0.02)


def test_cut_neurons_change_nothing() -> None:
    network = mlp(6, 30, 30, 4, seed=5).cast(torch.float64)
    region = region_of(network, 0.05)
    with torch.no_grad():
        stages: Stages = rooted(network, region, cheap_bounds(network, region, RIGOROUS).bounds, math.inf)
    assert stages.kept
    assert sum(stages.cut.sizes) < sum(network.sizes)
    points = samples(region)
    torch.testing.assert_close(stages.cut(points), network(points), rtol=1e-12, atol=1e-12)
