"""Small modules around a layer of images, as torch modules and as ONNX files, and what must hold for their networks."""

import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import relucert
from relucert.network import Network

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
