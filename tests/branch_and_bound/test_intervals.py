"""Splits of neurons' intervals: bounds over nodes enclose samples, and verdicts agree with dense grids."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import relucert
from relucert import Network, Property, Region
from relucert.arithmetic.rigor import DOUBLE, RIGOROUS
from relucert.bounding.hidden import cheap_bounds, hidden_bounds
from relucert.bounding.relaxers import CROWN
from relucert.branch_and_bound import interval_tree
from relucert.branch_and_bound.interval_ascent import IntervalAscent, one_sided
from relucert.branch_and_bound.interval_nodes import IntervalNodes, NeuronLayout, NodeBounds
from relucert.branch_and_bound.interval_tree import IntervalProver
from relucert.network import Linear, Node, Power, Reciprocal, Sigmoid, Silu, Sin, Sqrt, Tanh
from relucert.query.problem import Problem

ACTIVATIONS: dict[str, nn.Module] = {
    "tanh": nn.Tanh(), "GELU": nn.GELU(), "ReLU": nn.ReLU(), "SiLU": nn.SiLU(), "Softplus": nn.Softplus(),
}  # fmt: skip


def _network(first: nn.Module, second: nn.Module, inputs: int = 3) -> Network:
    """A network whose first class is ahead at 0, but not by much."""
    torch.manual_seed(7)
    last = nn.Linear(5, 3)
    module = nn.Sequential(nn.Linear(inputs, 6), first, nn.Linear(6, 5), second, last).double()
    with torch.no_grad():
        last.bias.sub_(module(torch.zeros(1, inputs, dtype=torch.float64))[0] - torch.tensor([0.03, 0, 0]))
    return relucert.load(module)


def _problem(network: Network, radius: float, norm: str = "inf", box: tuple[float, float] | None = None) -> Problem:
    """Whether the class of 0 keeps its rank in a ball around 0."""
    centre = torch.zeros(1, *network.input_shape, dtype=torch.float64)
    label = int(network(centre)[0].argmax())
    rivals = [rival for rival in range(3) if rival != label]
    rows = torch.eye(3, dtype=torch.float64)[label] - torch.eye(3, dtype=torch.float64)[rivals]
    prop = Property(rows[None], torch.zeros(1, 2, dtype=torch.float64))
    return Problem(network, Region.around(centre, radius, norm, box), prop)


def _samples(problem: Problem, count: int = 4000) -> Tensor:
    """Points of a region, many of them on its border."""
    generator = torch.Generator().manual_seed(1)
    region = problem.region
    moved = 2 * torch.rand(count, region.centre.shape[1], generator=generator, dtype=torch.float64) - 1
    norm = region.norm.distance(moved, torch.zeros_like(moved))[:, None]
    share = torch.rand(count, 1, generator=generator, dtype=torch.float64).sqrt()
    points = region.centre + float(region.radius) * share * moved / norm
    return points if region.box is None else torch.clamp(points, *region.box)


def _random_splits(nodes: IntervalNodes, count: int) -> IntervalNodes:
    """Random parts of the intervals of a root, with random slopes and multipliers."""
    generator = torch.Generator().manual_seed(2)
    chosen = torch.randint(len(nodes.rows), (count,), generator=generator)
    nodes = nodes.pick(chosen)
    ends = torch.rand(2, *nodes.lower.shape, generator=generator, dtype=torch.float64).sort(0).values
    ends[0] *= torch.rand(nodes.lower.shape, generator=generator, dtype=torch.float64) < 0.3
    ends[1] = 1 - (1 - ends[1]) * (torch.rand(nodes.lower.shape, generator=generator, dtype=torch.float64) < 0.3)
    width = nodes.upper - nodes.lower
    return nodes._replace(
        lower=nodes.lower + ends[0] * width,
        upper=nodes.lower + ends[1] * width,
        slopes=2 * torch.rand(nodes.slopes.shape, generator=generator) - 0.5,
        multipliers=torch.randn(nodes.multipliers.shape, generator=generator),
    )


def _preactivations(network: Network, layout: NeuronLayout, points: Tensor) -> Tensor:
    """All neurons before their activations, (points, neurons)."""
    values = {0: points}
    for value, node in network.steps():
        parts = [values[source].unflatten(1, network.shapes[source]) for source in node.inputs]
        values[value] = node.operation.apply(*parts).flatten(1)
    return torch.cat([values[source] for source in layout.sources], 1)


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.parametrize(("first", "second"), [("tanh", "GELU"), ("ReLU", "SiLU"), ("Softplus", "ReLU")])
def test_bounds_of_nodes_enclose_the_samples_in_them(first: str, second: str, norm: str) -> None:
    """With any slopes and multipliers: at every sample whose neurons lie in a node's intervals."""
    problem = _problem(_network(ACTIVATIONS[first], ACTIVATIONS[second]), 0.4, norm)
    network, region, (rows, offsets) = problem.exact, problem.region, (problem.prop.rows[0], problem.prop.offsets[0])
    hidden = hidden_bounds(network, region, CROWN, RIGOROUS)
    nodes = _random_splits(IntervalAscent(network, region, rows, offsets).roots(hidden), 60)
    bounds = NodeBounds(network, region, rows, offsets, RIGOROUS)
    lower, points = bounds.lower(nodes), _samples(problem)
    neurons, margins = _preactivations(network, bounds.layout, points), problem.prop.values(network(points))
    inside = ((neurons >= nodes.lower[:, None]) & (neurons <= nodes.upper[:, None])).all(2)
    assert bool(inside.any())
    below = lower[:, None] <= margins[:, nodes.rows].T
    assert bool((below | ~inside).all())


def test_an_ascent_is_no_lower_in_the_parts_of_a_node() -> None:
    problem = _problem(_network(nn.GELU(), nn.Tanh()), 0.6)
    network, region, (rows, offsets) = problem.exact, problem.region, (problem.prop.rows[0], problem.prop.offsets[0])
    ascent = IntervalAscent(network, region, rows, offsets)
    roots = ascent.roots(hidden_bounds(network, region, CROWN, RIGOROUS))
    lower, roots = ascent.run(roots, 20, time.monotonic() + 60)
    branching = ascent.branching(roots)
    parts = ascent.split(roots, branching)
    assert bool((parts.lower < parts.upper).all())
    assert torch.equal(parts.upper[:2].gather(1, parts.last[:2, None]), parts.lower[2:].gather(1, parts.last[2:, None]))
    assert bool((ascent.run(parts, 5, time.monotonic() + 60)[0] >= lower.repeat(2) - 1e-5).all())


@pytest.mark.parametrize("names", [("tanh", "GELU"), ("ReLU", "Softplus")])
def test_a_multiplier_at_zero_moves_only_where_it_raises_the_bound(names: tuple[str, str]) -> None:
    """Compared with bounds at small multipliers of either sign, neuron by neuron."""
    problem = _problem(_network(ACTIVATIONS[names[0]], ACTIVATIONS[names[1]]), 0.6)
    network, region, (rows, offsets) = problem.exact, problem.region, (problem.prop.rows[0], problem.prop.offsets[0])
    bounds = NodeBounds(network, region, rows, offsets, DOUBLE)
    roots = IntervalAscent(network, region, rows, offsets).roots(hidden_bounds(network, region, CROWN, RIGOROUS))
    nodes = _random_splits(roots, 12)
    path = bounds.path(nodes)
    shares, multipliers = bounds.shares(path, nodes.slopes), torch.zeros_like(nodes.multipliers).double()

    def lower(tables: Tensor) -> Tensor:
        return bounds.bound(path, nodes.rows, shares, tables).lower[:, 0]

    leaf = multipliers.clone().requires_grad_()
    (raw,) = torch.autograd.grad(lower(leaf).sum(), leaf)
    gradient = one_sided(nodes, multipliers, raw)
    assert bool((gradient != 0).any())
    assert bool((gradient == 0).any())
    step, start = 1e-7, lower(multipliers)
    for column in range(multipliers.shape[1]):
        moved = torch.zeros_like(multipliers)
        moved[:, column] = step
        up, down = ((lower(sign * moved) - start) / step for sign in (1, -1))
        expected = up.clamp(min=0) - down.clamp(min=0)
        torch.testing.assert_close(gradient[:, column], expected, rtol=1e-4, atol=1e-5)


def test_ascents_gain_behind_steep_and_flat_activations() -> None:
    """Multipliers count in units of coefficients before activations: behind a reciprocal these are a thousandth of
    those after it."""
    torch.manual_seed(5)
    first, second, last = (nn.Linear(*sizes).double() for sizes in ((3, 6), (6, 6), (6, 1)))
    module = nn.Sequential(first, nn.ReLU(), second, nn.Tanh(), last)
    network = relucert.load(module)
    nodes = [replace(node, operation=Reciprocal()) if node.operation.name == "tanh" else node for node in network.nodes]
    before = next(value for value, node in network.steps() if node.operation.name == "tanh") - 1
    far = Linear(second.weight.detach(), second.bias.detach() + 40)
    nodes[before - 1] = Node(far, nodes[before - 1].inputs)
    curved = Network(network.input_shape, tuple(nodes))
    region = Region.around(torch.zeros(1, 3, dtype=torch.float64), 2.0, "inf")
    rows, offsets = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    ascent = IntervalAscent(curved, region, rows, offsets)
    roots = ascent.roots(hidden_bounds(curved, region, CROWN, RIGOROUS))
    start, end = (ascent.run(roots, steps, time.monotonic() + 60)[0] for steps in (0, 30))
    assert float(end) > float(start)


def _grid(radius: float, norm: str) -> Tensor:
    axis = torch.linspace(-radius, radius, 161, dtype=torch.float64)
    points = torch.cartesian_prod(axis, axis)
    return points[torch.linalg.vector_norm(points, float(norm), dim=1) <= radius]


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.parametrize("names", [("tanh", "GELU"), ("GELU", "ReLU"), ("ReLU", "SiLU")])
def test_verdicts_agree_with_a_grid(names: tuple[str, str], norm: str) -> None:
    """Radii that are apart from the nearest violation are decided, as a grid has it."""
    network = _network(ACTIVATIONS[names[0]], ACTIVATIONS[names[1]], inputs=2)
    problem, points = _problem(network, 1.0, norm), _grid(3.0, norm)
    bad = problem.prop.values(network(points)).amin(1) <= 0
    nearest = float(torch.linalg.vector_norm(points[bad], float(norm), dim=1).min())
    for share, expected in ((0.5, True), (1.1, False)):
        asked = problem.at(share * nearest)
        violations: list[Tensor] = []

        def violates(point: Tensor, asked: Problem = asked, violations: list[Tensor] = violations) -> bool:
            violations.append(point)
            return bool(asked.prop.values(network(point[None])).min() <= 0)

        prover = IntervalProver(asked, violates, time.monotonic() + 60)
        with torch.no_grad():
            proven, failure = prover.run()
        assert (proven, failure) == (expected, None)
        assert proven or float(torch.linalg.vector_norm(violations[-1], float(norm))) <= share * nearest


def test_slopes_and_multipliers_that_lie_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ascent that calls every node proven, with slopes that are none: no violation is proven away."""
    problem = _problem(_network(nn.Tanh(), nn.GELU(), inputs=2), 3.0)

    def lies(self: IntervalAscent, nodes: IntervalNodes, *rest: object, **more: object) -> object:
        wild = nodes._replace(
            slopes=torch.full_like(nodes.slopes, torch.nan), multipliers=nodes.multipliers + torch.inf
        )
        return torch.ones(len(nodes.rows)), wild

    monkeypatch.setattr(IntervalAscent, "run", lies)
    with torch.no_grad():
        assert not IntervalProver(problem, lambda _: False, time.monotonic() + 2).run()[0]


@pytest.mark.parametrize("operation", [Sin(), Power(2), Power(3)])
def test_other_activations_are_split(operation: Sin | Power) -> None:
    """Of functions with several turns: a bound that one line misses is proven by splits."""
    network = relucert.load(nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)).double())
    nodes = [replace(node, operation=operation) if node.operation.name == "tanh" else node for node in network.nodes]
    curved = Network(network.input_shape, tuple(nodes))
    region = Region.around(torch.zeros(1, 2, dtype=torch.float64), 3.0, "2")
    axis = torch.linspace(-3, 3, 201, dtype=torch.float64)
    points = torch.cartesian_prod(axis, axis)
    least = float(curved(points[points.norm(dim=1) <= 3]).min())
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    for slack, expected in ((0.1, True), (-0.2, False)):
        offsets = torch.full((1, 1), slack * abs(least) - least, dtype=torch.float64)
        problem = Problem(curved, region, Property(one, offsets))
        prover = IntervalProver(problem, lambda _: True, time.monotonic() + 60)
        with torch.no_grad():
            assert prover.run()[0] is expected


def test_nodes_whose_bounds_are_no_numbers_are_not_proven() -> None:
    """A root of numbers below 0 is none: a region that may have some is never proven, however it is split."""
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3), nn.SiLU(), nn.Linear(3, 3), nn.Tanh())
    network = relucert.load(nn.Sequential(*module, nn.Linear(3, 1)).double())
    nodes = [replace(node, operation=Sqrt()) if isinstance(node.operation, Silu) else node for node in network.nodes]
    undefined = Network(network.input_shape, tuple(nodes))
    region = Region.around(torch.zeros(1, 2, dtype=torch.float64), 3.0, "2")
    prop = Property(torch.ones(1, 1, 1, dtype=torch.float64), torch.full((1, 1), 1e3, dtype=torch.float64))
    with torch.no_grad():
        assert not IntervalProver(Problem(undefined, region, prop), lambda _: False, time.monotonic() + 2).run()[0]


def test_bounds_that_are_known_are_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _problem(_network(nn.Tanh(), nn.GELU(), inputs=2), 0.1)
    known = cheap_bounds(problem.exact, problem.region, RIGOROUS)
    monkeypatch.setattr(interval_tree, "cheap_bounds", None)
    with torch.no_grad():
        prover = IntervalProver(problem, lambda _: False, time.monotonic() + 60, hidden=known)
        assert prover.run() == (True, None)


def test_time_ends_a_search() -> None:
    problem = _problem(_network(nn.GELU(), nn.GELU()), 2.0)
    with torch.no_grad():
        ended = IntervalProver(problem, lambda _: False, time.monotonic()).run()
    assert ended == (False, relucert.answers.verdicts.LATE)


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
def test_exact_intervals_contain_the_nearest_violation_of_a_grid(norm: str) -> None:
    network = _network(nn.Tanh(), nn.GELU(), inputs=2)
    (answer,) = relucert.exact(network, torch.zeros(1, 2), norm=norm, tolerance=0.02, time_limit=60)
    problem, points = _problem(network, 1.0, norm), _grid(3.0, norm)
    bad = problem.prop.values(network(points)).amin(1) <= 0
    nearest = float(torch.linalg.vector_norm(points[bad], float(norm), dim=1).min())
    assert answer.closed
    assert answer.lower is not None
    assert answer.upper is not None
    assert answer.lower <= nearest
    assert answer.upper <= nearest * 1.02


def test_activations_that_the_output_does_not_depend_on_break_no_ascent() -> None:
    network = _with_unused_activation()
    verdict = relucert.robust_at(network, torch.zeros(1, 15).double(), radius=0.12, time_limit=30)[0]
    assert verdict.status == "holds"


def _with_unused_activation() -> Network:
    torch.manual_seed(0)
    sizes = (20, 15), (20, 20)
    first, second = (
        Linear(
            torch.randn(*size, dtype=torch.float64) * 2 / size[1] ** 0.5,
            torch.randn(size[0], dtype=torch.float64) * 0.1,
        )
        for size in sizes
    )
    last = Linear(torch.randn(2, 20, dtype=torch.float64) * 2 / 20**0.5, torch.tensor([5.0, 0.0]).double())
    inner = Node(first, (0,)), Node(Tanh(), (1,)), Node(second, (2,)), Node(Tanh(), (3,))
    return Network((15,), (*inner, Node(Sigmoid(), (1,)), Node(last, (4,))))
