"""`method="best"`: it climbs from step to step, holds its budget, and says which step proved the radius."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import relucert
from relucert.answers.certificates import Certificate
from relucert.api import best
from relucert.api.exact import EXACT_STEP
from relucert.arithmetic.rigor import RIGOROUS
from relucert.branch_and_bound.exact_search import ExactSearch
from relucert.checker.check import check
from relucert.errors import InputError
from relucert.methods.table import find_method
from relucert.search.end import SearchEnd
from relucert.search.portfolio import CHEAP_STEPS, ProvenRadius, Step, Task
from relucert.search.radius import Searcher
from tests.nets import NETWORKS, centres, mlp
from tests.search.test_radius import ask

NAME = "three layers"


def certify(name: str = NAME, **options: Any) -> list[Certificate]:
    network = NETWORKS[name]()
    question = {"method": "best", "target": "runner-up", **options}
    return relucert.certify(network, centres(network, 2, seed=5), **question)


@pytest.mark.parametrize("norm", ["inf", "2"])
@pytest.mark.parametrize("name", ["two layers", "residual"])
def test_in_time_it_is_exact(name: str, norm: str) -> None:
    network = NETWORKS[name]()
    images = centres(network, 2, seed=5)
    wanted = relucert.exact(network, images, norm=norm, target="runner-up")
    for answer, exact in zip(certify(name, norm=norm, budget=60.0), wanted, strict=True):
        assert answer.proven
        assert answer.method == "best"
        assert answer.reason is None
        assert exact.upper is not None
        assert answer.radius is not None
        assert exact.upper * (1 - 2e-3) <= answer.radius <= exact.upper
        assert answer.due_to in [step.name for step in best.STEPS]
        assert answer.target == exact.target


def test_without_time_the_first_step_stands() -> None:
    for answer, plain in zip(certify(budget=0.001), certify(method="fast-lin"), strict=True):
        assert answer.proven
        assert answer.radius == pytest.approx(plain.radius, rel=1e-4)
        assert answer.due_to == "fast-lin"
        assert "the budget of 0.001 s ended before crown" in str(answer.reason)


@pytest.mark.parametrize("norm", [1.5, "inf"])
def test_no_step_lowers_what_is_proven(norm: str | float, monkeypatch: pytest.MonkeyPatch) -> None:
    """For p = 1.5 there is no exact search; without it the last step is alpha."""
    if norm == "inf":
        monkeypatch.setattr(best, "STEPS", CHEAP_STEPS)
    columns = [certify(norm=norm, method=method) for method in ("fast-lin", "crown", "alpha")]
    for answer, *others in zip(certify(norm=norm, budget=60.0), *columns, strict=True):
        assert answer.radius is not None
        assert answer.radius >= max(other.radius or math.inf for other in others) * (1 - 1e-4)
        assert answer.due_to in ("fast-lin", "crown", "alpha")
        assert answer.reason is None


def _broken(task: Task, proven: ProvenRadius | None, ends: float) -> Iterator[ProvenRadius]:
    yield ProvenRadius(0.001, 0, "modest")
    raise RuntimeError("no luck")


def test_a_step_that_fails_leaves_what_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best, "STEPS", (CHEAP_STEPS[0], Step("broken", _broken), CHEAP_STEPS[1]))
    for answer, crown in zip(certify(budget=60.0), certify(method="crown"), strict=True):
        assert answer.radius is not None
        assert answer.radius >= (crown.radius or math.inf) * (1 - 1e-4)
        assert answer.reason is not None
        assert "broken failed: " in answer.reason
        assert "no luck" in answer.reason
        assert not answer.failed
    monkeypatch.setattr(best, "STEPS", (Step("broken", _hopeless),))
    (answer, _) = certify(budget=60.0)
    assert answer.radius is None
    assert answer.failed
    assert "not certified: broken failed" in str(answer.reason)


def _hopeless(task: Task, proven: ProvenRadius | None, ends: float) -> Iterator[ProvenRadius]:
    raise RuntimeError("no luck")


def test_a_search_ends_in_time_with_what_was_proven() -> None:
    network = NETWORKS["five layers"]()
    questions = ask(network, count=1)
    start = [SearchEnd(0, 1e-3, 2, 0, True, "earlier")]
    searcher = Searcher(network, find_method("crown"), RIGOROUS, 1e-4)
    region = relucert.Region.around(questions.centres, 0.0, 2)
    (late,) = searcher.run(region, questions.prop, start, ends=time.monotonic() - 1)
    assert (late.radius, late.weakest, late.method, late.evaluations) == (1e-3, 2, "earlier", 1)
    (done,) = searcher.run(region, questions.prop, start)
    assert done.method == "crown"
    assert done.radius is not None
    assert done.radius > 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "alpha", "budget": 1.0}, "'alpha' has no budget"),
        ({"shells": 3}, "has a budget, no shells"),
        ({"time_limit": 3.0}, "has a budget, no shells or time limit"),
        ({"budget": 0.0}, "budget"),
        ({"budget": math.nan}, "budget"),
        ({"method": "worst"}, "unknown method 'worst'; known are .*best"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        certify(**options)


def test_proofs_are_those_of_the_step_that_counts(tmp_path: Path) -> None:
    """Exact search here; without time Fast-Lin; sdp, where it has no proofs, is left out and named."""
    network = mlp(5, 8, 6, 4, seed=5)
    images = centres(network, 2)
    for budget in (1e-3, 20.0):
        folder = tmp_path / str(budget)
        answers = relucert.certify(network, images, method="best", budget=budget, proofs=folder)
        for path in folder.iterdir():
            claim = check(path, network)
            assert claim.radius == answers[claim.index].radius
        assert {answer.due_to for answer in answers} <= ({"fast-lin"} if budget < 1 else {"exact", "alpha"})
        assert len(list(folder.iterdir())) == 2


def test_steps_without_proofs_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = mlp(4, 6, 3)
    monkeypatch.setattr("relucert.proofs.files.PROVABLE", ("fast-lin", "crown"))
    (answer,) = relucert.certify(network, centres(network, 1), method="best", budget=5.0, proofs=tmp_path / "proofs")
    assert answer.reason is not None
    assert "alpha was left out, which has no proof files here" in answer.reason


def test_misclassified_images_have_no_climb() -> None:
    network = NETWORKS[NAME]()
    images = centres(network, 1, seed=5)
    label = (int(network.cast(torch.float64)(images).argmax()) + 1) % network.classes
    (answer,) = relucert.certify(network, images, [label], method="best")
    assert answer.radius is None
    assert answer.due_to is None
    assert "misclassified" in str(answer.reason)


def test_an_interruption_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the exact search, too, which by itself would keep its interval."""

    def interrupted(search: ExactSearch) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ExactSearch, "run", interrupted)
    monkeypatch.setattr(best, "STEPS", (CHEAP_STEPS[0], EXACT_STEP))
    network = mlp(4, 8, 3)
    with pytest.raises(KeyboardInterrupt):
        relucert.certify(network, centres(network)[:1], method="best", budget=5)
