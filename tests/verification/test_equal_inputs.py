"""Inputs that a query sets equal are one; two networks of equal structure are compared neuron by neuron."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
import torch

from relucert import Query, verify
from relucert.answers.verdicts import LATE
from relucert.common.deadline import TimeUp
from relucert.inputs.loading.runtime import runtime_of
from relucert.network import Linear, Network
from relucert.verification.equal_inputs import MergedInputs, merge_equal_inputs
from tests.nets import mlp
from tests.verification.networks import as_onnx

Rows = list[tuple[list[list[int]], list[float]]]
EQUAL = [[1, 0, -1, 0], [-1, 0, 1, 0]]  # x_0 and x_2


def _merged(low: list[float], high: list[float], violations: Rows) -> MergedInputs:
    """The question whose violations are rows on the inputs, with their bounds."""
    network = mlp(4, 5, 2)
    query = Query.within(low, high, [([[0, 0]] * len(bounds), bounds, rows) for rows, bounds in violations])
    return merge_equal_inputs(network, query, runtime_of(network, network))


def test_equal_inputs_are_one_within_both_boxes() -> None:
    further = [*EQUAL, [1, 1, 1, 0]]
    question = _merged([0, 0, -1, 0], [2, 1, 1, 1], [(further, [0, 0, 0.5])])
    assert question.places == (0, 1, 0, 2)
    (violation,) = question.query.violations
    assert list(map(int, violation.low)) == [0, 0, 0]
    assert list(map(int, violation.high)) == [1, 1, 1]
    (left,) = violation.constraints
    assert left.inputs == ((0, 2), (1, 1))
    points = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    expected = mlp(4, 5, 2)(points[:, list(question.places)])
    torch.testing.assert_close(question.network(points), expected)
    torch.testing.assert_close(question.replay.run(points[0]), expected[0])
    assert list(map(int, question.original((Fraction(1), Fraction(2), Fraction(3))))) == [1, 2, 1, 3]


@pytest.mark.parametrize(
    "violations",
    [
        [(EQUAL[:1], [0])],  # one side only
        [(EQUAL, [0, 0.5])],  # half apart
        [(EQUAL, [0, 0]), ([[1, 1, 1, 1]], [0])],  # in one of two violations
        [([[1, 0, -2, 0], [-1, 0, 2, 0]], [0, 0])],
    ],
)
def test_other_inputs_stay_apart(violations: Rows) -> None:
    assert _merged([0] * 4, [1] * 4, violations).places == (0, 1, 2, 3)


@pytest.mark.parametrize("module", ["verification.equal_inputs", "network.split_neurons"])
def test_a_limit_that_ends_within_the_reduction_leaves_the_question_open(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late() -> None:
        raise TimeUp

    monkeypatch.setattr(f"relucert.{module}.check_time", late)
    query = Query.within([0] * 4, [1] * 4, [([[0, 0], [0, 0], [1, 0]], [0, 0, -9], [*EQUAL, [0] * 4])])
    verdict = verify(mlp(4, 5, 2), query, time_limit=60, workers=1)
    assert (verdict.status, verdict.reason, verdict.failed) == ("unknown", LATE, False)
    monkeypatch.undo()
    assert verify(mlp(4, 5, 2), query, time_limit=60, workers=1).holds


def test_boxes_that_do_not_meet_leave_no_violation() -> None:
    assert not _merged([0, 0, 2, 0], [1, 1, 3, 1], [(EQUAL, [0, 0])]).query.violations
    impossible = [*EQUAL, [1, -1, 0, 0], [-1, 1, 0, 0], [0, 1, -1, 0]]  # x_1 - x_2 is at most -1
    assert not _merged([0] * 4, [9] * 4, [(impossible, [0, 0, 0, 0, -1])]).query.violations


TWO = """(vnnlib-version <2.0>)
(declare-network N (declare-input X real [1, 3]) (declare-output Y real [1, 2]))
(declare-network M (isomorphic-to N) (declare-input U real [1, 3]) (declare-output V real [1, 2]))
(assert (and (>= X[0,0] -1.0) (<= X[0,0] 1.0) (>= X[0,1] -1.0) (<= X[0,1] 1.0) (>= X[0,2] -1.0) (<= X[0,2] 1.0)))
(assert (and (>= U[0,0] -1.0) (<= U[0,0] 1.0) (>= U[0,1] -1.0) (<= U[0,1] 1.0) (>= U[0,2] -1.0) (<= U[0,2] 1.0)))
(assert (and (== X[0,0] U[0,0]) (== X[0,1] U[0,1]) (== X[0,2] U[0,2])))
"""


def _perturbed(network: Network, size: float) -> Network:
    generator = torch.Generator().manual_seed(7)
    operations = {
        value: Linear(
            node.operation.weight * (1 + size * torch.randn(node.operation.weight.shape, generator=generator)),
            node.operation.bias,
        )
        for value, node in network.steps()
        if isinstance(node.operation, Linear)
    }
    return network.with_operations({value: operations.get(value, node.operation) for value, node in network.steps()})


@pytest.mark.parametrize(("size", "status"), [(1e-4, "holds"), (0.3, "violated")])
def test_a_perturbed_copy(tmp_path: Path, size: float, status: str) -> None:
    pytest.importorskip("vnnlib", reason="VNN-LIB 2.0 needs the package vnnlib")
    network = mlp(3, 16, 16, 16, 2, seed=4)
    paths = {"N": as_onnx(network, tmp_path / "n.onnx"), "M": as_onnx(_perturbed(network, size), tmp_path / "m.onnx")}
    apart = " ".join(f"(> Y[0,{i}] (+ V[0,{i}] 0.05)) (> V[0,{i}] (+ Y[0,{i}] 0.05))" for i in range(2))
    query = tmp_path / "property.vnnlib"
    query.write_text(f"{TWO}(assert (or {apart}))")
    verdict = verify(paths, query, time_limit=60)
    assert verdict.status == status, verdict
    if verdict.witness is not None:
        assert verdict.coordinates is not None
        assert len(verdict.coordinates) == 6
        assert verdict.coordinates[:3] == verdict.coordinates[3:]
        assert "onnxruntime" in str(verdict.reason)
