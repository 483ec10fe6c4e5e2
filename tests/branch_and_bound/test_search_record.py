"""Recorded searches: what they prove passes the check, also from refined roots; faulty ascents prove nothing."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
import torch

import relucert
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.arithmetic.rigor import RECORDED
from relucert.bounding.hidden import cheap_bounds
from relucert.bounding.record import Leaves, Record, multiplier_units
from relucert.branch_and_bound import tree
from relucert.branch_and_bound.prove import prove
from relucert.branch_and_bound.refine import Refining
from relucert.branch_and_bound.root import rooted
from relucert.branch_and_bound.search_record import SearchRecord
from relucert.checker.check import check
from relucert.checker.document import Rejected
from relucert.network import Network
from relucert.proofs.files import claimed, relaxation_evidence, write_proof
from relucert.proofs.record import relaxation_entry
from relucert.query.problem import Problem
from tests.branch_and_bound.liars import LIES, let_ascents_lie
from tests.checker.forests import Leaf, Split, grown
from tests.nets import NETWORKS, centres, mlp

NETWORK = mlp(6, 10, 10, 4, seed=0)


def asked(network: Network, norm: str = "inf", box: tuple[float, float] | None = None) -> Problem:
    """Whether the image keeps its class."""
    centre = centres(network, 1)[0].double().clamp(-1.5, 1.5)
    label = int(network.cast(torch.float64)(centre[None]).argmax())
    rivals = [other for other in range(network.classes) if other != label]
    prop = Property.margins(torch.tensor([label]), torch.tensor([rivals]), network.classes)
    return Problem(network, RegionShape.parse(norm, box, None, network.input_shape).around(centre[None]), prop)


def distortion(question: Problem) -> float:
    norm, box = question.region.norm.p, question.region.box
    (answer,) = relucert.exact(question.network, question.centre[None].float().double(), norm=norm, box=box)
    assert answer.upper is not None
    return answer.upper


def checked(question: Problem, record: Record, radius: float, path: Path) -> None:
    write_proof(path, claimed(question, 0), relaxation_evidence(record, radius, question.network))
    assert check(path, question.network).radius == radius


def search(question: Problem, radius: float, seconds: float = 60.0) -> Record | None:
    outcome = prove(question.at(radius), time.monotonic() + seconds, lambda point: False, record=True)
    assert outcome.proven == (outcome.record is not None)
    return outcome.record


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.parametrize("name", ["residual", "convolutional", "normalised", "three layers"])
@pytest.mark.sampled
def test_roots_that_are_refined_pass(name: str, norm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tree has no time, so that refined roots prove it, which repeat what those before them proved."""
    question = asked(NETWORKS[name](), norm, (-1.5, 1.5))
    (answer,) = relucert.exact(
        question.network, question.centre[None], norm=norm, box=(-1.5, 1.5), time_limit=30, tolerance=0.1
    )
    assert answer.lower is not None
    monkeypatch.setattr(tree, "BEFORE_REFINING", 0.0)
    monkeypatch.setattr(tree, "LAYER_SECONDS", 0.2)
    record = search(question, 0.98 * answer.lower)
    assert record is not None
    checked(question, record, 0.98 * answer.lower, tmp_path / "proof.json")


def test_a_tighter_root_keeps_what_was_proven() -> None:
    question = asked(mlp(6, 12, 12, 12, 4, seed=3))
    region = question.at(0.3).region
    record = SearchRecord(question.exact)
    with torch.no_grad():
        known = cheap_bounds(question.exact, region, RECORDED).bounds
        first = rooted(question.exact, region, known, math.inf, Refining(time.monotonic() + 5, 0.5), record)
        second = rooted(question.exact, region, known, math.inf, record=record)
    assert second.unstable_count <= first.unstable_count
    for value, interval in first.bounds.items():
        unstable = second.bounds[value].unstable[0]
        widths = [(bounds.upper - bounds.lower)[0, unstable] for bounds in (interval, second.bounds[value])]
        assert bool((widths[1] <= widths[0] * (1 + 1e-6)).all())


@pytest.mark.parametrize("lie", LIES)
def test_an_ascent_that_lies_is_written_of_nothing_false(
    lie: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the minimum distortion nothing is proven; what is proven below it passes its check."""
    question = asked(NETWORK)
    beyond = 1.02 * distortion(question)
    let_ascents_lie(lie, monkeypatch)
    assert search(question, beyond, 5.0) is None
    record = search(question, 0.3 * beyond, 20.0)
    if record is not None:
        checked(question, record, 0.3 * beyond, tmp_path / "proof.json")


def test_a_record_that_lies_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that claim too much close nodes in the search, and prove nothing to the check."""
    question = asked(NETWORK)
    radius = 1.02 * distortion(question)
    monkeypatch.setattr(
        "relucert.branch_and_bound.node_tree.proven_bounds", lambda stages, rows, nodes: torch.ones(len(nodes.rows))
    )
    record = search(question, radius)
    assert record is not None
    with pytest.raises(Rejected):
        checked(question, record, radius, tmp_path / "proof.json")


def _entry(signs: list[list[int]], duals: list[list[float]], forms: list[int]) -> dict[str, str]:
    leaves = Leaves(
        {1: torch.arange(len(signs[0]))},
        torch.tensor(forms),
        torch.tensor(signs, dtype=torch.int8),
        torch.tensor(duals),
    )
    rows: dict[str, str] = relaxation_entry(Record([], {}, leaves))["rows"]
    return rows


def test_trees_are_grown_from_their_leaves() -> None:
    """Three leaves: the neurons 0, and where it is negative 2; slopes and multipliers keep their places."""
    signs = [[-1, 0, -1], [1, 0, 0], [-1, 0, 1]]
    duals = [[0.5, 0.25, 2.0], [0.75, 1.0, 0.5], [0.0, 0.0, 1.0]]
    first, second, third = (
        Leaf([0, 2**20, 2**19], [3 * 2**22], 24),
        Leaf([0, 0, 0], [0, 2**23], 23),
        Leaf([0, 2**18, 0], [2**21, 2**23], 22),
    )
    assert grown(_entry(signs, duals, [0, 0, 0])) == [Split(0, (first, Split(2, (second, third))))]


@pytest.mark.parametrize(
    "signs", [[[1, 0], [-1, 1]], [[1, 0]], [[1, 0], [1, 0], [-1, 0]], [[1, 1], [-1, -1]], [[1, 0], [0, 1], [-1, -1]]]
)
def test_leaves_that_do_not_cover_the_region_make_no_tree(signs: list[list[int]]) -> None:
    with pytest.raises(ArithmeticError, match="no tree"):
        _entry(signs, [[0.0] * 2] * len(signs), [0] * len(signs))


def test_multipliers_keep_their_largest_one() -> None:
    numbers = torch.tensor([[0.1, 3e-5, -1.0, math.nan], [0.0, 0.0, 0.0, math.inf], [1e30, 1e-30, 5.0, 1e29]])
    units, powers = multiplier_units(numbers)
    back = torch.ldexp(units.double(), -powers[:, None])
    assert bool((units >= 0).all())
    assert bool((units < 2**24).all())
    assert float(back[0, 0]) == float(numbers[0, 0])
    assert torch.equal(back[1], torch.zeros(4, dtype=torch.float64))
    assert float(back[2, 0]) == float(numbers[2, 0])
    again, same = multiplier_units(back)
    assert torch.equal(again, units)
    assert torch.equal(same, powers)


def test_a_search_without_a_proof_file_keeps_no_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("a record")

    monkeypatch.setattr("relucert.branch_and_bound.prove.SearchRecord", refuse)
    outcome = prove(asked(NETWORK).at(0.02), time.monotonic() + 30, lambda point: False)
    assert outcome.proven
    assert outcome.record is None


def test_networks_that_are_too_large_are_said_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("relucert.branch_and_bound.stages.MOST_NUMBERS", 10)
    network = mlp(5, 8, 6, 4, seed=5)
    (answer,) = relucert.exact(network, centres(network, 1), proof=tmp_path / "proof.json")
    assert not answer.closed
    assert answer.reason is not None
    assert "too large to be split by neurons: 1 of its 2 layers of ReLUs" in answer.reason
    assert answer.lower is not None
    assert check(tmp_path / "proof.json", network).radius == answer.lower
