"""Time limits: one deadline around all work on an answer, and answers that are there when it ends, whatever the stage.

The clock of these tests is moved by work alone, so that a stage that never looks at it is found on any machine.
"""

from __future__ import annotations

import math
import threading
import time

import pytest
import torch

import relucert
from relucert.common.deadline import TimeUp, check_time, until
from relucert.search import portfolio
from relucert.verification.specification.query import Query
from relucert.verification.witness_check import WitnessCheck
from tests.nets import mlp
from tests.work_clock import work_clock

NETWORK = mlp(20, 50, 50, 50, 4, seed=3)
IMAGE = torch.randn(1, 20, generator=torch.Generator().manual_seed(1))
RADIUS = 0.19  # twice what linear bounds prove, and nearer than any violation that is known
SPEED = 1e6  # multiplications a second: the bounds of all layers take some fifteen
LATE = "the time limit ended the search"


def test_a_deadline_ends_work_within_it_only() -> None:
    check_time()
    with until(time.monotonic() + 60):
        check_time()
        with pytest.raises(TimeUp):
            check_time(3600)
        with pytest.raises(TimeUp), until(time.monotonic() - 1):
            check_time()
        check_time()
    check_time(3600)


def test_the_earlier_of_two_deadlines_counts() -> None:
    with until(time.monotonic() - 1), until(math.inf), pytest.raises(TimeUp):
        check_time()


def test_another_thread_has_time_of_its_own() -> None:
    ended: list[bool] = []

    def work() -> None:
        check_time()
        ended.append(True)

    with until(time.monotonic() - 1):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert ended == [True]


def on_time(seconds: float, limit: float) -> bool:
    return seconds <= 1.05 * limit + 1


def test_verdicts_come_on_time_from_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = set()
    for limit in (0.1, 6.0, 12.0, 24.0, 48.0):
        with work_clock(monkeypatch, SPEED) as clock:
            (verdict,) = relucert.robust_at(NETWORK, IMAGE, radius=RADIUS, time_limit=limit)
            assert on_time(clock(), limit)
        assert verdict.status == "unknown"
        assert verdict.reason == LATE
        assert not verdict.failed
        stages.add(verdict.stage)
    assert {"root", "tree", "refinement"} <= stages


@pytest.mark.parametrize("limit", [0.1, 6.0, 30.0])
def test_properties_are_decided_on_time(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = (IMAGE[0] - RADIUS).tolist(), (IMAGE[0] + RADIUS).tolist()
    label = int(NETWORK(IMAGE).argmax())
    forms = [[1.0 if place == label else -1.0 if place == rival else 0.0 for place in range(4)] for rival in range(4)]
    query = Query.within(low, high, [([forms[rival]], [0.0]) for rival in range(4) if rival != label])
    with work_clock(monkeypatch, SPEED) as clock:
        verdict = relucert.verify(NETWORK, query, time_limit=limit)
        assert on_time(clock(), limit)
    assert (verdict.status, verdict.reason, verdict.failed) == ("unknown", LATE, False)


@pytest.mark.parametrize("limit", [1.0, 12.0, 60.0])
def test_exact_answers_come_on_time(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portfolio, "MOMENT", 0)
    with work_clock(monkeypatch, SPEED) as clock:
        (answer,) = relucert.exact(NETWORK, IMAGE, time_limit=limit)
        assert on_time(clock(), limit)
    assert not answer.failed
    assert not answer.closed
    assert "time limit" in str(answer.reason)


@pytest.mark.parametrize("budget", [1.0, 12.0, 60.0])
def test_the_budget_of_best_is_kept(budget: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portfolio, "MOMENT", 0)
    with work_clock(monkeypatch, SPEED) as clock:
        (answer,) = relucert.certify(NETWORK, IMAGE, method="best", budget=budget)
        assert on_time(clock(), budget)
    assert not answer.failed
    assert "budget" in str(answer.reason)


def test_what_was_proven_when_time_ended_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    (fast_lin,) = relucert.certify(NETWORK, IMAGE, method="fast-lin")
    with work_clock(monkeypatch, SPEED):
        (answer,) = relucert.certify(NETWORK, IMAGE, method="best", budget=60.0)
    assert answer.radius is not None
    assert fast_lin.radius is not None
    assert answer.radius >= fast_lin.radius


def test_small_networks_have_a_radius_whatever_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    (fast_lin,) = relucert.certify(NETWORK, IMAGE, method="fast-lin")
    with work_clock(monkeypatch, SPEED / 1000):
        (answer,) = relucert.certify(NETWORK, IMAGE, method="best", budget=0.1)
    assert answer.radius == fast_lin.radius


def test_a_budget_that_proves_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portfolio, "MOMENT", 0)
    with work_clock(monkeypatch, SPEED / 1000):
        (answer,) = relucert.certify(NETWORK, IMAGE, method="best", budget=0.1)
    assert answer.radius is None
    assert "before any radius was proven" in str(answer.reason)


@pytest.mark.parametrize("polish", [True, False])
@pytest.mark.parametrize("limit", [0.5, 6.0])
def test_attacks_end_on_time(limit: float, polish: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with work_clock(monkeypatch, SPEED) as clock:
        (answer,) = relucert.attack(NETWORK, IMAGE, time_limit=limit, polish=polish)
        assert on_time(clock(), limit)
    assert not answer.failed
    assert "time limit" in str(answer.reason)


def test_no_mode_of_pytorch_is_left_behind_when_time_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where it ends while the prover, which needs no gradients, has a point examined."""
    low, high = (IMAGE[0] - 1).tolist(), (IMAGE[0] + 1).tolist()
    label = int(NETWORK(IMAGE).argmax())
    row = [1.0 if place == label else -1.0 if place == (label + 1) % 4 else 0.0 for place in range(4)]
    examined: list[bool] = []

    def late(*arguments: object) -> None:
        if not torch.is_grad_enabled():
            examined.append(True)
            if len(examined) == 2:  # what a descent came to
                raise TimeUp

    monkeypatch.setattr(WitnessCheck, "examine", late)
    verdict = relucert.verify(NETWORK, Query.within(low, high, [([row], [0.0])]), time_limit=60)
    assert verdict.reason == LATE
    assert len(examined) == 2
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
