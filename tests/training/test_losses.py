"""The losses: bounds where they claim to be, gradients where they are asked for."""

import math

import pytest
import torch
from torch.nn import functional

import relucert
from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.arithmetic.rigor import DOUBLE
from relucert.bounding.backward import bound_forms
from relucert.bounding.interval import Bounds, propagate
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import FLAT
from relucert.common.names import LossBounds
from relucert.errors import InputError
from relucert.inputs.recipes.architectures import BOX
from relucert.inputs.recipes.recipe import Adversarial, Recipe
from relucert.network import Convolution, Linear, Relu, Reshape
from relucert.query.targets import rivals
from relucert.training.loop import Shuffled, fit
from relucert.training.losses import attacked
from relucert.training.margins import certified_share, worst_margins
from tests.nets import NETWORKS, chain
from tests.training.problems import clusters, small_module

QUESTIONS = [
    ("inf", "interval"), ("2", "interval"), ("inf", "crown"), ("2", "crown"),
    *((norm, "fast-lin") for norm in ("inf", "2", "1", "1.5")),
]  # fmt: skip


@pytest.mark.parametrize(("norm", "bounds"), QUESTIONS)
def test_the_robust_loss_is_above_the_loss_everywhere_in_the_ball(norm: str, bounds: LossBounds) -> None:
    module, (images, labels) = small_module().double(), clusters(12)
    images, generator = images.double(), torch.Generator().manual_seed(0)
    network = relucert.load(module)
    for radius in (0.0, 0.05, 0.3):
        bound = relucert.robust_loss(network, images, labels, radius, norm, method=bounds).item()
        plain = functional.cross_entropy(module(images), labels).item()
        assert bound >= plain - 1e-12
        if radius == 0:
            assert bound == pytest.approx(plain, rel=1e-12)
        moved = torch.cat([Norm.parse(norm).sample(image, radius, 50, generator) for image in images])
        losses = functional.cross_entropy(module(moved), labels.repeat_interleave(50), reduction="none")
        assert losses.view(12, 50).amax(1).mean().item() <= bound + 1e-12


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("box", [None, (-0.5, 0.5)])
def test_interval_margins_are_those_of_flat_lines(network: str, box: tuple[float, float] | None) -> None:
    """The same numbers as through the backward driver, and below the margins at points of the region."""
    graph, generator = NETWORKS[network]().cast(torch.float64), torch.Generator().manual_seed(1)
    images = torch.rand(3, graph.sizes[0], generator=generator, dtype=torch.float64) - 0.5
    labels, radius = graph(images).argmax(1), 0.05
    shape = RegionShape.parse("inf", box, None, graph.input_shape)
    margins = worst_margins(graph, images, labels, radius, shape, "interval")
    region = shape.around(images, radius)
    rows = Property.margins(labels, rivals("untargeted", graph(images), labels, 0), graph.classes)
    hidden: Bounds = {}
    for value in graph.preactivations:
        hidden[value] = propagate(graph, region, hidden, value, DOUBLE)
    relaxed = bound_forms(ReferencePath(graph, region, hidden, FLAT, DOUBLE), graph.output, rows.rows)
    torch.testing.assert_close(margins, relaxed.lower, rtol=1e-10, atol=1e-10)
    for _ in range(30):
        moved = images + radius * (2 * torch.rand(images.shape, generator=generator, dtype=torch.float64) - 1)
        moved = moved if box is None else moved.clamp(*box)
        assert (rows.values(graph(moved)) >= margins - 1e-12).all()


def test_the_interval_loss_of_convolutions_has_a_gradient() -> None:
    """By central differences, in float64, and in float32 to its precision."""
    generator = torch.Generator().manual_seed(0)
    weight = (torch.rand(3, 1, 3, 3, generator=generator, dtype=torch.float64) - 0.5).requires_grad_()
    last = (torch.rand(4, 12, generator=generator, dtype=torch.float64) - 0.5).requires_grad_()
    images, labels = torch.rand(5, 1, 5, 5, generator=generator).double() - 0.5, torch.arange(5) % 4

    def loss(dtype: torch.dtype = torch.float64) -> torch.Tensor:
        convolution = Convolution(weight, weight.new_zeros(3), (5, 5), (2, 2), (0, 0, 0, 0), (1, 1), 1)
        layers = (convolution, Relu(), Reshape((3, 2, 2), (12,)), Linear(last, last.new_zeros(4)))
        network = chain((1, 5, 5), *layers)
        return relucert.robust_loss(network, images.to(dtype), labels, 0.1, box=(-0.5, 0.5), method="interval")

    for parameter, gradient in zip((weight, last), torch.autograd.grad(loss(), (weight, last)), strict=True):
        place = tuple(size // 2 for size in parameter.shape)
        with torch.no_grad():
            parameter[place] += 1e-6
            above = float(loss())
            parameter[place] -= 2e-6
            below = float(loss())
            parameter[place] += 1e-6
        assert float(gradient[place]) == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-8)
    (single,) = torch.autograd.grad(loss(torch.float32), weight)
    torch.testing.assert_close(single, torch.autograd.grad(loss(), weight)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["inf", "2"])
def test_the_certified_share_counts_what_certify_proves(norm: str) -> None:
    """An image counts if its certified radius is at least the radius, by Fast-Lin or by intervals."""
    module, (images, labels) = small_module(), clusters(30)
    fit(module, Shuffled(images, labels, 30, 0), Recipe(epochs=30, learning_rate=0.1))
    network, shape = relucert.load(module), RegionShape.parse(norm, (-0.5, 0.5), None, (8,))
    labels[:3] = (labels[:3] + 1) % 3  # misclassified
    radii = torch.tensor(
        [
            [
                answer.radius or 0
                for answer in relucert.certify(module, images, labels, norm=norm, method=method, box=BOX)
            ]
            for method in ("fast-lin", "interval")
        ]
    ).amax(0)
    for radius in (0.01, float(radii.median()), 0.3):
        share = certified_share(network, images, labels, radius, shape)
        assert int((radii >= radius).sum()) / 30 <= share <= int((radii >= 0.999 * radius).sum()) / 30
    assert certified_share(network, images, labels, 1e-9, shape) == 27 / 30
    assert certified_share(network, images[3:], labels[3:], 1e-9, shape) == 1


@pytest.mark.parametrize(("norm", "bounds"), QUESTIONS)
@pytest.mark.parametrize("radius", [0.0, 0.02, 0.2])
def test_the_robust_loss_has_the_gradient_of_finite_differences(norm: str, radius: float, bounds: LossBounds) -> None:
    module, (images, labels) = small_module().double(), clusters(6)
    live, images = relucert.live_network(module), images.double()
    relucert.robust_loss(live, images, labels, radius, norm, method=bounds).backward()
    parameters = dict(module.named_parameters())
    for weight in (parameters["0.weight"], parameters["2.bias"], parameters["4.weight"]):
        place = tuple(size // 2 for size in weight.shape)
        with torch.no_grad():
            weight[place] += 1e-6
            above = float(relucert.robust_loss(live, images, labels, radius, norm, method=bounds))
            weight[place] -= 2e-6
            below = float(relucert.robust_loss(live, images, labels, radius, norm, method=bounds))
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


def test_unknown_bounds_are_refused() -> None:
    images, labels = clusters(3)
    with pytest.raises(InputError, match="unknown method 'magic'"):
        relucert.robust_loss(small_module(), images, labels, 0.1, method="magic")  # type: ignore[arg-type]
