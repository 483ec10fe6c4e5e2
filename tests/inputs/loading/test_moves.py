"""Layers that only move numbers, and products and sums of several axes, from torch and from ONNX."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import relucert
from relucert.errors import LoadError, UnsupportedError
from relucert.inputs.loading import load
from tests.inputs.loading.image_models import Function, Layer, around, assert_encloses, assert_same, exported

SHAPE = (2, 4, 6)
INDICES = torch.tensor([1, 1, 0])
MASK = torch.arange(48).reshape(SHAPE) % 3 == 1


class Product(nn.Module):
    """A function of an image and a matrix."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.matrix = function, nn.Parameter(torch.linspace(-1, 1, 18).reshape(6, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.function(images, self.matrix)


def parts(x: Tensor) -> Tensor:
    """Parts of different sizes, taken in another order."""
    first, second, third = x.split([1, 3, 2], -1)
    return torch.cat([third * 2, first, second[..., :1]], -1)


LAYERS: dict[str, Layer] = {
    "permute": lambda x: x.permute(0, 3, 1, 2),
    "transpose": lambda x: x.transpose(1, 2).transpose(2, 3),
    "slice": lambda x: x[:, 1:, ::2, -3:-1],
    "select": lambda x: x[:, 1, ..., None],
    "narrow": lambda x: x.narrow(2, 1, 2),
    "split": parts,
    "chunk": lambda x: x.chunk(2, 2)[1] - x.chunk(2, 2)[0],
    "unbind": lambda x: x.unbind(1)[1] + x.unbind(1)[0],
    "index": lambda x: x[:, INDICES],
    "index select": lambda x: x.index_select(2, INDICES),
    "zero padding": lambda x: functional.pad(x, (1, 2, 0, 1)),
    "constant padding": lambda x: functional.pad(x, (1, 0, 0, 2), value=-0.7),
    "cropping": lambda x: functional.pad(x, (-1, 0, 1, -2)),
    "reflection": lambda x: functional.pad(x, (1, 2, 2, 0), mode="reflect"),
    "replication": lambda x: functional.pad(x, (1, 2, 2, 0), mode="replicate"),
    "wrapping": lambda x: functional.pad(x, (1, 2, 2, 0), mode="circular"),
    "choice": lambda x: torch.where(MASK, x, x.flip(1) * 2),
    "choice of channels, or a number": lambda x: torch.where(MASK[:1, :1, :1], x, 0.5) - torch.where(MASK, 2.0, x),
    "choice that is broadcast": lambda x: torch.where(MASK, x[:, :1], torch.ones(4, 1)),
    "masked": lambda x: x.masked_fill(MASK, -0.25),
    "flip": lambda x: x.flip(1, 3),
    "expand": lambda x: x[:, :1].expand(-1, 3, -1, -1),
    "repeat": lambda x: x.repeat(1, 2, 1, 3),
    "tile": lambda x: x.tile(2, 1),
    "nearest": lambda x: functional.interpolate(x, scale_factor=(2, 3)),
    "pixel shuffle": lambda x: functional.pixel_shuffle(torch.cat([x, x * 2], 1), 2),
    "pixel unshuffle": nn.PixelUnshuffle(2),
    "channel shuffle": lambda x: functional.channel_shuffle(torch.cat([x, x * 2], 1), 2),
    "concatenation": lambda x: torch.cat([x * 2, x.relu(), x[:, 1:]], 1),
    "concatenation with a constant": lambda x: torch.cat([x * 2, torch.ones(len(x), 1, 4, 6), x.relu()], 1),
    "shortcut": lambda x: functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 2)),
    "stack": lambda x: torch.stack([x, x.relu(), x], 3),
    "flatten": lambda x: x.flatten(2).unsqueeze(2).squeeze(2),
    "broadcast branches": lambda x: x + x.mean((2, 3), keepdim=True) - x[:, :1].relu(),
    "broadcast constant": lambda x: x[:, :, :1] * torch.ones(4, 1),
    "sum of channels": lambda x: x.sum(1),
    "sum of every other axis": lambda x: x.sum((1, 3), keepdim=True),
    "mean of five axes": lambda x: x.unflatten(2, (2, 2)).mean((1, 3)),
    "largest over axes": lambda x: x.amax((1, 2)) - x.amin(3).sum(2)[:, :1],
    "linear on the last axis": nn.Linear(6, 3),
    "matrix on the right": Product(lambda x, matrix: x @ matrix),
    "matrix on the left": Product(lambda x, matrix: matrix[:4].T @ x),
    "einsum with a matrix": Product(lambda x, matrix: torch.einsum("bchw,wk->bkch", x, matrix)),
    "einsum with a matrix for each channel": Product(
        lambda x, matrix: torch.einsum("bchw,ckw->bhck", x, matrix.reshape(2, 3, 3)[..., INDICES.repeat(2)])
    ),
    "einsum whose result is not stated": Product(lambda x, matrix: torch.einsum("bchw,wk", x, matrix)),
    "einsum with a factor": Product(lambda x, matrix: torch.einsum("bchw,wc->bchw", x, matrix[:, 1:])),
    "einsum with several constants": Product(lambda x, matrix: torch.einsum("wk,b...w,k->b...", matrix, x, matrix[0])),
    "einsum that moves and sums": lambda x: torch.einsum("bchw->bwc", x),
    "einsum of a diagonal": lambda x: torch.einsum("bcii->bic", x[..., :4]),
    "vector": Product(lambda x, matrix: x @ matrix[:, 0]),
}

ONLY_TORCH = {"channel shuffle", "concatenation with a constant", "tile", "wrapping"}
"""What the older of PyTorch's exporters writes in a way that is not understood or not at all."""


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_from_torch_and_from_onnx(name: str, tmp_path: Path) -> None:
    module = around(LAYERS[name], SHAPE)
    network = load(module, input_shape=SHAPE)
    assert_same(network, module, tolerance=1e-6)
    assert_encloses(network)
    if name not in ONLY_TORCH:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", relucert.RemarkWarning)
            assert_same(load(exported(module, SHAPE, tmp_path)), module, tolerance=1e-5)


def names(layer: Layer) -> list[str]:
    network = load(nn.Sequential(Function(layer), nn.Flatten()), input_shape=SHAPE)
    return [node.operation.name for node in network.nodes]


def test_channels_picked_as_a_whole_are_convolutions() -> None:
    for name in ("zero padding", "shortcut", "index"):
        assert set(names(LAYERS[name])) == {"convolution", "reshape"}
    assert names(lambda x: torch.cat([x, x], 1)) == ["convolution", "convolution", "add", "reshape"]
    assert names(LAYERS["flip"]) == ["index map", "reshape"]


def test_moves_that_move_nothing_are_no_operation() -> None:
    assert names(lambda x: functional.pad(x[:, :], (0, 0)).permute(0, 1, 2, 3).reshape(-1, 8, 6)) == ["reshape"]


REFUSED: dict[str, tuple[Layer, str]] = {
    "the batch moved": (lambda x: x.permute(1, 0, 2, 3).reshape(-1, 48), "from one image of the batch|first axis"),
    "images exchanged": (lambda x: x.flip(0), "from one image of the batch to another"),
    "the next image": (lambda x: x + x.roll(1, 0), "from one image of the batch to another"),
    "a computed index": (lambda x: x.gather(1, x.argmax(1, keepdim=True)), "argmax|along axis"),
    "the batch elsewhere": (
        lambda x: torch.einsum("bchw->chwb", x).flatten(0, 2),
        "einsum .*the batch must be the first",
    ),
    "a sum over the batch": (lambda x: torch.einsum("bchw,bdhw->cd", x, x), "einsum .*the batch must be the first"),
    "a weight for each image": (lambda x: torch.einsum("bchw,b->bc", x, torch.ones(3)), "the batch must be the first"),
    "axes that are broadcast": (lambda x: torch.einsum("bchw,h->bw", x, torch.ones(1)), "axes of different sizes"),
    "a computed condition": (lambda x: torch.where(x > 0, x, 1.0), "gt: jumps, and no bounds follow jumps"),
    "a condition that differs from image to image": (
        lambda x: torch.where(torch.arange(3)[:, None, None, None] > 1, x, x * 2),
        "from one image of the batch to another",
    ),
    "a choice that is not finite": (lambda x: x.masked_fill(MASK, -torch.inf), "not finite"),
    "a mask": (lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True), "is_causal=True"),
    "too many products": (lambda x: x.repeat(1, 1, 32, 32) @ x.repeat(1, 1, 48, 16), "products of two computed values"),
    "a factor that is no small fraction": (nn.Upsample(scale_factor=1.7, mode="bilinear"), "no small fractions"),
    "smoothed": (lambda x: functional.interpolate(x, 3, mode="bilinear", antialias=True), "_aa at|bilinear2d_aa"),
    "three axes": (lambda x: functional.max_pool3d(x[:, None], 2), "max_pool3d at .*of three axes"),
    "windows that differ": (nn.AdaptiveAvgPool2d(4), r"\(4, 6\) is no multiple of \(4, 4\)"),
    "its indices": (lambda x: functional.max_pool2d(x, 2, return_indices=True)[1], "the use of its result 1"),
    "statistics of the batch": (nn.BatchNorm2d(2, track_running_stats=False), "batch_norm .*track_running_stats=True"),
    "no numbers": (lambda x: x[:, 2:].sum((1, 2)), "without numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_lowered_is_refused(name: str) -> None:
    layer, reason = REFUSED[name]
    module = nn.Sequential(layer if isinstance(layer, nn.Module) else Function(layer), nn.Flatten())
    with pytest.raises(UnsupportedError, match=reason) as caught:
        load(module, input_shape=SHAPE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv2d(3, 2, 3), (8, 8, 3)),  # channels last
        (nn.Conv2d(3, 2, 3), (3, 2, 2)),  # smaller than the kernel
        (nn.MaxPool2d(2), (1, 1, 4)),  # nothing left
        (nn.BatchNorm2d(3), (2, 4, 4)),
    ],
)
def test_images_that_do_not_fit_are_one_line(module: nn.Module, shape: tuple[int, ...]) -> None:
    with pytest.raises(LoadError, match="fails on inputs of shape") as caught:
        load(nn.Sequential(module, nn.Flatten()), input_shape=shape)
    assert "\n" not in str(caught.value)
