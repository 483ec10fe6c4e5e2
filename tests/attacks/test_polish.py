"""The polish, its programs and its pieces, against independent means: enumeration of all regions, SciPy's solvers."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import optimize

import relucert
from relucert.arithmetic.norm import Norm
from relucert.attacks.nearest import LargestProgram, nearest_program
from relucert.attacks.polish import PATIENCE, Polisher
from relucert.network import Linear, Network
from relucert.network.linear_regions import Pattern, affine_values, form_gradients, pattern_at
from tests.nets import NETWORKS, centres, mlp

Array = NDArray[np.float64]
NORMS = (1.0, 2.0, math.inf)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_piece_is_the_network_where_its_pattern_holds(name: str) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    points = centres(network, 5)
    pattern = pattern_at(network, points)
    for actual, affine in zip(network.values(points), affine_values(network, pattern, points), strict=True):
        torch.testing.assert_close(actual, affine)
    moved = points + 3 * centres(network, 5, seed=1)
    before, after = affine_values(network, pattern, points), affine_values(network, pattern, moved)
    for value in (*network.preactivations, network.output):
        forms = torch.eye(network.sizes[value]).double().expand(5, -1, -1)
        slopes = form_gradients(network, pattern, value, forms)
        torch.testing.assert_close(after[value], before[value] + (slopes @ (moved - points)[..., None]).squeeze(-1))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("bounded", [True, False])
def test_programs_agree_with_scipy(norm: float, bounded: bool) -> None:
    draw = np.random.default_rng(0)
    for _ in range(5):
        rows, least = draw.normal(size=(4, 6)), draw.normal(size=4)
        low, high = (-draw.random(6), draw.random(6)) if bounded else (np.full(6, -np.inf), np.full(6, np.inf))
        program = nearest_program(Norm(norm), low, high)
        program.add(rows[:2], least[:2])
        first = program.solve(10)
        program.add(rows[2:], least[2:])
        solution, wanted = program.solve(10), _least_norm(norm, rows, least, low, high)
        assert (solution is None) == (wanted is None)
        if solution is not None and wanted is not None:
            assert first is not None
            assert (rows @ solution.offset >= least - 1e-6).all()
            assert np.linalg.norm(solution.offset, norm) == pytest.approx(wanted, rel=1e-6, abs=1e-7)
            assert np.linalg.norm(first.offset, norm) <= np.linalg.norm(solution.offset, norm) + 1e-7
            slack = rows @ solution.offset - least
            assert (solution.multipliers[slack > 1e-4] < 1e-4).all()


@pytest.mark.parametrize("norm", NORMS)
def test_a_solver_without_a_clean_ending_answers_nothing(norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    impossible = nearest_program(Norm(norm), np.full(2, -1.0), np.full(2, 1.0))
    impossible.add(np.ones((1, 2)), np.array([5.0]))
    assert impossible.solve(10) is None
    monkeypatch.setattr("relucert.attacks.polish.nearest_program", lambda *_: impossible)
    network = mlp(6, 8, 3)
    images = centres(network, 2).clamp(-1, 1)
    rough = relucert.attack(network, images, norm=norm, method="pgd", steps=40, box=(-1, 1), polish=False)
    same = relucert.attack(network, images, norm=norm, method="pgd", steps=40, box=(-1, 1))
    assert [answer.distance for answer in rough] == [answer.distance for answer in same]


@pytest.mark.parametrize("box", [None, (-1.0, 1.0)], ids=str)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.sampled
def test_tiny_networks_are_mostly_answered_exactly(norm: float, box: Any) -> None:
    """Never nearer than the nearest point over all regions, and in nine of ten questions as near."""
    exact = []
    for seed in range(3):
        network = mlp(4, 5, 3, seed=seed)
        images = centres(network, 2, seed=seed).clamp(-1, 1)
        for answer in relucert.attack(network, images, norm=norm, target="all", box=box, steps=60):
            assert answer.target is not None
            assert answer.label is not None
            wanted = _over_all_regions(network, images[answer.image], (answer.label, answer.target), norm, box)
            if answer.distance is None or wanted is None:
                assert answer.distance is None
                exact.append(wanted is None)
            else:
                assert wanted * (1 - 1e-6) <= answer.distance
                exact.append(answer.distance <= wanted * (1 + 1e-3))
    assert sum(exact) >= 0.9 * len(exact)


def test_wide_regions_are_cut_to_the_sides_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one side added at a time the polish ends as near as with all of them at once."""
    network = mlp(8, 40, 30, 3, seed=4)
    images = centres(network, 3).clamp(-1, 1)
    options: dict[str, Any] = {"norm": 2, "method": "pgd", "steps": 40, "box": (-1, 1)}
    rough = relucert.attack(network, images, polish=False, **options)
    many = relucert.attack(network, images, **options)
    monkeypatch.setattr("relucert.attacks.polish.FACETS", 2)
    few = relucert.attack(network, images, **options)
    for before, one, other in zip(rough, many, few, strict=True):
        assert before.distance is not None
        assert one.distance is not None
        assert other.distance == pytest.approx(one.distance, rel=0.02)
        assert one.distance < before.distance


def _over_all_regions(
    network: Network, image: torch.Tensor, pair: tuple[int, int], norm: float, box: tuple[float, float] | None
) -> float | None:
    """The least distance over every pattern of the one hidden layer, by SciPy."""
    hidden, last = (node.operation for node in network.nodes if isinstance(node.operation, Linear))
    weight, bias = hidden.weight.double().numpy(), hidden.bias.double().numpy()
    label, rival = pair
    form = (last.weight[rival].double() - last.weight[label].double()).numpy()
    constant = float(last.bias[rival].double() - last.bias[label].double())
    x = image.double().numpy()
    low, high = (np.full(len(x), -np.inf), np.full(len(x), np.inf)) if box is None else (box[0] - x, box[1] - x)
    best = None
    for pattern in itertools.product((False, True), repeat=len(bias)):
        active = np.array(pattern)
        signs = np.where(active, 1.0, -1.0)
        lead = (form * active) @ weight
        rows = np.vstack([lead, signs[:, None] * weight])
        least = -np.append(lead @ x + (form * active) @ bias + constant, signs * (weight @ x + bias))
        distance = _least_norm(norm, rows, least, low, high)
        best = distance if best is None or (distance is not None and distance < best) else best
    return best


def _least_norm(p: float, rows: Array, least: Array, low: Array, high: Array) -> float | None:
    """The least p-norm with `rows @ offset >= least` between bounds: linear programs, or for p = 2 Lawson and
    Hanson's reduction to non-negative least squares."""
    size = rows.shape[1]
    if p == 2:
        finite = [(sign * np.eye(size)[k], sign * end) for sign, ends in ((1.0, low), (-1.0, high))
                  for k, end in enumerate(ends) if np.isfinite(end)]  # fmt: skip
        everything = np.vstack([rows, *(row for row, _ in finite)])
        ends = np.append(least, [end for _, end in finite])
        goal = np.append(np.zeros(size), 1.0)
        weights, _ = optimize.nnls(np.vstack([everything.T, ends]), goal, maxiter=10_000)
        residual = np.vstack([everything.T, ends]) @ weights - goal
        if np.linalg.norm(residual) < 1e-7:
            return None
        return float(np.linalg.norm(residual[:size] / residual[size]))
    if p == 1:
        cost, sides = np.ones(2 * size), np.hstack([-rows, rows])
        bounds = [(0, end) for end in np.append(np.maximum(high, 0), np.maximum(-low, 0))]
        limits = -least
    else:
        cost = np.append(np.zeros(size), 1.0)
        unit, one = np.eye(size), np.ones((size, 1))
        sides = np.vstack(
            [np.hstack([-rows, np.zeros((len(rows), 1))]), np.hstack([unit, -one]), np.hstack([-unit, -one])]
        )
        limits = np.append(-least, np.zeros(2 * size))
        bounds = [*zip(low, high, strict=True), (0, None)]
    solution = optimize.linprog(cost, sides, limits, bounds=bounds)
    return float(solution.fun) if solution.status == 0 else None


def test_the_largest_coordinate_takes_few_rows() -> None:
    """Of the limits of 400 coordinates, by walls and by the radius, few are ever in the program."""
    draw = np.random.default_rng(2)
    low, high = -draw.random(400) * draw.integers(0, 2, 400), draw.random(400) * draw.integers(0, 2, 400)
    rows, least = draw.normal(size=(6, 400)), np.array([2.0, 0.5, -0.1, 0.0, -0.5, 0.3])
    program = LargestProgram(low, high)
    program.add(rows[:1], least[:1])
    assert program.solve(10) is not None
    program.add(rows[1:], least[1:])
    solution, wanted = program.solve(10), _least_norm(math.inf, rows, least, low, high)
    assert solution is not None
    assert wanted is not None
    assert np.abs(solution.offset).max() == pytest.approx(wanted, rel=1e-6)
    assert ((solution.offset >= low - 1e-8) & (solution.offset <= high + 1e-8)).all()
    assert program.model.getNumRow() < 100


def test_the_polish_stops_where_it_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    network, looked = mlp(4, 30, 30, 3, seed=2), []

    def fruitless(polisher: Polisher, pattern: Pattern) -> list[tuple[int, int]]:
        looked.append(pattern)
        return [(value, neuron) for value in pattern for neuron in range(30)]

    monkeypatch.setattr(Polisher, "_look_into", fruitless)
    (answer,) = relucert.attack(network, centres(network, 1), norm="inf", steps=40)
    assert answer.witness is not None
    assert 0 < len(looked) <= PATIENCE


@pytest.mark.parametrize("least", [-1.0, 1.0])
def test_an_inequality_that_nothing_can_change_is_no_number_too_large(least: float) -> None:
    program = LargestProgram(np.full(2, -np.inf), np.full(2, np.inf))
    program.add(np.zeros((1, 2)), np.array([least]))
    solution = program.solve(10)
    assert (solution is None) == (least > 0)
    if solution is not None:
        assert np.abs(solution.offset).max() == 0
