"""The networks that are timed. Those not bundled are trained for a moment on the bundled images: weights as they
come out of training, from a seed, without any download."""

from __future__ import annotations

import itertools

import torch
from torch import nn

import relucert
from bench.algorithm1 import Layers
from relucert.data import bundled
from relucert.network import Linear, Network


def trained(*sizes: int, steps: int = 60) -> Network:
    """A network of these layer sizes that has learnt some labels of the bundled images (or of noise, if larger)."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layer = nn.Linear(inputs, outputs)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    data = images(sizes[0])
    labels = torch.arange(len(data)) % sizes[-1]
    optimiser = torch.optim.Adam(model.parameters(), 1e-4)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(data), labels).backward()
        optimiser.step()
    return relucert.load(model)


class _Block(nn.Module):
    """Two convolutions with batch normalisation and a skip connection."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = _normalised(before, after, 3, stride)
        self.second = _normalised(after, after, 3, 1)
        self.skip = nn.Identity() if before == after else _normalised(before, after, 1, stride)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        inner = self.second(torch.relu(self.first(images)))
        return torch.relu(inner + self.skip(images))


def resnet18(width: int = 64, classes: int = 1000) -> nn.Module:
    """ResNet-18's layers, untrained, with weights so small that intervals tell something."""
    torch.manual_seed(0)
    layers = [_normalised(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = width
    for after, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
        layers += [_Block(before, after, stride), _Block(after, after, 1)]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)).eval()


def _normalised(before: int, after: int, kernel: int, stride: int) -> nn.Module:
    convolution = nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False)
    with torch.no_grad():
        convolution.weight *= 0.15
    return nn.Sequential(convolution, nn.BatchNorm2d(after))


def images(size: int) -> torch.Tensor:
    data = bundled().images
    if size == data.shape[1]:
        return data
    return torch.rand(20, size, generator=torch.Generator().manual_seed(1)) - 0.5


def layers(network: Network) -> Layers:
    """A chain's weights for the paper's algorithm, in float32 as its authors' code has them."""
    chain = [node.operation for node in network.nodes if isinstance(node.operation, Linear)]
    return Layers([o.weight.float().numpy() for o in chain], [o.bias.float().numpy() for o in chain])
