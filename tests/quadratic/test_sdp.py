"""`method="sdp"` against exact answers, and what it says where it has nothing to add."""

import math
import random
from typing import Any

import pytest
import torch

import relucert
from relucert import best, data
from relucert.methods import sdp
from relucert.methods.table import find_method
from relucert.quadratic import solve
from relucert.query.property import Property
from relucert.region import Region
from relucert.rigor import RIGOROUS
from relucert.search import ladder
from tests.milp import nearest
from tests.nets import NETWORKS, centres, mlp


def questions_against_programs(seeds: range) -> int:
    """No margin is proven at a distance at which a rival catches up; how many were proven just below it."""
    proven = 0
    for seed in seeds:
        draw = random.Random(seed)
        sizes = [draw.randint(2, 4), *(draw.randint(2, 6) for _ in range(draw.randint(1, 3))), 3]
        network = mlp(*sizes, seed=seed, dtype=torch.float64)
        centre = centres(network, 1)[0].double() * draw.choice((0.1, 1.0, 3.0))
        label = int(network(centre[None]).argmax())
        rival = draw.choice([place for place in range(3) if place != label])
        norm = draw.choice((1.0, math.inf))
        point = nearest(network, centre, label, rival, norm, 4.0)
        if point is None:
            continue
        prop = Property.margins(torch.tensor([label]), torch.tensor([[rival]]), 3)
        method = find_method("sdp")
        for share in (0.6, 1 + 1e-5):
            region = Region.around(centre[None], point[0] * share, norm)
            with torch.inference_mode():
                hidden = method.hidden(network, region, RIGOROUS)
                margin = float(method.margins(network, region, prop, hidden, RIGOROUS))
            if share > 1:
                assert not margin > 0, (seed, norm, point[0])
            else:
                proven += margin > 0
    return proven


def test_no_margin_is_proven_where_a_program_finds_an_example() -> None:
    assert questions_against_programs(range(40)) > 10


@pytest.mark.slow
def test_no_margin_is_proven_where_a_program_finds_an_example_in_500_questions() -> None:
    assert questions_against_programs(range(40, 540)) > 150


@pytest.mark.full_effort
def test_radii_are_far_above_those_of_crown() -> None:
    images = data.bundled().first(1)
    asked: dict[str, Any] = {"target": "runner-up"}
    (crown,) = relucert.certify("mnist-3x20", images.images, images.labels, method="crown", **asked)
    (answer,) = relucert.certify("mnist-3x20", images.images, images.labels, method="sdp", **asked)
    (attacked,) = relucert.attack("mnist-3x20", images.images, images.labels, **asked)
    assert crown.radius is not None
    assert answer.radius is not None
    assert attacked.distance is not None
    assert answer.proven
    assert 1.1 * crown.radius < answer.radius < attacked.distance
    assert answer.reason is None


@pytest.mark.full_effort
def test_wide_chains_have_it_as_a_step_of_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best, "STEPS", ladder.CHEAP_STEPS)
    asked: dict[str, Any] = {"method": "best", "budget": 60.0, "target": "runner-up"}
    network, branching = NETWORKS["three layers"](), NETWORKS["residual"]()
    (plain,) = relucert.certify(network, centres(network)[:1], **asked)
    assert plain.due_to != "sdp"
    monkeypatch.setattr(ladder, "WIDE", 1)
    (answer,) = relucert.certify(network, centres(network)[:1], **asked)
    assert plain.radius is not None
    assert answer.radius is not None
    assert answer.proven
    assert answer.due_to == "sdp"
    assert answer.radius > 1.1 * plain.radius
    (other,) = relucert.certify(branching, centres(branching)[:1], **asked)
    assert other.due_to != "sdp"


def test_what_branches_has_the_weaker_method_s_radius_and_says_so() -> None:
    network = NETWORKS["residual"]()
    points = centres(network, 2)
    for one, other in zip(
        relucert.certify(network, points, method="sdp"), relucert.certify(network, points, method="crown"), strict=True
    ):
        assert one.radius == pytest.approx(other.radius, rel=2e-4)
        assert one.reason is not None
        assert "the radius is that of crown" in one.reason
        assert "branches at value" in one.reason


def test_a_matrix_too_large_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdp, "MOST_ROWS", 5)
    (answer,) = relucert.certify(NETWORKS["three layers"](), centres(NETWORKS["three layers"]())[:1], method="sdp")
    assert answer.radius is not None
    assert answer.reason is not None
    assert "rows, 0.0 GiB; the most is 5 rows" in answer.reason


@pytest.mark.parametrize("spoilt", ["certificate", "dual", "nothing"])
def test_spoilt_solutions_leave_the_weaker_method_s_margins(spoilt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finder that fails, or whose numbers are none, costs the gain, never the truth."""

    def faulty(*arguments: object) -> object:
        solution = solve.solve(*arguments)  # type: ignore[arg-type]
        assert solution is not None
        if spoilt == "nothing":
            return None
        part = solution.certificate.inputs if spoilt == "certificate" else solution.dual.tangent
        part.fill_(torch.nan)
        return solution

    monkeypatch.setattr(sdp, "solve", faulty)
    network = mlp(4, 6, 6, 3, seed=3, dtype=torch.float64)
    region = Region.around(centres(network, 1).double(), 0.3, "inf")
    prop = Property.margins(torch.tensor([0]), torch.tensor([[1, 2]]), 3)
    method, weaker = find_method("sdp"), find_method("crown")
    with torch.inference_mode():
        hidden = method.hidden(network, region, RIGOROUS)
        margins = method.margins(network, region, prop, hidden, RIGOROUS)
        torch.testing.assert_close(margins, weaker.margins(network, region, prop, hidden, RIGOROUS), rtol=0, atol=0)
