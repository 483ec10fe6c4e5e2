"""Bounds in rational arithmetic: never above what is sampled, and exact where a property is only touched."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from relucert import Query, verify
from relucert.network import Linear, Relu
from relucert.verification.rational import outputs_at
from relucert.verification.rational_bounds import STEEP, _Forms, impossible
from relucert.verification.specification.version_one import parse
from tests.nets import chain, mlp
from tests.verification.networks import absolute, as_onnx

NEVER = math.inf
ONE = "(declare-const X_0 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"


@pytest.mark.parametrize(
    ("text", "excluded"),
    [
        ("(< Y_0 0)", True),  # |x| < 0
        ("(< Y_0 Y_1)", True),  # |x| < x
        ("(< Y_0 X_0)", False),  # impossible, but by lines of different slopes
        ("(> Y_0 1)", True),  # reached at -1
        ("(> Y_0 0.999)", False),
        ("(<= Y_0 0)", False),
        ("(> Y_1 0.5)", True),
        ("(>= Y_1 0.5)", False),
        ("(> X_0 0) (<= Y_1 0)", True),
        ("(>= X_0 0) (<= Y_1 0)", False),
        ("(< X_0 0.5) (>= Y_1 0.5)", True),
        ("(< X_0 0.5) (>= Y_1 0.5) (<= Y_0 9)", True),
        ("(< Y_0 0.1) (> Y_1 0.1)", False),  # impossible, but by both at once
    ],
)
def test_what_is_touched_is_excluded_and_what_is_met_is_not(text: str, excluded: bool) -> None:
    box = "(assert (>= X_0 -1)) (assert (<= X_0 0.5))"
    (violation,) = parse(ONE + box + f"(assert (and {text}))").violations
    assert impossible(absolute(), violation, NEVER) == excluded


@pytest.mark.parametrize("seed", range(4))
def test_forms_bound_what_they_are_about(seed: int) -> None:
    """At points of the box, in rational arithmetic on both sides."""
    network, generator = mlp(2, 6, 5, 2, seed=seed), torch.Generator().manual_seed(seed)
    (violation,) = Query.within([-1, Fraction(-1, 3)], [Fraction(1, 10), 1], [([[1, 0]], [0])], strict=True).violations
    forms = _Forms(network, violation, NEVER)
    outputs = forms.outputs()
    assert outputs is not None
    assert forms.unstable
    points = torch.rand(30, 2, generator=generator, dtype=torch.float64).tolist()
    for place in range(2):
        least = max(forms.least(outputs[place], steep).bound for steep in STEEP)
        negative = {term: -number for term, number in outputs[place].items()}
        most = -max(forms.least(negative, steep).bound for steep in STEEP)
        for point in points:
            ends = zip(violation.low, violation.high, point, strict=True)
            exact = outputs_at(network, [low + (high - low) * Fraction(share) for low, high, share in ends])
            assert exact is not None
            assert least <= exact[place] <= most


def test_ends_that_are_exact_are_reached() -> None:
    """The least value of a network without unstable is exact, to the last digit."""
    network = chain((2,), Linear(torch.tensor([[0.1, -0.3]]), torch.tensor([0.7])), Relu())
    tenth, third = Fraction(1, 10), Fraction(1, 3)
    exact = outputs_at(network, [tenth, third])
    assert exact is not None
    (least,) = exact
    for bound, excluded in ((least, True), (least + Fraction(1, 10**40), False)):
        query = Query.within([tenth, 0], [1, third], [([[1]], [bound])], strict=True)
        assert impossible(network, query.violations[0], NEVER) == excluded


def test_time_and_size_end_it() -> None:
    (violation,) = Query.within([0] * 3, [1] * 3, [([[1, 0]], [0])], strict=True).violations
    assert not impossible(mlp(3, 8, 2), violation, 0.0)
    assert not impossible(mlp(3, 800, 2), violation, NEVER)


@pytest.mark.parametrize(("relation", "status"), [("<", "holds"), ("<=", "violated or unknown")])
def test_what_equal_networks_differ_by_cancels(relation: str, status: str, tmp_path: Path) -> None:
    pytest.importorskip("vnnlib", reason="VNN-LIB 2.0 needs the package vnnlib")
    network, path = as_onnx(mlp(2, 6, 2, seed=4), tmp_path / "network.onnx"), tmp_path / "property.vnnlib"
    path.write_text(f"""(vnnlib-version <2.0>)
(declare-network f (declare-input X real [1, 2]) (declare-output Y real [1, 2]))
(declare-network g (equal-to f) (declare-input U real [1, 2]) (declare-output V real [1, 2]))
(assert (and (>= X[0,0] 0.0) (<= X[0,0] 1.0) (>= X[0,1] 0.0) (<= X[0,1] 1.0)))
(assert (and (>= U[0,0] 0.0) (<= U[0,0] 1.0) (>= U[0,1] 0.0) (<= U[0,1] 1.0)))
(assert (and (== X[0,0] U[0,0]) (== U[0,1] X[0,1])))
(assert ({relation} Y[0,1] V[0,1]))
""")
    verdict = verify(network, path, time_limit=5)
    assert verdict.status in status
    assert verdict.method in ("rational arithmetic", "attack", "branch and bound", None)
