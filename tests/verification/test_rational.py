"""Outputs in rational arithmetic: what float64 computes up to its rounding, and exact at that."""

from fractions import Fraction

import pytest
import torch

from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.point import scores_at
from relucert.network import BatchScale
from relucert.verification.rational import outputs_at
from tests.nets import NETWORKS, centres


@pytest.mark.parametrize("name", NETWORKS)
def test_rational_outputs_lie_within_the_rounding_of_float64(name: str) -> None:
    network = NETWORKS[name]()
    point = centres(network, 1).double()
    outputs = outputs_at(network, [Fraction(number) for number in point[0].tolist()])
    if any(isinstance(node.operation, BatchScale) for node in network.nodes):
        assert outputs is None
        return
    assert outputs is not None
    scores, errors = scores_at(network.cast(torch.float64), point, RIGOROUS)
    for output, score, error in zip(outputs, scores[0].tolist(), errors[0].tolist(), strict=True):
        assert abs(output - Fraction(score)) <= Fraction(error)


def test_points_may_be_any_fractions() -> None:
    network = NETWORKS["residual"]()
    third = [Fraction(1, 3)] * network.sizes[0]
    outputs = outputs_at(network, third)
    assert outputs is not None
    assert any(number.denominator % 3 == 0 for number in outputs)
