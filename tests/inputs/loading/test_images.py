"""Layers of images, from torch and from ONNX: they compute what their runtimes compute, and bounds enclose them."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import relucert
from relucert.inputs.loading import load, save
from relucert.network import Convolution, Scale
from tests.inputs.loading.image_models import Layer, Shape, around, assert_encloses, assert_same, exported

IMAGE: Shape = (2, 5, 4)
LINE: Shape = (2, 6)


def normalisation(layer: nn.Module) -> nn.Module:
    """A batch normalisation with statistics and weights unlike those it begins with."""
    generator = torch.Generator().manual_seed(5)
    for name, tensor in (*layer.named_parameters(), *layer.named_buffers()):
        if tensor.is_floating_point():
            drawn = torch.rand(tensor.shape, generator=generator) + 0.2
            tensor.data.copy_(drawn if name == "running_var" else drawn * 2 - 1)
    return layer


def apart(x: Tensor) -> Tensor:
    """A layer that changes nothing, on a branch that is not the latest one."""
    doubled, tripled = x * 2, x * 3
    return functional.max_pool2d(doubled, 1) - tripled


LAYERS: dict[str, tuple[Layer, Shape]] = {
    "convolution": (nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0), groups=2), IMAGE),
    "convolution, dilated": (nn.Conv2d(2, 3, 2, padding=1, dilation=(2, 1), bias=False), IMAGE),
    "convolution, same size": (nn.Conv2d(2, 3, (2, 3), padding="same"), IMAGE),
    "convolution, reflected": (nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"), IMAGE),
    "convolution, circular": (nn.Conv2d(2, 2, 3, padding=(1, 2), padding_mode="circular"), IMAGE),
    "convolution of a line": (nn.Conv1d(2, 3, 3, stride=2, padding=1), LINE),
    "transposed convolution": (nn.ConvTranspose2d(2, 4, 3, 2, padding=1, output_padding=1, groups=2), IMAGE),
    "transposed convolution, cut": (nn.ConvTranspose2d(2, 2, (1, 2), 2, padding=1), IMAGE),
    "transposed convolution of a line": (nn.ConvTranspose1d(2, 2, 2, padding=1, dilation=3), LINE),
    "batch normalisation": (normalisation(nn.BatchNorm2d(2)), IMAGE),
    "batch normalisation of a line": (normalisation(nn.BatchNorm1d(2, affine=False)), LINE),
    "instance normalisation by running statistics": (
        normalisation(nn.InstanceNorm2d(2, affine=True, track_running_stats=True)),
        IMAGE,
    ),
    "average pooling": (nn.AvgPool2d(2), IMAGE),
    "average pooling, padded": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), IMAGE),
    "average pooling without padding": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    "average pooling, another divisor": (nn.AvgPool2d((2, 1), divisor_override=3), IMAGE),
    "average pooling of a line": (nn.AvgPool1d(3, 2, 1), LINE),
    "adaptive average": (nn.AdaptiveAvgPool2d((5, 2)), IMAGE),
    "mean of an image": (nn.AdaptiveAvgPool2d(1), IMAGE),
    "maximum pooling": (nn.MaxPool2d(2), IMAGE),
    "maximum pooling of single numbers": (apart, IMAGE),
    "maximum pooling, padded": (nn.MaxPool2d(3, 2, 1), IMAGE),
    "maximum pooling, dilated": (nn.MaxPool2d(2, 1, 1, dilation=(3, 2)), IMAGE),
    "maximum pooling, rounded up": (nn.MaxPool2d((2, 3), (2, 3), ceil_mode=True), IMAGE),
    "maximum pooling of a line": (nn.MaxPool1d(4, 3, 2), LINE),
    "adaptive maximum": (nn.AdaptiveMaxPool2d((1, 2)), IMAGE),
    "bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
    "bilinear between corners": (nn.Upsample((8, 3), mode="bilinear", align_corners=True), IMAGE),
    "bilinear, by a half": (lambda x: functional.interpolate(x, scale_factor=(1.5, 0.5), mode="bilinear"), IMAGE),
    "bilinear, along rows alone": (lambda x: functional.interpolate(x, (5, 7), mode="bilinear"), IMAGE),
    "bicubic": (nn.Upsample(scale_factor=(2, 3), mode="bicubic"), IMAGE),
    "bicubic between corners": (nn.Upsample((4, 6), mode="bicubic", align_corners=True), IMAGE),
    "linear": (nn.Upsample(scale_factor=3, mode="linear"), LINE),
    "leaky relu": (nn.LeakyReLU(0.1), IMAGE),
    "clip": (lambda x: x.clamp(-0.2, 0.6), IMAGE),
    "maximum with a map": (lambda x: torch.maximum(x, x.flip(1) * 0.5), IMAGE),
}

ONLY_TORCH = {"average pooling, another divisor", "instance normalisation by running statistics"}
"""What PyTorch has no ONNX export for."""


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_from_torch_and_from_onnx(name: str, tmp_path: Path) -> None:
    layer, shape = LAYERS[name]
    module = around(layer, shape)
    network = load(module.eval(), input_shape=shape)
    assert_same(network, module)
    assert_encloses(network)
    save(network, tmp_path / "saved.safetensors")
    assert_same(load(tmp_path / "saved.safetensors"), module)
    if name not in ONLY_TORCH:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", relucert.RemarkWarning)  # of plain numbers, which the export casts
            assert_same(load(exported(module, shape, tmp_path)), module, tolerance=1e-6)


@pytest.mark.parametrize("layer", [nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, 1, 1, dilation=(3, 2))])
def test_padding_never_wins_a_maximum_and_neurons_stay_local(layer: nn.Module) -> None:
    network = load(nn.Sequential(layer, nn.Flatten()), input_shape=IMAGE)
    assert {entry.operation.name for entry in network.nodes} == {"add", "convolution", "relu", "reshape", "scale"}
    images = -1 - torch.rand(4, *IMAGE, dtype=torch.float64)
    torch.testing.assert_close(network.cast(torch.float64)(images), layer(images).flatten(1), rtol=1e-14, atol=1e-14)


def test_a_maximum_of_so_many_costs_one_relu_less() -> None:
    network = load(nn.Sequential(nn.MaxPool2d(2), nn.Flatten()), input_shape=(2, 4, 4))
    assert network.describe() == "2x4x4 - 2x2x4 - 2x2x2 - 8"


def test_weights_of_interpolations_that_runtimes_round_are_about_real_arithmetic_alone() -> None:
    def reasons(size: int) -> tuple[str, ...]:
        layer = nn.Upsample(size, mode="bilinear")
        return load(nn.Sequential(layer, nn.Flatten()), input_shape=(1, 2, 2)).real_only

    assert reasons(4) == ()
    assert "interpolation" in " ".join(reasons(3))


def test_an_average_is_divided_by_its_count() -> None:
    network = load(nn.Sequential(nn.AvgPool2d(3, 2, 1, count_include_pad=False), nn.Flatten()), input_shape=(1, 5, 5))
    summed, scale = (entry.operation for entry in network.nodes[:2])
    assert isinstance(summed, Convolution)
    assert bool((summed.weight == 1).all())
    assert isinstance(scale, Scale)
    assert scale.divide
    assert scale.factor.tolist() == [[4, 6, 4], [6, 9, 6], [4, 6, 4]]


def test_a_residual_network_of_images_is_certified() -> None:
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(2, 3, 3, 2, 1), nn.Conv2d(3, 3, 3, padding=1)
            self.norm, self.skip = normalisation(nn.BatchNorm2d(3)), nn.Conv2d(2, 3, 1, 2)

        def forward(self, images: Tensor) -> Tensor:
            inner = self.second(torch.relu(self.norm(self.first(images))))
            return torch.relu(inner + self.skip(images))

    module = nn.Sequential(Block(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(3, 3)).eval()
    images = torch.rand(2, 2, 4, 4)
    for image, certificate in zip(images, relucert.certify(module, images), strict=True):
        assert certificate.radius is not None
        assert certificate.radius > 0
        moved = image + certificate.radius * (torch.randint(0, 2, (200, 2, 4, 4)) * 2 - 1)
        assert bool((module(moved).argmax(1) == certificate.label).all())
