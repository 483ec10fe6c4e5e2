"""CLEVER: its gradients, its conclusion, and that it can't be mistaken for a certificate."""

import dataclasses
import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import relucert
from relucert.arithmetic.norm import Norm
from relucert.errors import InputError
from relucert.estimates.gradients import largest_gradients
from relucert.network import Network
from relucert.network.linear_regions import derivatives_at
from tests.nets import NETWORKS, NORMS, centres, mlp

NETWORK = mlp(6, 12, 10, 4, seed=9)
IMAGES = centres(NETWORK, 4, seed=1)
FEW: dict[str, Any] = {"radius": 2.0, "batches": 30, "samples": 40}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_largest_gradients_are_those_of_autograd(name: str) -> None:
    """Also where several points share an activation pattern, which is pulled back once."""
    network = NETWORKS[name]().cast(torch.float64)
    points = centres(network, 20).repeat_interleave(3, 0)
    rows = torch.randn(3, network.classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    largest = largest_gradients(network, lambda count: points[:count], rows, Norm(2), None, len(points))
    for number, row in enumerate(rows):
        leaf = points.clone().requires_grad_()
        (network(leaf) @ row).sum().backward()
        assert leaf.grad is not None
        torch.testing.assert_close(largest[number], leaf.grad.norm(dim=1).max())


def test_samples_in_parts_are_samples_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    network, rows = NETWORK.cast(torch.float64), torch.eye(4).double()
    stream = iter(centres(NETWORK, 50).repeat(2, 1))

    def draw(count: int) -> Tensor:
        return torch.stack([next(stream) for _ in range(count)])

    whole = largest_gradients(network, draw, rows, Norm(2), None, 50)
    monkeypatch.setattr("relucert.estimates.gradients.FORM_BYTES", 3000)
    parts = largest_gradients(network, draw, rows, Norm(2), None, 50)
    torch.testing.assert_close(parts, whole)


@pytest.mark.parametrize("norm", NORMS)
def test_a_value_is_the_margin_over_the_fitted_end(norm: float) -> None:
    scores = NETWORK.cast(torch.float64)(IMAGES)
    for answer in relucert.estimate(NETWORK, IMAGES, norm=norm, target="runner-up", **FEW):
        assert (answer.method, answer.norm, answer.sampling_radius) == ("clever", norm, 2.0)
        assert answer.target is not None
        assert answer.value is not None
        if answer.location is None:
            assert not answer.fitted
            assert "no fit" in str(answer.reason)
            assert answer.value == answer.sampled
            continue
        assert answer.fitted
        margin = float(scores[answer.image, answer.label] - scores[answer.image, answer.target])
        assert answer.value == pytest.approx(min(margin / answer.location, 2.0))
        assert answer.sampled is not None
        assert answer.value <= answer.sampled * (1 + 1e-6)
        proven = relucert.lipschitz(
            NETWORK,
            relucert.Region.around(IMAGES[answer.image][None], 2.0, norm),
            relucert.Property.margins(torch.tensor([answer.label]), torch.tensor([[answer.target]]), NETWORK.classes),
        )
        assert 0 < answer.location < 2 * proven[0].values[0]


def test_untargeted_is_the_least_over_all_rivals_from_the_same_samples() -> None:
    each = relucert.estimate(NETWORK, IMAGES, target="all", **FEW)
    assert [answer.image for answer in each] == [image for image in range(4) for _ in range(3)]
    for answer in relucert.estimate(NETWORK, IMAGES, **FEW):
        rivals = [other for other in each if other.image == answer.image]
        weakest = min(rivals, key=lambda other: other.value or 0)
        assert (answer.target, answer.value, answer.fitted) == (weakest.target, weakest.value, weakest.fitted)
        assert ("no fit against class" in str(answer.reason)) == (not all(other.fitted for other in rivals))


def test_a_seed_gives_the_same_estimate_whatever_else_is_asked() -> None:
    def values(images: torch.Tensor, seed: int) -> list[float | None]:
        return [answer.value for answer in relucert.estimate(NETWORK, images, seed=seed, target="runner-up", **FEW)]

    assert values(IMAGES, 3) == values(IMAGES, 3)
    assert values(IMAGES, 3)[:2] == pytest.approx(values(IMAGES[:2], 3))
    assert values(IMAGES, 3) != values(IMAGES, 4)


def test_where_no_fit_succeeds_the_samples_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relucert.estimates.weibull.IMPLAUSIBLE", 2.0)
    for answer in relucert.estimate(NETWORK, IMAGES, **FEW):
        assert answer.location is answer.p_value is None
        assert not answer.fitted
        assert answer.value is not None
        assert answer.value == answer.sampled
        assert f"no fit against class {answer.target}" in str(answer.reason)
        assert "largest sampled gradient counts" in str(answer.reason)
    (answer,) = relucert.estimate(NETWORK, IMAGES[:1], target="runner-up", batches=5, samples=5)
    assert answer.value == answer.sampled
    assert "needs 10 batches or more, not 5" in str(answer.reason)


def test_gradients_that_are_no_numbers_give_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "relucert.api.estimate.largest_gradients", lambda *arguments: torch.full((len(arguments[2]),), torch.nan)
    )
    for answer in relucert.estimate(NETWORK, IMAGES, **FEW):
        assert answer.value is answer.sampled is None
        assert "not a finite number" in str(answer.reason)


def test_one_gradient_everywhere_is_its_own_end() -> None:
    network = mlp(6, 4)
    (answer,) = relucert.estimate(network, IMAGES[:1], norm=2, **FEW)
    (exact,) = relucert.certify(network, IMAGES[:1], norm=2)
    assert answer.value == pytest.approx(exact.radius, rel=1e-3)
    assert (answer.shape, answer.scale) == (None, 0.0)
    assert "same largest gradient" in str(answer.reason)


def test_a_misclassified_image_has_no_estimate() -> None:
    labels = (NETWORK.cast(torch.float64)(IMAGES).argmax(1) + 1) % 4
    for answer in relucert.estimate(NETWORK, IMAGES, labels, **FEW):
        assert answer.value is None
        assert "misclassified" in str(answer.reason)


def test_samples_stay_in_the_box(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def spy(network: Network, points: torch.Tensor) -> dict[int, torch.Tensor]:
        seen.append(points)
        return derivatives_at(network, points)

    monkeypatch.setattr("relucert.estimates.gradients.derivatives_at", spy)
    relucert.estimate(NETWORK, IMAGES[:1].clamp(-0.5, 0.5), box=(-0.5, 0.5), **FEW)
    assert float(torch.cat(seen).abs().max()) == 0.5


def test_an_estimate_never_poses_as_a_certificate() -> None:
    (answer,) = relucert.estimate(NETWORK, IMAGES[:1], **FEW)
    assert answer.proven is False
    assert not isinstance(answer, relucert.Certificate)
    row = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    assert (row["proven"], row["method"], row["norm"]) == (False, "clever", "inf")
    assert "radius" not in row
    with pytest.raises(dataclasses.FrozenInstanceError):
        answer.value = 1.0  # type: ignore[misc]


def test_progress_counts_batches() -> None:
    seen: list[relucert.Progress] = []
    relucert.estimate(NETWORK, IMAGES[:2], progress=seen.append, **FEW)
    sampled = [(state.image, state.step, state.steps) for state in seen if state.stage == "samples"]
    assert sampled == [(image, number, 30) for image in range(2) for number in range(30)]
    assert [state.done for state in seen if state.stage is None] == [0, 1, 2]


@pytest.mark.parametrize(("norm", "radius"), [("1", 30), ("2", 3), ("inf", 0.1), (4 / 3, 90**0.5), (4, 0.3**0.5)])
def test_the_default_ball_is_the_originals(norm: str | float, radius: float) -> None:
    (answer,) = relucert.estimate(NETWORK, IMAGES[:1], norm=norm, batches=10, samples=4)
    assert answer.sampling_radius == pytest.approx(radius)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"radius": 0.0}, "finite number > 0"),
        ({"radius": math.inf}, "finite number"),
        ({"radius": math.nan}, "finite number"),
        ({"radius": "0/255"}, "finite number > 0"),
        ({"seed": -1}, "seed must be"),
        ({"seed": "x"}, "seed must be"),
        ({"samples": 0}, "samples must be"),
        ({"batches": 0}, "batches must be"),
        ({"batches": 2.5}, "whole number"),
        ({"box": (1.0, 0.0)}, "a box"),
        ({"norm": 0.5}, "p >= 1"),
        ({"target": "worst"}, "unknown target"),
        ({"images": IMAGES[:0]}, "empty"),
        ({"labels": [9] * 4}, "label 9"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        relucert.estimate(NETWORK, **{"images": IMAGES, **FEW, **change})
