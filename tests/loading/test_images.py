"""Layers of images, from torch and from ONNX: they compute what their runtimes compute, and bounds enclose them."""

import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import relucert
from relucert.loading import load, save
from relucert.network import Network
from tests.loading.test_lowering import Function

Layer = Callable[[Tensor], Tensor]
Shape = tuple[int, ...]

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
    "average pooling": (nn.AvgPool2d(2), IMAGE),
    "average pooling, padded": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), IMAGE),
    "average pooling without padding": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    "average pooling, another divisor": (nn.AvgPool2d((2, 1), divisor_override=3), IMAGE),
    "average pooling of a line": (nn.AvgPool1d(3, 2, 1), LINE),
    "adaptive average": (nn.AdaptiveAvgPool2d((5, 2)), IMAGE),
    "mean of an image": (nn.AdaptiveAvgPool2d(1), IMAGE),
    "maximum pooling": (nn.MaxPool2d(2), IMAGE),
    "maximum pooling, padded": (nn.MaxPool2d(3, 2, 1), IMAGE),
    "maximum pooling, dilated": (nn.MaxPool2d(2, 1, 1, dilation=(3, 2)), IMAGE),
    "maximum pooling, rounded up": (nn.MaxPool2d((2, 3), (2, 3), ceil_mode=True), IMAGE),
    "maximum pooling of a line": (nn.MaxPool1d(4, 3, 2), LINE),
    "adaptive maximum": (nn.AdaptiveMaxPool2d((1, 2)), IMAGE),
    "leaky relu": (nn.LeakyReLU(0.1), IMAGE),
    "clip": (lambda x: x.clamp(-0.2, 0.6), IMAGE),
    "maximum with a map": (lambda x: torch.maximum(x, x.flip(1) * 0.5), IMAGE),
}

ONLY_TORCH = {"average pooling, another divisor"}
"""What PyTorch has no ONNX export for."""


def around(layer: Layer, shape: Shape) -> nn.Module:
    """A convolution, the layer, and a linear layer."""
    torch.manual_seed(3)
    first: nn.Module = nn.Conv2d(2, 2, 2, padding="same") if len(shape) == 3 else nn.Conv1d(2, 2, 2, padding="same")
    body = nn.Sequential(first, layer if isinstance(layer, nn.Module) else Function(layer), nn.Flatten())
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        size = body.eval()(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(*body, nn.Linear(size, 3)).eval()


def exported(module: nn.Module, shape: Shape, folder: Path, version: int = 17) -> Path:
    path = folder / "exported.onnx"
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (torch.zeros(2, *shape),), path, dynamo=False, opset_version=version, input_names=["x"],
            dynamic_axes={"x": {0: "batch"}}, do_constant_folding=False,
        )  # fmt: skip
    return path


def assert_same(network: Network, module: nn.Module, tolerance: float = 1e-12) -> None:
    at = torch.randn(6, *network.input_shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    with torch.no_grad():
        expected = module.double()(at)
        module.float()
    torch.testing.assert_close(network.cast(torch.float64)(at), expected, rtol=tolerance, atol=tolerance)


def assert_encloses(network: Network, norm: str, form: str) -> None:
    """Bounds of every neuron, at random points of a ball."""
    generator = torch.Generator().manual_seed(4)
    centre = torch.randn(1, *network.input_shape, generator=generator, dtype=torch.float64)
    moves = torch.rand(40, centre.numel(), generator=generator, dtype=torch.float64) * 2 - 1
    moves = moves.sign() if norm == "inf" else functional.normalize(moves)
    points = centre + 0.3 * moves.reshape(40, *network.input_shape)
    intervals = relucert.bounds(network, relucert.Region.around(centre, 0.3, norm), form=form)
    values = network.cast(torch.float64).values(points)
    for index, interval in zip((*network.rectified, network.output), intervals, strict=True):
        assert bool((interval.lower - 1e-9 <= values[index]).all())
        assert bool((values[index] <= interval.upper + 1e-9).all())


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_from_torch_and_from_onnx(name: str, tmp_path: Path) -> None:
    layer, shape = LAYERS[name]
    module = around(layer, shape)
    network = load(module, input_shape=shape)
    assert_same(network, module)
    assert_encloses(network, "inf", "forward")
    assert_encloses(network, "2", "backward")
    save(network, tmp_path / "saved.safetensors")
    assert_same(load(tmp_path / "saved.safetensors"), module)
    if name not in ONLY_TORCH:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", relucert.RemarkWarning)  # of plain numbers, which the export casts
            assert_same(load(exported(module, shape, tmp_path)), module, tolerance=1e-6)
