"""Long lists of boxes are bounded in batches: the same verdicts, and nothing that happens is excluded."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch

import relucert
from relucert import Query
from relucert.api import verify as api
from relucert.common.progress import silent
from relucert.network import Network
from relucert.verification import many_boxes
from relucert.verification.many_boxes import excluded, listed
from tests.nets import NETWORKS, mlp

FUNCTION = mlp(1, 12, 12, 1, seed=4)
COUNT = 40


def text(network: Network, room: float, seed: int = 0, pairs: bool = False, count: int = COUNT) -> str:
    """That outputs stay near those at the middle of each of many boxes; pairs: two conditions for each violation."""
    generator = torch.Generator().manual_seed(seed)
    inputs, outputs = network.sizes[0], network.classes
    lines = [f"(declare-const X_{index} Real)" for index in range(inputs)]
    lines += [f"(declare-const Y_{index} Real)" for index in range(outputs)] + ["(assert (or"]
    for _ in range(count):
        low = torch.rand(inputs, generator=generator, dtype=torch.float64) * 2 - 1
        high = low + 0.02
        value = float(network.cast(torch.float64)((low + high)[None] / 2)[0, 0])
        box = " ".join(f"(>= X_{i} {low[i]:.12f}) (<= X_{i} {high[i]:.12f})" for i in range(inputs))
        sides = (f"(<= Y_0 {value - room:.12f})", f"(>= Y_0 {value + room:.12f})")
        further = f"(<= (+ Y_0 (* 0.1 X_0)) {value + 9:.12f}) (<= (* 3 Y_0) {3 * value + 30:.12f}) " if pairs else ""
        lines += [f"(and {box} {further}{side})" for side in sides]
    return "\n".join([*lines, "))"])


def steps(room: float, violated: int | None = None) -> str:
    """That a function of one input stays near its extremes on consecutive intervals, as in learned indices."""
    exact, lines = FUNCTION.cast(torch.float64), ["(declare-const X_0 Real)", "(declare-const Y_0 Real)", "(assert (or"]
    for number in range(COUNT):
        low, high = -1 + 2 * number / COUNT, -1 + 2 * (number + 1) / COUNT
        values = exact(torch.linspace(low, high, 501, dtype=torch.float64)[:, None])
        least = float(values.min()) + (room if number == violated else -room)
        sides = f"(<= Y_0 {least:.15f})", f"(>= Y_0 {float(values.max()) + room:.15f})"
        lines += [f"(and (>= X_0 {low:.15f}) (<= X_0 {high:.15f}) {side})" for side in sides]
    return "\n".join([*lines, "))"])


@pytest.mark.parametrize("violated", [None, 0, COUNT - 1])
def test_boxes_that_cheap_bounds_leave_open_are_cut_together(violated: int | None, tmp_path: Any) -> None:
    path = tmp_path / "steps.vnnlib"
    path.write_text(steps(1e-4, violated))
    verdict = relucert.verify(FUNCTION, path)
    assert (verdict.status, verdict.method) == ("holds" if violated is None else "violated", "branch and bound")
    assert verdict.nodes > 0


@pytest.mark.parametrize("room", [1e-3, -1e-3])
def test_few_boxes_that_fix_most_inputs_are_cut_as_what_moves(room: float, monkeypatch: pytest.MonkeyPatch) -> None:
    network = mlp(8, 12, 12, 1, seed=4)
    low, high = [Fraction(-1), *[Fraction(1, 10)] * 7], [Fraction(1), *[Fraction(1, 10)] * 7]
    points = torch.full((501, 8), 0.1, dtype=torch.float64)
    points[:, 0] = torch.linspace(-1, 1, 501)
    least = float(network.cast(torch.float64)(points).min()) - room
    searched: list[object] = []
    monkeypatch.setattr(api, "prove", lambda *given, **options: searched.append(given))
    verdict = relucert.verify(network, Query.within(low, high, [([[1]], [least])]))
    assert verdict.status == ("holds" if room > 0 else "violated")
    assert verdict.method == ("branch and bound" if room > 0 else "attack")
    assert not searched


def test_points_that_meet_simple_constraints_only_are_no_violations(tmp_path: Any) -> None:
    """The queue comes upon them, and descents from them find nothing."""
    path = tmp_path / "half.vnnlib"
    path.write_text(steps(1e-4, 3).replace("(>= X_0", "(>= (+ X_0 Y_0) 1000.0) (>= X_0"))
    verdict = relucert.verify(FUNCTION, path)
    assert (verdict.status, verdict.failed) == ("holds", False)


def query(tmp_path: Any, *given: Any, **options: Any) -> Query:
    path = tmp_path / "many.vnnlib"
    path.write_text(text(*given, **options))
    return Query.read(path)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("room", [0.5, 0.02, 1e-4])
@pytest.mark.sampled
def test_batches_change_no_verdict(room: float, pairs: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = query(tmp_path, FUNCTION, room, pairs=pairs, count=2 * many_boxes.MANY)
    batched = relucert.verify(FUNCTION, asked)
    monkeypatch.setattr(many_boxes, "MANY", 10**9)
    single = relucert.verify(FUNCTION, asked)
    assert batched.status == single.status
    assert batched.status == ("holds" if room == 0.5 else "violated")


@pytest.mark.parametrize("name", ["three layers", "residual", "skipping", "convolutional"])
def test_what_happens_is_not_excluded(name: str, tmp_path: Any) -> None:
    network = NETWORKS[name]()
    asked = query(tmp_path, network, 0.05)
    violations = listed(asked.possible, network.classes)
    assert violations is not None
    closed = excluded(network, violations, float("inf"), silent)
    assert closed
    exact, generator = network.cast(torch.float64), torch.Generator().manual_seed(1)
    for number in closed:
        violation = asked.possible[number]
        low, high = (torch.tensor([float(end) for end in ends]) for ends in (violation.low, violation.high))
        points = low + (high - low) * torch.rand(50, len(low), generator=generator, dtype=torch.float64)
        for point, outputs in zip(points.tolist(), exact(points).tolist(), strict=True):
            numbers = [Fraction(value) for value in point], [Fraction(value) for value in outputs]
            assert not all(one.is_met_by(one.excess(*numbers)) for one in violation.constraints)


def test_time_ends_it(tmp_path: Any) -> None:
    violations = listed(query(tmp_path, FUNCTION, 0.5).possible, FUNCTION.classes)
    assert violations is not None
    assert excluded(FUNCTION, violations, 0.0, silent) == {}
