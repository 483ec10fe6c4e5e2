"""Bounds of networks as they are evaluated, in the checker's own arithmetic: every evaluation is within them."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch

from relucert.checker.claim import INFERENCES
from relucert.checker.document import Proof, Rejected
from relucert.checker.lines import BOUND_BITS
from relucert.checker.noise import PRECISIONS
from relucert.checker.tree_check import TreeCheck
from relucert.checker.trees import BoundingRule, by_rule
from relucert.errors import InputError
from relucert.network import BatchScale, Linear, Network, Shift
from relucert.network.inference import INFERENCES as FOUND
from tests.float_evaluation import ORDERS, Evaluation
from tests.nets import NETWORKS, centres, chain

UNIT = 1 << BOUND_BITS
RADIUS = 2.0**-22  # so small that rounding is felt


def proof_of(network: Network, inference: str, radius: float = RADIUS, rule: str = "crown") -> Proof:
    centre = centres(network, 1)[0].float().double()
    rows = torch.eye(network.classes, dtype=torch.float64).tolist()
    return Proof(
        name="", sha256="", index=0, image=centre.tolist(), rows=rows, offsets=[0.0] * len(rows), norm=math.inf,
        box=None, scale=None, radius=radius, inference=inference, activation_ulps=None,
        relaxation=by_rule(BoundingRule(rule, "all")),
    )  # fmt: skip


def points_of(proof: Proof, count: int = 5) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """float32 points of the region, the first of them its centre."""
    centre = np.array(proof.image)
    steps = np.random.default_rng(0).uniform(-1, 1, (count, len(centre)))
    steps[0] = 0
    points = (centre + 0.5 * proof.radius * steps).astype(np.float32).astype(np.float64)
    assert np.abs(points - centre).max() <= proof.radius
    return points


def bounded(network: Network, proof: Proof) -> tuple[TreeCheck, list[Fraction]]:
    """With the bounds of all neurons, and those of the rows."""
    found = TreeCheck.of(network, proof, proof.relaxation)
    return found, found.margins()


@cache
def bounded_by_name(name: str, rule: str) -> tuple[Proof, TreeCheck, list[Fraction]]:
    """The same for a network of the table, as it is evaluated in float32, with the proof that has the region."""
    network = NETWORKS[name]()
    proof = proof_of(network, "float32", rule=rule)
    return proof, *bounded(network, proof)


def misses(network: Network, proof: Proof, evaluation: Evaluation, found: TreeCheck, margins: list[Fraction]) -> int:
    """How many computed numbers are outside the bounds, exactly."""
    values = evaluation.values(network, points_of(proof))
    count = 0
    for value, interval in found.bounds.items():
        for point in values[value].tolist():
            for number, low, high in zip(point, interval.lower, interval.upper, strict=True):
                numerator, denominator = number.as_integer_ratio()
                count += not low * denominator <= numerator * UNIT <= high * denominator
    for margin, number in zip(margins, zip(*values[-1].tolist(), strict=True), strict=True):
        count += any(Fraction(one) < margin for one in number)
    return count


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_evaluation_is_within_the_bounds(name: str, order: str) -> None:
    network = NETWORKS[name]()
    for rule in ("fast-lin", "crown", "interval"):
        proof, found, margins = bounded_by_name(name, rule)
        for fused in (False, True):
            evaluation = Evaluation(ORDERS[order], fused=fused, flushed=fused)
            assert misses(network, proof, evaluation, found, margins) == 0


def test_without_noise_some_are_not() -> None:
    missed = 0
    for name in ("five layers", "convolutional", "image residual"):
        network = NETWORKS[name]()
        proof = proof_of(network, "real", radius=2.0**-30)
        missed += misses(network, proof, Evaluation(ORDERS["sequential"]), *bounded(network, proof))
    assert missed > 0


def test_precisions_are_those_that_are_asked_about() -> None:
    assert set(PRECISIONS) == set(INFERENCES) == set(FOUND)
    for name, precision in PRECISIONS.items():
        if precision is not None:
            limits = torch.finfo(precision.dtype)
            assert precision.unit == Fraction(limits.eps) / 2 == Fraction(FOUND[name].unit)
            assert precision.smallest == Fraction(limits.smallest_normal)
            assert precision.largest == Fraction(limits.max)
            assert precision.underflow == Fraction(FOUND[name].underflow)


def test_what_says_nothing_is_rejected() -> None:
    network = NETWORKS["three layers"]()
    wide = chain((3000,), Linear(torch.ones(2, 3000, dtype=torch.float16), torch.zeros(2, dtype=torch.float16)))
    large = chain((2,), Linear(torch.full((2, 2), 3e38), torch.zeros(2)))
    long = chain((2,), Linear(torch.full((2, 2), 0.1, dtype=torch.float64), torch.zeros(2)))
    for asked, inference, reason in (
        (network, "bfloat16", "numbers that bfloat16 has not"),
        (long, "float32", "numbers that float32 has not"),
        (wide, "float16", "may lose all"),
        (large, "float32", "may overflow"),
        (replace(network, real_only=("it casts",)), "float32", "casts"),
    ):
        with pytest.raises(Rejected, match=reason):
            bounded(asked, proof_of(asked, inference))


def test_offsets_may_be_rounded() -> None:
    """An offset that float32 does not have is one of the roundings, as it is a number in a program."""
    network = chain((2,), Shift(torch.tensor([0.1, 0.2], dtype=torch.float64)))
    proof = proof_of(network, "float32")
    assert misses(network, proof, Evaluation(ORDERS["sequential"]), *bounded(network, proof)) == 0


def test_negative_variances_are_refused() -> None:
    """Next to minus epsilon the sum with it loses all of its digits, which roundings of the parts do not tell."""
    norm = BatchScale(torch.tensor([1.0, 1.0]), torch.tensor([-0.99999e-5, 0.5]), 1e-5)
    network = chain((2,), norm)
    assert FOUND["float32"].divides_by(norm.variance.double() + norm.epsilon)
    with pytest.raises(InputError, match="negative variance"):
        network.evaluated_in(FOUND["float32"])
    with pytest.raises(Rejected, match="negative variance"):
        bounded(network, proof_of(network, "float32"))
    single = norm.variance + torch.tensor(norm.epsilon, dtype=torch.float32)
    real = norm.variance.double() + norm.epsilon
    assert abs(float(single[0] / real[0]) - 1) > 1e-3, "which 13 roundings do not explain"
    bounded(network, proof_of(network, "real"))
    network.evaluated_in(FOUND["real"])
