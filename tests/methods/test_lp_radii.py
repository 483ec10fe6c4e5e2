"""Radii by LP and LP-Full: in the order that theory gives, below every adversarial point, for every target."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

import relucert
from relucert.answers.certificates import Certificate
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.common.names import MethodName
from relucert.errors import InputError
from relucert.methods.solvers import proposer
from relucert.methods.solvers.highs import Highs
from relucert.methods.table import find_method
from relucert.query.targets import TARGETS
from tests.adversaries import nearest_distances
from tests.method_tables import PROGRAMS
from tests.nets import NETWORKS, centres

NORMS = (1.0, 2.0, float("inf"))
COUNT = 3
PAPERS_ORDER = ("fast-lin", "lp", "lp-full")


def certify(name: str, count: int = COUNT, **options: Any) -> list[Certificate]:
    network = NETWORKS[name]()
    return relucert.certify(network, centres(network, count, seed=5), **options)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "rectified input"])
@pytest.mark.sampled
def test_the_order(name: str, norm: float) -> None:
    columns = [certify(name, norm=norm, method=method) for method in PAPERS_ORDER]
    for answers, distance in zip(zip(*columns, strict=True), nearest_distances(name, norm, COUNT), strict=True):
        assert all(answer.proven and answer.reason is None for answer in answers)
        radii = [answer.radius for answer in answers if answer.radius is not None]
        assert len(radii) == len(PAPERS_ORDER)
        assert radii[0] > 0
        assert all(weaker <= stronger * (1 + 1e-4) for weaker, stronger in pairwise(radii))
        assert radii[-1] < distance


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("target", [*TARGETS, 1])
@pytest.mark.sampled
def test_the_order_for_every_target(target: str | int, norm: float) -> None:
    columns = [certify("five layers", 1, norm=norm, method=method, target=target) for method in PAPERS_ORDER]
    totals = [sum(answer.radius or 0.0 for answer in column) for column in columns]
    assert totals[0] * 1.01 < totals[1]
    assert all(weaker * 1.001 < stronger for weaker, stronger in pairwise(totals))
    for answers in zip(*columns, strict=True):
        radii = [answer.radius for answer in answers if answer.radius is not None]
        if answers[0].radius is None:
            assert target == answers[0].label
            continue
        assert len(radii) == len(PAPERS_ORDER)
        assert all(weaker <= stronger * (1 + 1e-4) for weaker, stronger in pairwise(radii))


@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", PROGRAMS)
def test_all_rivals_and_untargeted_agree(method: str) -> None:
    single = certify("three layers", 2, norm=2, method=method)
    every = certify("three layers", 2, norm=2, method=method, target="all")
    for answer in single:
        least = min((other.radius or 0.0, other.target) for other in every if other.image == answer.image)
        assert answer.radius == pytest.approx(least[0], rel=2e-4)
        assert answer.target == least[1]


@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", PROGRAMS)
def test_a_network_without_relu_needs_no_program(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Highs, "solve")
    plain, programs = (certify("linear", method=chosen) for chosen in ("fast-lin", method))
    radii = [[answer.radius for answer in answers] for answers in (plain, programs)]
    assert radii[0] == pytest.approx(radii[1], rel=1e-6)


@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", PROGRAMS)
def test_a_batch_equals_its_members(method: MethodName) -> None:
    network = NETWORKS["residual"]()
    points = centres(network, 3, seed=5)
    for row, answer in enumerate(relucert.certify(network, points, norm="inf", method=method)):
        (alone,) = relucert.certify(network, points[row : row + 1], norm="inf", method=method)
        assert answer.radius == pytest.approx(alone.radius, rel=2e-4)
        assert answer.target == alone.target


def test_few_evaluations_are_spent() -> None:
    for method, most in (("lp", 8), ("lp-full", 12)):
        answers = certify("five layers", 2, norm="inf", method=method)
        assert max(answer.evaluations for answer in answers) <= most


@pytest.mark.parametrize("method", ["lp", "lp-full", "alpha"])
def test_searches_do_not_end_far_below_what_the_method_proves(method: str) -> None:
    """Where a search says that it has reached its tolerance, the method proves nothing 3 % farther."""
    network = NETWORKS["five layers"]()
    images = centres(network, 1, seed=5)
    for answer in certify("five layers", 1, norm="inf", method=method, target="runner-up"):
        assert answer.radius is not None
        region = Region.around(images[answer.image][None].double(), 1.03 * answer.radius, "inf")
        prop = Property.margins(torch.tensor([answer.label]), torch.tensor([[answer.target]]), network.classes)
        prover = find_method(method)
        exact = network.cast(torch.float64)
        hidden = prover.hidden(exact, region, RIGOROUS)
        assert not bool((prover.margins(exact, region, prop, hidden, RIGOROUS) > 0).all())


def test_float_arithmetic_is_not_proven() -> None:
    for one, other in zip(
        certify("residual", method="lp", arithmetic="float"), certify("residual", method="lp"), strict=True
    ):
        assert not one.proven
        assert one.radius == pytest.approx(other.radius, rel=3e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": 1.5}, "needs the norm 1, 2 or inf, not 1.5; fast-lin takes any norm"),
        ({"norm": 3}, "needs the norm 1, 2 or inf, not 3"),
        ({"time_limit": 0}, "time limit"),
        ({"time_limit": float("nan")}, "time limit"),
        ({"time_limit": "soon"}, "time limit"),
        ({"shells": 3}, "has no shells"),
        ({"method": "fast-lin", "time_limit": 1.0}, "no programs with a time limit"),
    ],
)
def test_bad_questions_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    network = NETWORKS["two layers"]()
    with pytest.raises(InputError, match=message):
        relucert.certify_each(network, centres(network), **{"method": "lp", **options})


def test_the_time_limit_of_an_ascent_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a network too wide for programs what is known when time ends is used, and the answer says so."""
    monkeypatch.setattr(proposer, "SOLVABLE", -1)
    crown = certify("five layers", 1, method="crown")
    for answer, least in zip(certify("five layers", 1, method="lp-full", time_limit=0.001), crown, strict=True):
        assert answer.proven
        assert answer.radius is not None
        assert least.radius is not None
        assert answer.radius >= least.radius * (1 - 1e-4)
        assert "Time limit reached" in str(answer.reason)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.sampled
def test_where_no_program_fits_lp_full_is_at_least_alpha(norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposer, "SOLVABLE", -1)
    columns = [certify("five layers", 1, norm=norm, method=method) for method in ("alpha", "lp-full")]
    for alpha, full in zip(*columns, strict=True):
        assert alpha.radius is not None
        assert full.radius is not None
        assert full.radius >= alpha.radius * (1 - 1e-3)
        assert full.reason is None
