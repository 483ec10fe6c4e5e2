"""The hardness construction: what its networks compute, and where the theorem puts their minimum distortion."""

import math
import random
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import relucert
from bench.set_cover import draw
from relucert import hardness
from relucert.common.names import MethodName
from relucert.errors import InputError
from relucert.hardness import from_set_cover, greedy_cover, minimum_cover
from relucert.methods.table import METHODS
from tests.method_tables import takes
from tests.milp import nearest
from tests.nets import NORMS
from tests.rational import evaluate_graph

Instance = tuple[list[int], list[list[int]]]
TRIANGLE: Instance = ([1, 2, 3], [[1, 2], [2, 3], [3, 1]])
SEEDS = range(8)


def instance(seed: int, most: int = 6) -> Instance:
    """A few random sets, and the universe that they cover."""
    draw = random.Random(seed)
    elements, count, share = range(draw.randint(2, most + 1)), draw.randint(2, most), draw.uniform(0.2, 0.5)
    sets = [[element for element in elements if draw.random() < share] for _ in range(count)]
    covered = sorted({element for family in sets for element in family})
    return (covered, sets) if covered else instance(seed + 1000, most)


def covers(universe: list[int], sets: list[list[int]], chosen: list[int]) -> bool:
    return {element for place in chosen for element in sets[place]} == set(universe)


def real_score(universe: list[int], sets: list[list[int]], point: list[Fraction]) -> Fraction:
    """The paper's w over its delta, formula by formula."""
    delta = Fraction(1, max(2, len(sets)))
    steps = [-max(Fraction(0), delta - u) + max(Fraction(0), u - 1 + delta) for u in point]
    best = [max(t for t, family in zip(steps, sets, strict=True) if element in family) for element in universe]
    return min(best) / delta


def boolean_score(universe: list[int], sets: list[list[int]], point: list[Fraction]) -> Fraction:
    """The paper's psi, formula by formula."""
    zero = Fraction(0)
    seen = [sum((u for u, family in zip(point, sets, strict=True) if element in family), zero) for element in universe]
    nodes = [1 - max(zero, 1 - total) for total in seen]
    return max(zero, sum(nodes, zero) - len(universe) + 1)


@pytest.mark.parametrize("inputs", hardness.INPUTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_network_is_the_papers_formula(seed: int, inputs: str) -> None:
    universe, sets = instance(seed)
    reduction = from_set_cover(universe, sets, inputs=inputs)
    score = real_score if inputs == "real" else boolean_score
    draw = random.Random(seed)
    for _ in range(40):
        point = [Fraction(draw.randint(-8, 24), 16) for _ in sets]
        assert evaluate_graph(reduction.network, point)[-1] == [Fraction(1, 2), score(universe, sets, point)]


@pytest.mark.parametrize("inputs", hardness.INPUTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_covers_are_told_from_other_choices(seed: int, inputs: str) -> None:
    universe, sets = instance(seed)
    reduction = from_set_cover(universe, sets, inputs=inputs)
    points = torch.tensor(list(product((0.0, 1.0), repeat=len(sets))), dtype=torch.float64)
    fewest = math.inf
    for point, scores in zip(points, reduction.network(points), strict=True):
        chosen = point.nonzero().flatten().tolist()
        good = covers(universe, sets, chosen)
        assert reduction.cover(point) == chosen
        assert int(scores.argmax()) == (reduction.target if good else reduction.label)
        assert float(scores[1] - scores[0]) == 0.5 if good else float(scores[1] - scores[0]) <= -0.5
        fewest = min(fewest, len(chosen)) if good else fewest
    assert fewest == len(minimum_cover(universe, sets))
    assert bool((reduction.centre == 0).all())


@pytest.mark.parametrize("norm", [1.0, math.inf])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_minimum_distortion_is_where_the_theorem_puts_it(seed: int, norm: float) -> None:
    universe, sets = instance(seed)
    reduction, least = from_set_cover(universe, sets), minimum_cover(universe, sets)
    distance = reduction.distance(least, norm)
    nearest_point = nearest(
        reduction.network, reduction.centre[0], reduction.label, reduction.target, norm, 1.1 * distance
    )
    assert nearest_point is not None
    minimum, point = nearest_point
    assert minimum == pytest.approx(distance, abs=1e-6)
    assert covers(universe, sets, reduction.cover(point))
    if norm == 1:
        assert len(reduction.cover(point)) == len(least)
        assert (1 - 1 / len(sets)) * len(least) + 1e-6 < minimum < len(least) - 1e-6
        assert math.ceil(minimum) == len(least)


@pytest.mark.parametrize("seed", SEEDS)
def test_points_of_the_target_are_covers(seed: int) -> None:
    """Soundness: every point of the target class gives a cover, with at most its 1-norm over 1 - 1/d sets."""
    universe, sets = instance(seed)
    reduction = from_set_cover(universe, sets)
    points = torch.rand(4000, len(sets), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    points = torch.where(points < 0.5, 3 * points - 0.7, 0.7 + 0.7 * (points - 0.5))
    scores = reduction.network(points)
    wrong = points[scores[:, reduction.target] >= scores[:, reduction.label]]
    assert len(wrong) > 3
    for point in wrong:
        chosen = reduction.cover(point)
        assert covers(universe, sets, chosen)
        assert len(chosen) <= float(point.abs().sum()) / reduction.threshold


@pytest.mark.parametrize("seed", SEEDS)
def test_over_the_reals_the_boolean_network_only_knows_fractional_covers(seed: int) -> None:
    universe, sets = TRIANGLE if seed == 0 else instance(seed)
    reduction, least = from_set_cover(universe, sets, inputs="boolean"), minimum_cover(universe, sets)
    has = np.array([[float(element in family) for family in sets] for element in universe])
    fractional = linprog(np.ones(len(sets)), -has, -np.ones(len(universe))).fun
    nearest_point = nearest(
        reduction.network, reduction.centre[0], reduction.label, reduction.target, 1.0, len(least) + 0.5
    )
    assert nearest_point is not None
    minimum = nearest_point[0]
    assert fractional / 2 - 1e-6 <= minimum <= fractional + 1e-6
    assert reduction.distance(least) == len(least) > minimum


@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize(
    ("method", "norm"), [(method, norm) for method in METHODS for norm in NORMS if takes(method, norm)]
)
def test_certificates_stay_below_the_minimum_distortion(method: MethodName, norm: float) -> None:
    for seed in (6, 7):  # small, and some certificates come near the theorem's distance
        universe, sets = instance(seed)
        reduction = from_set_cover(universe, sets)
        (answer,) = relucert.certify(
            reduction.network, reduction.centre, [reduction.label], norm=norm, method=method, target=reduction.target,
            tolerance=0.01,
        )  # fmt: skip
        assert answer.proven
        assert answer.radius is not None
        assert answer.radius < reduction.distance(minimum_cover(universe, sets), norm)


@pytest.mark.parametrize("seed", range(60))
def test_greedy_covers_keep_their_ratio(seed: int) -> None:
    universe, sets = instance(seed, most=9)
    least, greedy = minimum_cover(universe, sets), greedy_cover(universe, sets)
    assert covers(universe, sets, least)
    assert covers(universe, sets, greedy)
    assert len(least) <= len(greedy) <= (math.log(len(universe)) + 1) * len(least)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_greedy_can_be_led_astray(size: int) -> None:
    """Two rows would do, but columns of 2, 4, 8, ... elements look better each time."""
    columns = [range(2**number - 2, 2 ** (number + 1) - 2) for number in range(1, size + 1)]
    universe = list(range(2 ** (size + 1) - 2))
    sets = [*map(list, columns), universe[::2], universe[1::2]]
    assert minimum_cover(universe, sets) == ([0, 1] if size == 2 else [size, size + 1])
    assert len(greedy_cover(universe, sets)) == size


def test_by_hand() -> None:
    reduction = from_set_cover(*TRIANGLE)
    assert (reduction.label, reduction.target) == (0, 1)
    assert reduction.network(reduction.centre).tolist() == [[0.5, -1.0]]
    assert reduction.depth == pytest.approx(5 / 6)
    assert reduction.distance([0, 2]) == pytest.approx(5 / 3)
    assert reduction.distance([0, 2], "2") == pytest.approx(5 / 6 * math.sqrt(2))
    assert reduction.network(reduction.point([0, 2]))[0].tolist() == pytest.approx([0.5, 0.5])
    assert reduction.network(reduction.point([0])).tolist() == [[0.5, -1.0]]


@pytest.mark.parametrize("inputs", hardness.INPUTS)
def test_the_smallest_instance(inputs: str) -> None:
    """One set: the paper's delta would be 1, and its two ramps would overlap."""
    reduction = from_set_cover(["a"], ["a"], inputs=inputs)
    points = torch.tensor([[-1.0], [0.0], [1.0], [2.0]], dtype=torch.float64)
    assert reduction.network(points).argmax(1).tolist() == [0, 0, 1, 1]
    assert minimum_cover(["a"], ["a"]) == greedy_cover(["a"], ["a"]) == [0]


def test_the_universe_is_a_set_and_sets_may_be_idle() -> None:
    one, other = (from_set_cover(universe, [{"a", "b"}, set(), {"b"}]) for universe in ("ab", ["b", "a", "b"]))
    points = torch.rand(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2
    torch.testing.assert_close(one.network(points), other.network(points))


@pytest.mark.parametrize("call", [from_set_cover, greedy_cover, minimum_cover])
@pytest.mark.parametrize(
    ("universe", "sets", "message"),
    [
        ([], [], "the universe is empty"),
        ([1, 2], [], "none has 1"),
        ([1, 2], [[1]], "do not cover the universe: none has 2"),
        ([1, 2], [[1], [2, 3]], "set 1 has 3, which is not in the universe"),
        (["ab"], ["ab"], "set 0 has 'a', which is not in the universe"),
        (3, [[1]], "expected a collection"),
        ([1], [1], "expected a collection"),
        ([1], None, "expected a collection"),
        ([[1]], [[[1]]], "expected a collection"),
        ([1], {frozenset([1])}, "give them as a list"),
        ([1], {"one": [1]}, "give them as a list"),
    ],
)
def test_what_is_no_instance_is_refused(call: Any, universe: Any, sets: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(universe, sets)


def test_what_is_no_question_is_refused() -> None:
    with pytest.raises(InputError, match="unknown inputs 'complex'; known are real, boolean"):
        from_set_cover([1], [[1]], inputs="complex")


@pytest.mark.parametrize(
    ("cover", "message"),
    [
        ([0, 3], "0 to 2; 3 is none"),
        ([-1], "-1 is none"),
        ([0.5], "0.5 is none"),
        ([True], "True is none"),
        ([[0]], r"\[0\] is none"),
        (["0"], "'0' is none"),
        ([None], "None is none"),
        (3, "not int"),
        (None, "not NoneType"),
        (1.5, "not float"),
        (len, "not builtin_function_or_method"),
        ("01", "not str"),
        ({0: 1}, "not dict"),
        ((place for place in [0]), "not generator"),
        (torch.tensor([0, 3]), "3 is none"),
        (np.array([[0]]), r"\[0\] is none"),
    ],
)
def test_what_is_no_cover_is_refused_by_its_name(cover: Any, message: str) -> None:
    reduction = from_set_cover(*TRIANGLE)
    for call in (reduction.point, reduction.distance):
        with pytest.raises(InputError, match=f"^a cover is a collection of positions of sets, .*{message}"):
            call(cover)


@pytest.mark.parametrize(
    ("point", "message"),
    [
        (3, "not of 1"),
        (None, "not NoneType"),
        ("abc", "not str"),
        ([0, 1], "not of 2"),
        ([[0, 1], [1]], "not list"),
        ({0: 1}, "not dict"),
        (["a", "b", "c"], "not list"),
        (torch.zeros(3, dtype=torch.complex64), "real and finite"),
        ([0.0, 1.0, float("nan")], "real and finite"),
    ],
)
def test_what_is_no_point_is_refused_by_its_name(point: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^a point is an array of 3 numbers, one per set.*{message}"):
        from_set_cover(*TRIANGLE).cover(point)


def test_covers_and_points_in_any_form() -> None:
    reduction = from_set_cover(*TRIANGLE)
    for cover in ([2, 0], (0, 2), {0, 2}, frozenset({0, 2}), np.array([0, 2]), torch.tensor([0, 2]), range(0, 3, 2)):
        point = reduction.point(cover)
        for form in (point, point[0], point.numpy(), point[0].tolist()):
            assert reduction.cover(form) == [0, 2]
    assert reduction.cover(reduction.point([])) == []


def test_the_module_is_a_name_of_the_package() -> None:
    assert relucert.hardness is hardness
    assert "hardness" in relucert.__all__


def test_the_picture_in_the_documents_can_be_drawn(tmp_path: Path) -> None:
    draw(tmp_path / "set-cover.svg")
    assert (tmp_path / "set-cover.svg").stat().st_size > 1000
