"""Certificates within a search: rows are proven only where they hold, and searches take them where they may."""

import math
from typing import Any

import pytest
import torch

import relucert
from relucert.api import best
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.relaxers import CROWN
from relucert.branch_and_bound import node_tree, tree
from relucert.branch_and_bound.root import rooted
from relucert.methods.quadratic import cost, rows
from relucert.methods.quadratic.intervals import tightened_until
from relucert.methods.quadratic.rows import decided_rows, suits_certificates
from relucert.search import portfolio
from tests.milp import nearest
from tests.nets import NETWORKS, centres, mlp


def proven_rows(*arguments: Any) -> torch.Tensor:
    """Which rows certificates prove, (rows,)."""
    decided = decided_rows(*arguments)
    return torch.zeros(arguments[2].rows.shape[1]).bool() if decided is None else decided.prove() > 0


def test_rows_are_proven_below_the_nearest_violation_and_never_beyond() -> None:
    proven = 0
    for seed in range(20):
        network = mlp(4, 6, 6, 3, seed=seed, dtype=torch.float64)
        centre = centres(network, 1)[0].double()
        label = int(network(centre[None]).argmax())
        rivals = [place for place in range(3) if place != label]
        distances = [nearest(network, centre, label, rival, math.inf, 4.0) for rival in rivals]
        prop = Property.margins(torch.tensor([label]), torch.tensor([rivals]), 3)
        known = [found[0] for found in distances if found is not None]
        if not known:
            continue
        for share in (0.6, 1 + 1e-5):
            region = Region.around(centre[None], min(known) * share, "inf")
            found = proven_rows(network, region, prop, hidden_bounds(network, region, CROWN, RIGOROUS), math.inf)
            if share > 1:
                assert not bool(found.all())
            else:
                proven += int(found.all())
    assert proven > 3


def test_no_row_is_begun_without_time() -> None:
    network = mlp(4, 6, 6, 3, seed=1, dtype=torch.float64)
    region = Region.around(centres(network, 1).double(), 0.05, "inf")
    prop = Property.margins(network(region.centre).argmax(1), torch.tensor([[0]]), 3)
    bounds = hidden_bounds(network, region, CROWN, RIGOROUS)
    assert not bool(proven_rows(network, region, prop, bounds, -math.inf).any())


@pytest.mark.full_effort
def test_a_search_takes_them_for_what_a_short_tree_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree gets no time at all here, and refinement none either."""
    network = mlp(14, 16, 16, 3, seed=4)
    images = centres(network, 4)
    (crown,) = relucert.certify(network, images[:1], method="crown")
    (exact,) = relucert.exact(network, images[:1])
    assert crown.radius is not None
    assert exact.lower is not None
    radius = crown.radius + 0.6 * (exact.lower - crown.radius)
    monkeypatch.setattr(rows, "FEWEST_UNSTABLE", 1)
    taken: list[bool] = []

    def listening(*arguments: Any) -> rows.RegionRows | None:
        taken.append(bool(proven_rows(*arguments).all()))
        return decided_rows(*arguments)

    monkeypatch.setattr(tree, "decided_rows", listening)
    monkeypatch.setattr(tree, "BEFORE_REFINING", -1.0)
    monkeypatch.setattr(node_tree, "ROOT_STEPS", 0)
    (verdict,) = relucert.robust_at(network, images[:1], radius=radius, time_limit=60)
    assert taken
    assert taken[0]
    assert verdict.holds


@pytest.mark.full_effort
def test_a_search_goes_on_with_bounds_that_certificates_tighten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree without time for a node, then one whose root has the tightened bounds; no certificate proves a row."""
    network = mlp(16, 12, 12, 12, 12, 12, 4, seed=3)
    images = centres(network, 1)
    (exact,) = relucert.exact(network, images, tolerance=0.05)
    assert exact.lower is not None
    monkeypatch.setattr(rows, "FEWEST_UNSTABLE", 1)
    monkeypatch.setattr(tree, "BEFORE_REFINING", -1.0)
    monkeypatch.setattr(node_tree, "ROOT_STEPS", 0)
    monkeypatch.setattr(tree, "decided_rows", lambda *arguments: None)
    roots: list[Any] = []
    tight: list[Any] = []

    def tighten(*arguments: Any) -> Any:
        tight.append(tightened_until(*arguments))
        return tight[-1]

    def listening(*arguments: Any, **options: Any) -> Any:
        roots.append(arguments[2])
        return rooted(*arguments, **options)

    monkeypatch.setattr(tree, "tightened_until", tighten)
    monkeypatch.setattr(tree, "rooted", listening)
    (verdict,) = relucert.robust_at(network, images, radius=0.9 * exact.lower, time_limit=60)
    assert verdict.holds
    assert len(tight) == 1
    assert roots[1] is tight[0]
    assert any(not torch.equal(tight[0][value].lower, roots[0][value].lower) for value in roots[0])


def test_few_unstable_neurons_are_left_to_splitting() -> None:
    for name in ("three layers", "residual"):
        network = NETWORKS[name]().cast(torch.float64)
        region = Region.around(centres(network, 1).double(), 0.5, "inf")
        bounds = hidden_bounds(network, region, CROWN, RIGOROUS)
        assert not suits_certificates(network, bounds)


def test_best_does_not_begin_what_does_not_fit_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best, "STEPS", portfolio.CHEAP_STEPS)
    monkeypatch.setattr(portfolio, "WIDE", 1)
    monkeypatch.setattr(portfolio, "least_seconds", lambda network: 1e6)
    network = NETWORKS["three layers"]()
    (answer,) = relucert.certify(network, centres(network)[:1], method="best", budget=60.0)
    assert answer.due_to != "sdp"
    assert answer.reason is not None
    assert "before sdp did" in answer.reason


def test_larger_networks_are_said_to_take_longer() -> None:
    sizes = ((20, 30, 30, 3), (20, 300, 30, 3), (20, 300, 300, 3), (800, 300, 300, 3))
    seconds = [cost.least_seconds(mlp(*some)) for some in sizes]
    assert seconds == sorted(seconds)
    assert 0 < seconds[0] < seconds[-1]
