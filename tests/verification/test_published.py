"""Published instances: no verdict contradicts what several tools agreed on, and every witness can be replayed."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from relucert import Query, Verdict, verify
from relucert.checker.check import check_property
from tests.verification.networks import VNNCOMP, Published, published

MISLISTED = ("test_nano", "property_N=8_0", "property_N=8_1", "property_N=8_2", "property_N=8_3")
"""Whose verdict in the list can't be true: the tests of them show it without this library's help."""

HARD = ("hyperrectangle_5345", "hyperrectangle_6819")  # seconds of branch and bound
MEANING = {"sat": "violated", "unsat": "holds"}


@cache
def session_of(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path)


def replay(instance: Published, point: list[float]) -> list[Fraction]:
    """What onnxruntime gives, in code that shares nothing with the library."""
    session = session_of(instance.onnx)
    (source,) = session.get_inputs()
    shape = [size if isinstance(size, int) else 1 for size in source.shape]
    (outputs,) = session.run(None, {source.name: np.array(point, dtype=np.float32).reshape(shape)})
    return [Fraction(float(number)) for number in outputs.flatten()]


def check_verdict(instance: Published, verdict: Verdict) -> None:
    if verdict.status != "unknown" and instance.verdict and instance.vnnlib.stem not in MISLISTED:
        assert verdict.status == MEANING[instance.verdict], (instance.vnnlib.name, verdict)
    if verdict.coordinates is not None and verdict.witness is not None:
        outputs = replay(instance, verdict.witness.flatten().tolist())
        assert any(
            all(low <= x <= high for low, x, high in zip(one.low, verdict.coordinates, one.high, strict=True))
            and all(constraint.excess(verdict.coordinates, outputs) <= 0 for constraint in one.constraints)
            for one in Query.read(instance.vnnlib).violations
        )


def test_safenlp() -> None:
    easy = [one for one in published("safenlp") if one.vnnlib.stem not in HARD]
    assert len(easy) == 10
    for instance in easy:
        verdict = verify(instance.onnx, instance.vnnlib, time_limit=300)  # of a machine that may be busy
        assert verdict.status != "unknown", verdict
        check_verdict(instance, verdict)


def test_the_competitions_own_tests(tmp_path: Path) -> None:
    for instance in published("test"):
        proof = tmp_path / f"{instance.vnnlib.stem}.json"
        assert verify(instance.onnx, instance.vnnlib, time_limit=300, proof=proof).holds
        assert check_property(proof, str(instance.onnx)).cases == 1


def test_what_is_listed_agrees_with_plain_points() -> None:
    """By onnxruntime alone: y = relu(x / 2) is never at most -1; at plain points three violations are met; and one is
    far from every output on a grid, and proven impossible."""
    nano = published("test")[0]
    assert nano.verdict == "unsat"
    assert [replay(nano, [x])[0] for x in (-1.0, 0.0, 1.0)] == [0, 0, Fraction(1, 2)]
    listed = {one.vnnlib.stem.removeprefix("property_N="): one for one in published("tllverifybench")}
    grid = [[x / 4, y / 4] for x in range(-8, 9) for y in range(-8, 9)]
    least = {}
    for name in ("8_0", "8_1", "8_2", "8_3"):
        ((constraint,),) = (one.constraints for one in Query.read(listed[name].vnnlib).violations)
        least[name] = min(constraint.excess([], replay(listed[name], point)) for point in grid)
    assert {name: float(excess) <= 0 for name, excess in least.items()} == {
        "8_0": True, "8_1": True, "8_2": True, "8_3": False,
    }  # fmt: skip
    assert [listed[name].verdict for name in least] == ["sat", "sat", "sat", "unsat"]
    assert verify(listed["8_3"].onnx, listed["8_3"].vnnlib, time_limit=300).holds


def test_lattice_networks_with_violations() -> None:
    for instance in published("tllverifybench"):
        if instance.vnnlib.stem not in ("property_N=8_3", "property_N=16_0"):
            verdict = verify(instance.onnx, instance.vnnlib, time_limit=300)
            assert verdict.status == "violated"
            check_verdict(instance, verdict)


def test_satisfiable_formulas_have_witnesses() -> None:
    """They lie on corners, and meet their constraints exactly: only rational arithmetic can tell."""
    for instance in published("sat_relu"):
        if instance.verdict == "sat" and instance.vnnlib.stem != "sat_v94_c313":
            verdict = verify(instance.onnx, instance.vnnlib, time_limit=300)
            assert verdict.status == "violated"
            check_verdict(instance, verdict)


@pytest.mark.slow
@pytest.mark.parametrize(
    "benchmark", ["acasxu", "safenlp", "sat_relu", "tllverifybench", "oval21", "resnet", "verivital"]
)
def test_no_verdict_contradicts_the_list(benchmark: str) -> None:
    for instance in published(benchmark)[:24]:
        check_verdict(instance, verify(instance.onnx, instance.vnnlib, time_limit=min(10.0, instance.seconds)))


@pytest.mark.parametrize("number", [1, 3, 7])
def test_both_versions_of_the_format_get_the_same_verdict(number: int) -> None:
    pytest.importorskip("vnnlib", reason="VNN-LIB 2.0 needs the package vnnlib")
    network = VNNCOMP / "acasxu" / "onnx" / "ACASXU_run2a_1_9_batch_2000.onnx"
    if not network.exists():
        pytest.skip("the published instances are not beside the project (shared/vnncomp)")
    one, two = (
        verify(network, VNNCOMP / "acasxu" / folder / f"prop_{number}.vnnlib", time_limit=3)
        for folder in ("vnnlib", "vnnlib-2.0")
    )
    assert {one.status, two.status} in ({one.status}, {one.status, "unknown"}, {two.status, "unknown"})
    assert any("float32" in remark for remark in two.remarks)
