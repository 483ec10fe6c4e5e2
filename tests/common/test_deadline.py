"""Time limits: one deadline around all work on an answer, and answers that are there when it ends, whatever the stage.

The clock of these tests is moved by work alone, so that a stage that never looks at it is found on any machine.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import relucert
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding import point
from relucert.common.deadline import TimeUp, check_time, until
from relucert.common.names import MethodName
from relucert.network import Convolution, Linear, Units
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
    for limit in (0.1, 6.0, 42.0, 60.0, 285.0):
        with work_clock(monkeypatch, SPEED) as clock:
            (verdict,) = relucert.robust_at(NETWORK, IMAGE, radius=RADIUS, time_limit=limit)
            assert on_time(clock(), limit)
        assert verdict.status == "unknown"
        assert verdict.reason == LATE
        assert not verdict.failed
        stages.add(verdict.stage)
    assert {"root", "tree", "certificates", "refinement"} <= stages


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


@pytest.mark.parametrize("budget", [1.0, 12.0, pytest.param(60.0, marks=pytest.mark.slow)])
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
        (answer,) = relucert.certify(NETWORK, IMAGE, method="best", budget=12.0)
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


@pytest.mark.parametrize("batch", [(100,), (4, 25)])
@pytest.mark.parametrize("kind", ["linear", "convolution", "transposed convolution"])
def test_products_of_many_rows_end_on_time(kind: str, batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer may take longer than a whole time limit: a hundred seconds here."""
    monkeypatch.setattr("relucert.network.linear.CHUNK_WORK", 2**10)
    monkeypatch.setattr("relucert.network.convolution.CHUNK_BYTES", 2**10)
    generator = torch.Generator().manual_seed(0)
    kernels = torch.randn(3, 2, 2, 2, generator=generator)
    convolution = Convolution(kernels, torch.zeros(3), (4, 4), (1, 1), (0, 0, 0, 0), (1, 1), 1)
    matrix = Linear(torch.randn(5, 32, generator=generator), torch.zeros(5))
    layers: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...], Callable[[Tensor], Tensor]]] = {
        "linear": (matrix.linear, (32,), lambda rows: rows @ matrix.weight.T),
        "convolution": (convolution.linear, (2, 4, 4), _by_library(functional.conv2d, kernels)),
        "transposed convolution": (
            lambda rows: convolution.transpose(rows)[0], (3, 3, 3), _by_library(functional.conv_transpose2d, kernels),
        ),
    }  # fmt: skip
    apply, size, whole = layers[kind]
    rows = torch.randn(*batch, *size, generator=generator)
    torch.testing.assert_close(apply(rows), whole(rows))
    with work_clock(monkeypatch, 1e6) as measured:
        apply(rows)
        work = measured()
    with work_clock(monkeypatch, 1e6 * work / 100) as clock, pytest.raises(TimeUp), until(10):
        apply(rows)
    assert clock() < 15


@pytest.mark.parametrize("indices", [None, torch.tensor([1, 3, 4, 9, 17, 30])])
def test_unit_forms_are_spread_on_time(indices: Tensor | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As rows, the unit forms of a large layer take longer than a whole time limit, and may be larger than memory."""
    generator = torch.Generator().manual_seed(0)
    kernels = torch.randn(3, 2, 2, 2, generator=generator)
    convolution = Convolution(kernels, torch.zeros(3), (4, 4), (1, 1), (0, 0, 0, 0), (1, 1), 1)
    count = 32 if indices is None else len(indices)
    units = Units(indices, torch.rand(2, count, generator=generator))
    whole = convolution.spread(units, (2, 4, 4), torch.float32)
    monkeypatch.setattr("relucert.network.operation.CHUNK_BYTES", 2**9)
    parts = convolution.spread(units, (2, 4, 4), torch.float32)
    assert isinstance(whole, Tensor)
    assert isinstance(parts, Tensor)
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(whole, convolution.linear(units.dense(32, torch.float32).unflatten(-1, (2, 4, 4))))
    with work_clock(monkeypatch, 1e6) as measured:
        convolution.spread(units, (2, 4, 4), torch.float32)
        work = measured()
    with work_clock(monkeypatch, 1e6 * work / 100) as clock, pytest.raises(TimeUp), until(10):
        convolution.spread(units, (2, 4, 4), torch.float32)
    assert clock() < 60


def _by_library(function: Callable[[Tensor, Tensor], Tensor], kernels: Tensor) -> Callable[[Tensor], Tensor]:
    def apply(images: Tensor) -> Tensor:
        result = function(images.flatten(0, -4), kernels)
        return result.reshape(*images.shape[:-3], *result.shape[1:])

    return apply


@pytest.mark.parametrize("method", ["fast-lin", "crown"])
def test_many_rows_are_bounded_part_by_part(method: MethodName, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand classes, the forms of all rows at once may be larger than memory."""
    (whole,) = relucert.certify(NETWORK, IMAGE, method=method)
    monkeypatch.setattr("relucert.methods.linear.ROW_BYTES", 1)
    (parts,) = relucert.certify(NETWORK, IMAGE, method=method)
    assert whole.radius is not None
    assert parts.radius == pytest.approx(whole.radius, rel=1e-3)
    assert parts.target == whole.target


@pytest.mark.parametrize("polish", [True, False])
def test_what_an_attack_found_is_checked_on_time(polish: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of one point may take as long as many steps of an attack: forty seconds here."""
    evaluate = point.scores_at

    def slow(network: relucert.Network, points: Tensor, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
        for _ in range(40):
            torch.zeros(int(SPEED))  # a second
            check_time()
        return evaluate(network, points, arithmetic)

    monkeypatch.setattr(point, "scores_at", slow)
    with work_clock(monkeypatch, SPEED) as clock:
        (answer,) = relucert.attack(NETWORK, IMAGE, time_limit=20, polish=polish)
        assert on_time(clock(), 20)
    assert not answer.failed
    assert answer.distance is None
    assert "time limit" in str(answer.reason)


def test_points_are_checked_as_few_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a large network one after the other, from the nearest on."""
    (whole,) = relucert.attack(NETWORK, IMAGE, polish=False)
    counts: list[int] = []
    evaluate = point.scores_at

    def counting(network: relucert.Network, points: Tensor, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
        counts.append(len(points))
        return evaluate(network, points, arithmetic)

    monkeypatch.setattr(point, "scores_at", counting)
    monkeypatch.setattr("relucert.attacks.witness.POINT_BYTES", 1)
    (single,) = relucert.attack(NETWORK, IMAGE, polish=False)
    assert single.distance == whole.distance
    assert set(counts) == {1}
