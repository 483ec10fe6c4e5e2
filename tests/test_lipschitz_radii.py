"""Radii by Lipschitz constants: never beyond an adversarial point, and in the order that theory gives."""

from functools import cache
from typing import Any

import pytest
import torch

import relucert
from relucert.norm import Norm
from tests.adversaries import nearest_distance
from tests.methods import LIPSCHITZ
from tests.nets import NETWORKS, NORMS, centres

NAMES = ("two layers", "three layers", "residual", "normalised")
COUNT = 3


@cache
def adversaries(name: str, norm: float) -> list[float]:
    network = NETWORKS[name]()
    points = centres(network, COUNT, seed=5)
    labels = network.cast(torch.float64)(points).argmax(1).tolist()
    return [nearest_distance(network, point, label, Norm(norm)) for point, label in zip(points, labels, strict=True)]


def radii(name: str, norm: float, **options: Any) -> list[float]:
    network = NETWORKS[name]()
    answers = relucert.certify(network, centres(network, COUNT, seed=5), norm=norm, **options)
    assert all(answer.proven and answer.method == options["method"] for answer in answers)
    return [answer.radius or 0.0 for answer in answers]


@pytest.mark.parametrize("method", LIPSCHITZ)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NAMES)
def test_no_adversarial_point_is_nearer(name: str, norm: float, method: str) -> None:
    distances = adversaries(name, norm)
    assert min(distances) < float("inf")
    for radius, distance in zip(radii(name, norm, method=method), distances, strict=True):
        assert 0 < radius < distance


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NAMES)
def test_shells_gain(name: str, norm: float) -> None:
    plain, split = (radii(name, norm, method="fast-lip", shells=shells) for shells in (1, 30))
    for one, other in zip(plain, split, strict=True):
        assert one <= other * (1 + 2e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_for_two_layers_components_beat_neurons(norm: float) -> None:
    methods: list[dict[str, Any]] = [{"method": name, "shells": 1} for name in ("fast-lip", "lipschitz-norm")]
    components, neurons = (radii("two layers", norm, **options) for options in methods)
    for one, other in zip(components, neurons, strict=True):
        assert one >= other * (1 - 2e-4)
