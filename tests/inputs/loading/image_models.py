"""Small modules around a layer of images, as torch modules and as ONNX files, and what must hold for their networks."""

import io
import itertools
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import torch
from torch import Tensor, nn

import relucert
from relucert.common.names import FormName
from relucert.network import Network
from tests.regions import samples

Layer = Callable[[Tensor], Tensor]
Shape = tuple[int, ...]


class Function(nn.Module):
    """A function of an image."""

    def __init__(self, function: Layer) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: Tensor) -> Tensor:
        return self.function(images)


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


def assert_encloses(network: Network) -> None:
    """Bounds of every neuron by both drivers, for three norms, with and without a box, at points of the region."""
    generator = torch.Generator().manual_seed(4)
    centre = torch.randn(1, network.sizes[0], generator=generator, dtype=torch.float64)
    box = centre.flatten() - 0.05, centre.flatten() + 0.2
    forms: tuple[FormName, ...] = ("forward", "backward")
    cases = itertools.product(("inf", "2", "1"), forms, (None, box))
    double = network.cast(torch.float64)
    for norm, form, limits in cases:
        region = relucert.Region.around(centre, 0.3, norm, box=limits)
        values = double.values(samples(region, 0, 30, generator))
        intervals = relucert.bounds(network, region, form=form)
        for index, interval in zip((*network.preactivations, network.output), intervals, strict=True):
            assert bool((interval.lower - 1e-9 <= values[index]).all()), (norm, form, limits)
            assert bool((values[index] <= interval.upper + 1e-9).all()), (norm, form, limits)
