"""Architectures by name, and their layers: fully connected ones such as `mnist-3x1024`, and a table of convolutional
ones and of a vision transformer."""

from __future__ import annotations

import itertools
import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from relucert.errors import InputError

PICTURES = {"mnist": (1, 28, 28), "cifar": (3, 32, 32)}  # colours, rows, columns
CLASSES = 10  # of both data sets
BOX = (-0.5, 0.5)  # the lowest and the highest pixel, as in the paper
DATA_SETS = {"mnist": "mnist", "cifar": "cifar10"}  # by their names in architectures
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "gelu": nn.GELU}


@dataclass(frozen=True)
class Convolve:
    """A convolution and a ReLU; normalised: with batch normalisation between them."""

    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0
    normalised: bool = False

    def modules(self, inputs: int) -> list[nn.Module]:
        """The layers, for this many input channels."""
        bias = not self.normalised
        convolution = nn.Conv2d(inputs, self.channels, self.kernel, self.stride, self.padding, bias=bias)
        return [convolution, *([nn.BatchNorm2d(self.channels)] if self.normalised else []), nn.ReLU()]

    def length(self, axis: int) -> int:
        """The output's height or width, from the input's."""
        return (axis + 2 * self.padding - self.kernel) // self.stride + 1


@dataclass(frozen=True)
class Block:
    """A residual block of two convolutions 3 x 3, with batch normalisation; a ReLU follows."""

    channels: int
    stride: int = 1

    def modules(self, inputs: int) -> list[nn.Module]:
        """The layers, for this many input channels."""
        return [ResidualBlock(inputs, self.channels, self.stride), nn.ReLU()]

    def length(self, axis: int) -> int:
        """The output's height or width, from the input's."""
        return (axis - 1) // self.stride + 1


Step = Convolve | Block


class ResidualBlock(nn.Module):
    """The sum of two convolutions and of a shortcut: the input itself, or a convolution 1 x 1 where shapes differ."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            *Convolve(channels, 3, stride, 1, normalised=True).modules(inputs),
            *Convolve(channels, 3, 1, 1, normalised=True).modules(channels)[:-1],
        )
        shortcut = Convolve(channels, 1, stride, normalised=True).modules(inputs)[:-1]
        self.shortcut = nn.Sequential(*([] if stride == 1 and inputs == channels else shortcut))

    def forward(self, images: Tensor) -> Tensor:
        total: Tensor = self.path(images) + self.shortcut(images)
        return total


class Patches(nn.Module):
    """Pictures as tokens: one vector of features for each patch, with a learnt position added; (batch, patches,
    features)."""

    def __init__(self, colours: int, count: int, features: int, size: int, stride: int) -> None:
        super().__init__()
        self.embedding = nn.Conv2d(colours, features, size, stride)
        self.positions = nn.Parameter(0.1 * torch.randn(count, features))

    def forward(self, pictures: Tensor) -> Tensor:
        tokens: Tensor = self.embedding(pictures)
        return tokens.flatten(2).transpose(1, 2) + self.positions


class TransformerBlock(nn.Module):
    """Attention with several heads, then a hidden layer of GELUs, each added to what it starts from, which is
    normalised over the batch."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first_norm, self.second_norm = nn.BatchNorm1d(features), nn.BatchNorm1d(features)
        self.query, self.key, self.value, self.mix = (nn.Linear(features, features) for _ in range(4))
        self.hidden = nn.Sequential(nn.Linear(features, 2 * features), nn.GELU(), nn.Linear(2 * features, features))

    def forward(self, tokens: Tensor) -> Tensor:
        """From tokens to tokens, (batch, count, features)."""
        tokens = tokens + self._attention(_normalised(self.first_norm, tokens))
        added: Tensor = self.hidden(_normalised(self.second_norm, tokens))
        return tokens + added

    def _attention(self, tokens: Tensor) -> Tensor:
        queries, keys, values = (
            layer(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = queries @ keys.transpose(-1, -2) / queries.shape[-1] ** 0.5
        mixed: Tensor = self.mix((scores.softmax(-1) @ values).transpose(1, 2).flatten(2))
        return mixed


def _normalised(norm: nn.BatchNorm1d, tokens: Tensor) -> Tensor:
    normalised: Tensor = norm(tokens.transpose(1, 2))
    return normalised.transpose(1, 2)


class Mean(nn.Module):
    """The mean of all tokens."""

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens.mean(1)


class Architecture(ABC):
    """A network for one data set; inputs lie in BOX."""

    data: str

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def _steps(self) -> list[nn.Module]:
        """The layers, with weights from PyTorch's global generator."""

    @property
    def data_set(self) -> str:
        """The data set's name in `relucert.data.load`."""
        return DATA_SETS[self.data]

    @property
    def picture_shape(self) -> tuple[int, ...]:
        """The shape of the pictures that its inputs are."""
        return PICTURES[self.data]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, without the batch."""
        return self.picture_shape

    def build(self, seed: int, small: bool = False) -> nn.Sequential:
        """The untrained network, determined by the seed; small: with the small weights for interval bounds."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = nn.Sequential(*self._steps())
            if small:
                initialise_small(module)
        return module


@dataclass(frozen=True)
class FullyConnected(Architecture):
    """The paper's fully connected networks: M layers, N neurons in each hidden layer, on flat inputs."""

    data: str
    layers: int
    width: int
    activation: str = "relu"

    @property
    def name(self) -> str:
        return f"{self.data}-{self.layers}x{self.width}" + ("" if self.activation == "relu" else f"-{self.activation}")

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (math.prod(self.picture_shape),)

    def _steps(self) -> list[nn.Module]:
        widths = [*self.input_shape, *[self.width] * (self.layers - 1), CLASSES]
        steps: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            steps += [nn.Linear(inputs, outputs), ACTIVATIONS[self.activation]()]
        return steps[:-1]


@dataclass(frozen=True)
class Convolutional(Architecture):
    """Convolutions and residual blocks on pictures, then a hidden layer and the layer of the classes."""

    data: str
    variant: str
    steps: tuple[Step, ...]
    hidden: int
    activation: str = "relu"

    @property
    def name(self) -> str:
        return f"{self.data}-{self.variant}"

    def _steps(self) -> list[nn.Module]:
        channels, *size = self.picture_shape
        modules: list[nn.Module] = []
        for step in self.steps:
            modules += step.modules(channels)
            channels, size = step.channels, [step.length(axis) for axis in size]
        features = channels * math.prod(size)
        last = [nn.Flatten(), nn.Linear(features, self.hidden), nn.ReLU(), nn.Linear(self.hidden, CLASSES)]
        activation = ACTIVATIONS[self.activation]
        return [activation() if isinstance(module, nn.ReLU) else module for module in (*modules, *last)]


@dataclass(frozen=True)
class VisionTransformer(Architecture):
    """Patches of pictures as tokens, blocks of attention, and the classes from the mean of all tokens."""

    data: str
    size: int
    stride: int
    features: int
    heads: int
    blocks: int

    @property
    def name(self) -> str:
        return f"{self.data}-vit"

    def _steps(self) -> list[nn.Module]:
        colours, *sides = self.picture_shape
        count = math.prod((side - self.size) // self.stride + 1 for side in sides)
        blocks = [TransformerBlock(self.features, self.heads) for _ in range(self.blocks)]
        first = Patches(colours, count, self.features, self.size, self.stride)
        return [first, *blocks, Mean(), nn.Linear(self.features, CLASSES)]


MNIST_CNN = Convolutional("mnist", "cnn", (Convolve(8, 4, 2), Convolve(16, 4, 2)), 100)
MNIST_WIDE = Convolutional("mnist", "cnn-wide", (Convolve(16, 4, 2), Convolve(32, 4, 2)), 128)
CIFAR_CNN = Convolutional("cifar", "cnn", (Convolve(32, 4, 2, 1), Convolve(64, 4, 2, 1)), 256)
CIFAR_RESNET = Convolutional("cifar", "resnet", (Convolve(8, 3, 2, 1, True), Block(16, 2), Block(16)), 100)
MNIST_GELU = Convolutional("mnist", "cnn-gelu", MNIST_CNN.steps, MNIST_CNN.hidden, "gelu")
MNIST_VIT = VisionTransformer("mnist", size=10, stride=9, features=24, heads=2, blocks=1)
NAMED: dict[str, Architecture] = {
    entry.name: entry for entry in (MNIST_CNN, MNIST_WIDE, CIFAR_CNN, CIFAR_RESNET, MNIST_GELU, MNIST_VIT)
}


def initialise_small(module: nn.Module) -> None:
    """Draws weights with which the widths of interval bounds neither grow nor shrink from layer to layer.

    Standard deviation sqrt(2 pi) over the number of inputs, as in "Fast Certified Robust Training with Short Warmup"
    (Shi et al., NeurIPS 2021); biases are 0.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.normal_(layer.weight, std=math.sqrt(2 * math.pi) / layer.weight[0].numel())
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def parse_architecture(name: str) -> Architecture:
    if name in NAMED:
        return NAMED[name]
    smooth = "|".join(activation for activation in ACTIVATIONS if activation != "relu")
    match = re.fullmatch(rf"(mnist|cifar)-(\d{{1,3}})x(\d{{1,6}})(?:-({smooth}))?", name, re.ASCII)
    if match is None or int(match[2]) < 1 or int(match[3]) < 1:
        raise InputError(
            f"unknown architecture {name!r}; write mnist-MxN or cifar-MxN: M layers, N neurons a hidden one, of ReLUs "
            f"or with -{smooth.replace('|', ', -')} of others; or one of {', '.join(NAMED)}"
        )
    return FullyConnected(match[1], int(match[2]), int(match[3]), match[4] or "relu")
