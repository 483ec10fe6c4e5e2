"""Recorded programs: the networks of torch.export for plain modules, and nothing for any other."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from relucert.errors import LoadError, UnsupportedError
from relucert.inputs.loading import load
from relucert.inputs.loading.torch_attention import batch_first
from relucert.inputs.loading.torch_export import exported
from relucert.inputs.loading.torch_graph import trace, translate
from relucert.inputs.loading.torch_record import record
from relucert.network.fingerprint import fingerprint


class Residual(nn.Module):
    """Layers, functions, methods and operators, in place and not, and shapes that are asked for."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.shift = nn.BatchNorm2d(4), nn.Parameter(torch.randn(4, 1, 1))
        self.register_buffer("mean", torch.full((2, 1, 1), 0.3))
        self.last = nn.Linear(64, 3)

    def forward(self, images: Tensor) -> Tensor:
        values = functional.relu(self.norm(self.first((images - self.mean) / 0.5)), inplace=True)
        values = torch.relu(self.second(values) + self.shift).add_(values)
        values = functional.avg_pool2d(values, 2).clamp(min=-1, max=0.9)
        scores: Tensor = self.last(values.reshape(values.size(0), -1))
        return scores


class Pooling(nn.Module):
    """A convolution, and a function that pools its channels."""

    def __init__(self, pool: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.pool, self.last = nn.Conv2d(2, 4, 3), pool, nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.last(self.pool(torch.relu(self.first(images))).flatten(1))
        return scores


class Heads(nn.Module):
    """Attention to tokens, one of which is learnt, in products of matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.first, self.last = nn.Parameter(torch.randn(1, 1, 8)), nn.Linear(8, 8, False), nn.Linear(8, 3)
        self.norm = nn.LayerNorm(8)

    def forward(self, images: Tensor) -> Tensor:
        tokens = torch.cat([self.token.expand(images.shape[0], -1, -1), images[:, 0]], 1)
        heads = self.first(self.norm(tokens)).unflatten(-1, (2, -1)).transpose(1, 2)
        mixed = (heads @ heads.transpose(-1, -2)).softmax(-1) @ heads
        mixed = mixed + functional.scaled_dot_product_attention(heads, heads.flip(2), heads)
        products = torch.bmm(tokens, tokens.transpose(1, 2)).mean(2, keepdim=True)
        scores: Tensor = self.last((mixed.transpose(1, 2).flatten(2) + products).mean(1))
        return scores


def block(**options: Any) -> nn.Module:
    """A layer of PyTorch's transformers on tokens, and scores."""
    transformer = batch_first(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True, **options))
    return nn.Sequential(nn.Flatten(1, 2), transformer, nn.Flatten(), nn.Linear(128, 3))


def dense(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(128, 12), *layers)


PLAIN: dict[str, Callable[[], nn.Module]] = {
    "dense": lambda: dense(nn.ReLU(), nn.Dropout(), nn.Linear(12, 3, bias=False), nn.Softmax(1)),
    "in place": lambda: dense(nn.ReLU(inplace=True), nn.BatchNorm1d(12), nn.LeakyReLU(0.1, True), nn.Linear(12, 3)),
    "clips": lambda: dense(nn.ReLU6(), nn.Hardtanh(-0.2, 0.4), nn.Hardsigmoid(), nn.Linear(12, 3)),
    "pools": lambda: nn.Sequential(
        nn.ConvTranspose2d(2, 4, 3, stride=2, output_padding=1), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(4, 4, 3, groups=2, dilation=2), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 3),
    ),
    "residual": Residual,
    "heads": Heads,
    "transformer": lambda: block(activation=torch.tanh),
    "global pooling": lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)),
    "functions that pool": lambda: Pooling(lambda images: functional.adaptive_avg_pool2d(images, (1, 1))),
    "mean over axes": lambda: Pooling(lambda images: images.mean((2, 3), keepdim=True)),
    "function of a mean": lambda: Pooling(lambda images: torch.mean(images, dim=(-1, -2))),
}  # fmt: skip


class Of(nn.Module):
    """A function as a module."""

    offset: Tensor

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("offset", torch.linspace(0, 1, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.function(images.flatten(1)[:, :3]) + self.offset


class Branching(nn.Module):
    """What it does depends on its input's values."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :3] * (1 if images.sum() >= 0 else 2)


class Computing(nn.Module):
    """It computes a constant of constants."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = torch.linspace(0, 1, 3)

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :3] + (self.offset * 3).sum()


def branch(values: Tensor) -> Tensor:
    if bool(values.sum() >= 0):
        return values
    return values * 2


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Of(torch.jit.script(branch))


def hooked() -> nn.Module:
    module = dense(nn.ReLU())
    module.register_forward_hook(lambda *_: None)
    return module


def replaced() -> nn.Module:
    module = dense(nn.ReLU())
    module.forward = lambda images: images.flatten(1) if images.sum() >= 0 else images.flatten(1) * 2
    return module


class Swallowing(nn.Module):
    """It branches on values, and hides that from whoever traces it."""

    def forward(self, images: Tensor) -> Tensor:
        try:
            if images.max() > 100:
                images = images / 255
        except Exception:
            pass
        return images.flatten(1)[:, :3] * 2


class Looking(nn.Module):
    """It does something else where it is traced."""

    def __init__(self, looks: Callable[[object], bool]) -> None:
        super().__init__()
        self.looks = looks

    def forward(self, images: Tensor) -> Tensor:
        if self.looks(images) and images.max() > 100:
            images = images / 255
        return images.flatten(1)[:, :3] * 2


class Called(nn.Module):
    """More is done where it is called than in forward."""

    def __call__(self, images: Tensor) -> Tensor:
        return self.forward(images if images.max() <= 100 else images / 255)

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :3] * 2


class Storing(nn.Module):
    """It writes to a buffer."""

    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(3))

    def forward(self, images: Tensor) -> Tensor:
        values = images.flatten(1)[:, :3] * 2
        self.kept.copy_(values.mean(0))
        return values


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "branching": Branching,
    "computing": Computing,
    "hooked": hooked,
    "replaced": replaced,
    "scripted": scripted,
    "cast that does nothing": lambda: Of(lambda values: values.float()),
    "random": lambda: Of(lambda values: values + torch.rand(3)),
    "parametrised": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 3)),
    "checkpoint": lambda: Of(lambda values: torch.utils.checkpoint.checkpoint(branch, values)),
    "swallowing": Swallowing,
    "looking for tensors": lambda: Looking(lambda images: isinstance(images, Tensor)),
    "looking for their type": lambda: Looking(lambda images: type(images) is Tensor),
    "called": Called,
    "storing": Storing,
    "counting": lambda: Of(lambda values: values.roll(int(torch.count_nonzero(values > 100)), 1)),
    "number of items": lambda: Of(lambda values: values / (1 + torch.count_nonzero(values > 100).item())),
    "shape of a selection": lambda: Of(lambda values: values / (1 + values[values > 100].numel())),
    "shape of positions": lambda: Of(lambda values: values / (1 + torch.nonzero(values > 100).shape[0])),
    "list": lambda: Of(lambda values: values / (1 + max(0, *values.flatten().tolist()))),
    "function within a layer": lambda: block(activation=lambda values: torch.tanh(values)),
    "part of a normalisation": lambda: nn.RMSNorm(8),
    "numbers of the input": lambda: Of(lambda values: values * float(values.sum())),
}


def images_for(module: nn.Module) -> Tensor:
    return torch.zeros(3, 8) if hasattr(module, "parametrizations") else torch.zeros(3, 2, 8, 8)


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_module_is_the_network_that_its_export_is(name: str) -> None:
    torch.manual_seed(0)
    module = PLAIN[name]().eval()
    images = torch.zeros(3, 2, 8, 8)
    with torch.no_grad():
        recorded = record(module, images)
        assert recorded is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            programs = recorded, exported(module, images, name)
        networks = [translate(program, images, name) for program in programs]
    assert fingerprint(networks[0].network) == fingerprint(networks[1].network)
    assert networks[0].omitted == networks[1].omitted
    assert networks[0].folded == networks[1].folded


@pytest.mark.parametrize("name", OTHERS)
def test_other_modules_are_not_recorded(name: str) -> None:
    module = OTHERS[name]().eval()
    with torch.no_grad():
        assert record(module, images_for(module)) is None


def test_another_mean_where_a_pooling_runs_is_no_pooling() -> None:
    """A hook of all modules runs within the layer's step."""

    def centred(module: nn.Module, _: object, values: Tensor) -> Any:
        return values - values.mean(1, keepdim=True) if isinstance(module, nn.AdaptiveAvgPool2d) else values

    handle = nn.modules.module.register_module_forward_hook(centred)
    try:
        with torch.no_grad():
            assert record(PLAIN["global pooling"]().eval(), torch.zeros(3, 2, 8, 8)) is None
    finally:
        handle.remove()


@pytest.mark.parametrize("name", ["swallowing", "looking for tensors", "called", "counting", "shape of a selection"])
def test_what_depends_on_values_is_refused(name: str) -> None:
    with pytest.raises((LoadError, UnsupportedError)):
        load(OTHERS[name](), input_shape=(2, 8, 8))


def test_what_is_not_understood_is_exported() -> None:
    """Parametric leaky ReLUs are recorded as a kernel of ATen's own."""
    module, images = dense(nn.PReLU(12)).eval(), torch.zeros(3, 2, 8, 8)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert record(module, images) is not None
        network = trace(module, images, "leaky")[1].network
        points = torch.randn(5, 2, 8, 8)
        torch.testing.assert_close(network(points.flatten(1)), module(points))


def test_no_compiler_is_imported_for_a_plain_module() -> None:
    """Its import takes longer than all else."""
    code = (
        "import sys, relucert; from torch import nn;"
        "relucert.load(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3), nn.Softmax(1)));"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
