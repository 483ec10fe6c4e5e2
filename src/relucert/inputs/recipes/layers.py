"""The layers of convolutional architectures and of transformers, and the small weights that training with interval
bounds starts from."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn


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
