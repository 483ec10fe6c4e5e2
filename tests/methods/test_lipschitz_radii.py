"""Radii by Lipschitz constants: those of the shells taken literally, never beyond an adversarial point, in order."""

from typing import Any

import pytest
import torch
from torch import Tensor

import relucert
from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE
from relucert.bounding.forward import forward
from relucert.bounding.gradient import gradient_sizes
from relucert.bounding.relaxers import FAST_LIN
from relucert.network import Network
from relucert.query.targets import rivals
from tests.adversaries import nearest_distances
from tests.method_tables import LIPSCHITZ
from tests.nets import NETWORKS, NORMS, centres

NAMES = ("two layers", "three layers", "residual", "normalised")
COUNT = 3


def radii(name: str, norm: float, count: int = COUNT, **options: Any) -> list[float]:
    network = NETWORKS[name]()
    answers = relucert.certify(network, centres(network, count, seed=5), norm=norm, **options)
    assert all(answer.proven and answer.method == options["method"] for answer in answers)
    return [answer.radius or 0.0 for answer in answers]


@pytest.mark.parametrize("method", LIPSCHITZ)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NAMES)
def test_no_adversarial_point_is_nearer(name: str, norm: float, method: str) -> None:
    distances = nearest_distances(name, norm, COUNT)
    assert min(distances) < float("inf")
    for radius, distance in zip(radii(name, norm, method=method, tolerance=0.01), distances, strict=True):
        assert 0 < radius < distance


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled
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


def literal_margins(network: Network, points: Tensor, radii: Tensor, norm: float, shells: int) -> Tensor:
    """The least margins left at the radii, (points,): one ball after the other, each bounded and its gradient, too."""
    double = network.cast(torch.float64)
    scores = double(points)
    labels = scores.argmax(1)
    prop = Property.margins(labels, rivals("untargeted", scores, labels, 0), network.classes)
    left = prop.values(scores)
    for shell in range(1, shells + 1):
        balls = Region.around(points, radii * shell / shells, norm)
        hidden = forward(double, balls, FAST_LIN, DOUBLE, network.preactivations)
        sizes = gradient_sizes(double, prop.rows, hidden, DOUBLE)
        left = left - (radii / shells)[:, None] * torch.linalg.vector_norm(sizes, Norm(norm).dual, 2)
    return left.amin(1)


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("small", [True, False], ids=["one batch", "nested"])
@pytest.mark.parametrize("name", ["three layers", "residual", "image residual"])
@pytest.mark.sampled
def test_they_are_those_of_the_shells_taken_literally(
    name: str, norm: float, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nested regions, predictions and quick arithmetic find what 30 balls bounded one by one give, within 0.1 %."""
    monkeypatch.setattr("relucert.bounding.nested.EFFICIENT_BYTES", 2**24 if small else 0)
    network = NETWORKS[name]()
    points = centres(network, 2, seed=5)
    certified = torch.tensor(radii(name, norm, 2, method="fast-lip"), dtype=torch.float64)
    assert bool((literal_margins(network, points, certified, norm, 30) > 0).all())
    assert bool((literal_margins(network, points, certified * 1.001, norm, 30) <= 0).all())


@pytest.mark.parametrize("name", ["five layers", "image residual"])
@pytest.mark.sampled
def test_a_batch_of_shelled_questions_equals_its_members(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relucert.bounding.nested.EFFICIENT_BYTES", 0)
    network = NETWORKS[name]()
    points = centres(network, 2, seed=5)
    for point, together in zip(points, radii(name, 2.0, 2, method="fast-lip"), strict=True):
        (alone,) = relucert.certify(network, point[None], norm=2.0, method="fast-lip")
        assert alone.radius == pytest.approx(together, rel=1e-3)


def test_a_network_without_relu_in_a_box_has_one_constant_for_all_shells() -> None:
    network = NETWORKS["linear"]()
    points = centres(network, COUNT, seed=5)
    plain, split = (
        relucert.certify(network, points, norm=2, method="fast-lip", shells=shells, box=(-9, 9)) for shells in (1, 30)
    )
    for one, other in zip(plain, split, strict=True):
        assert one.radius == pytest.approx(other.radius, rel=2e-4)
