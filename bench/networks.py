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


def images(size: int) -> torch.Tensor:
    data = bundled().images
    if size == data.shape[1]:
        return data
    return torch.rand(20, size, generator=torch.Generator().manual_seed(1)) - 0.5


def layers(network: Network) -> Layers:
    """A chain's weights for the paper's algorithm, in float32 as its authors' code has them."""
    chain = [node.operation for node in network.nodes if isinstance(node.operation, Linear)]
    return Layers([o.weight.float().numpy() for o in chain], [o.bias.float().numpy() for o in chain])
