"""The losses: bounds where they claim to be, gradients where they are asked for."""

import math

import pytest
import torch
from torch.nn import functional

import relucert
from relucert.errors import InputError
from relucert.norm import Norm
from relucert.recipes.architectures import BOX
from relucert.recipes.recipe import Adversarial
from relucert.region import RegionShape
from relucert.training.losses import attacked, worst_margins
from tests.training.problems import clusters, small_module

NORMS = ("inf", "2", "1", "1.5")


@pytest.mark.parametrize("norm", NORMS)
def test_the_robust_loss_is_above_the_loss_everywhere_in_the_ball(norm: str) -> None:
    module, (images, labels) = small_module().double(), clusters(12)
    images, generator = images.double(), torch.Generator().manual_seed(0)
    for radius in (0.0, 0.05, 0.3):
        bound = relucert.robust_loss(module, images, labels, radius, norm).item()
        plain = functional.cross_entropy(module(images), labels).item()
        assert bound >= plain - 1e-12
        if radius == 0:
            assert bound == pytest.approx(plain, rel=1e-12)
        for _ in range(50):
            moved = torch.cat([Norm.parse(norm).sample(image, radius, 1, generator) for image in images])
            assert functional.cross_entropy(module(moved), labels).item() <= bound + 1e-12


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("radius", [0.0, 0.02, 0.2])
def test_the_robust_loss_has_the_gradient_of_finite_differences(norm: str, radius: float) -> None:
    module, (images, labels) = small_module().double(), clusters(6)
    live, images = relucert.live_network(module), images.double()
    relucert.robust_loss(live, images, labels, radius, norm).backward()
    parameters = dict(module.named_parameters())
    for weight in (parameters["0.weight"], parameters["2.bias"], parameters["4.weight"]):
        place = tuple(size // 2 for size in weight.shape)
        with torch.no_grad():
            weight[place] += 1e-6
            above = float(relucert.robust_loss(live, images, labels, radius, norm))
            weight[place] -= 2e-6
            below = float(relucert.robust_loss(live, images, labels, radius, norm))
            weight[place] += 1e-6
        assert weight.grad is not None
        assert torch.isfinite(weight.grad).all()
        assert float(weight.grad[place]) == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-8)


def test_margins_are_positive_up_to_the_certified_radius_and_no_further() -> None:
    module, (images, _) = small_module(), clusters(9)
    predicted = module(images).argmax(1)
    answers = relucert.certify(module, images, predicted)
    network = relucert.load(module)
    for image, answer in enumerate(answers):
        assert answer.radius is not None
        part = images[image : image + 1].double(), predicted[image : image + 1]
        inside, outside = (
            worst_margins(network, *part, answer.radius * share, RegionShape(Norm(math.inf))) for share in (1, 1.001)
        )
        assert inside.min() > 0
        assert outside.min() < 0


def test_a_live_network_follows_the_weights_and_a_loaded_one_does_not() -> None:
    module, (images, _) = small_module(), clusters(4)
    live, loaded = relucert.live_network(module), relucert.load(module)
    before = loaded(images)
    with torch.no_grad():
        next(module.parameters()).add_(1)
    torch.testing.assert_close(live()(images), module(images))
    torch.testing.assert_close(loaded(images), before)


@pytest.mark.parametrize("steps", [1, 10])
def test_attacked_images_stay_near_and_in_the_box_and_are_harder(steps: int) -> None:
    module, (images, labels) = small_module(), clusters()
    adversarial = attacked(
        module, images, labels, 0.1, Adversarial(steps=steps, box=BOX), torch.Generator().manual_seed(0)
    )
    assert (adversarial - images).abs().max() <= 0.1 + 1e-6
    assert adversarial.abs().max() <= 0.5
    assert not adversarial.requires_grad
    assert functional.cross_entropy(module(adversarial), labels) > functional.cross_entropy(module(images), labels)
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize("radius", [-0.1, float("nan"), float("inf")])
def test_a_bad_radius_is_refused(radius: float) -> None:
    images, labels = clusters(3)
    with pytest.raises(InputError, match="radius"):
        relucert.robust_loss(small_module(), images, labels, radius)
