"""The paper's architectures by name: `mnist-3x1024` has three layers, with 1024 neurons in each hidden layer."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass

import torch
from torch import nn

from relucert.errors import InputError

PICTURES = {"mnist": (1, 28, 28), "cifar": (3, 32, 32)}  # colours, rows, columns
CLASSES = 10
BOX = (-0.5, 0.5)
DATA_SETS = {"mnist": "mnist", "cifar": "cifar10"}


@dataclass(frozen=True)
class Architecture:
    """A fully connected network for one data set; inputs lie in BOX."""

    data: str
    layers: int
    width: int

    @property
    def name(self) -> str:
        return f"{self.data}-{self.layers}x{self.width}"

    @property
    def data_set(self) -> str:
        """The data set's name in `relucert.data.load`."""
        return DATA_SETS[self.data]

    @property
    def picture_shape(self) -> tuple[int, ...]:
        """Of the pictures that its flat inputs are made of."""
        return PICTURES[self.data]

    def build(self, seed: int) -> nn.Sequential:
        """The untrained network, determined by the seed."""
        widths = [math.prod(self.picture_shape), *[self.width] * (self.layers - 1), CLASSES]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            steps: list[nn.Module] = []
            for inputs, outputs in itertools.pairwise(widths):
                steps += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*steps[:-1])


def parse_architecture(name: str) -> Architecture:
    match = re.fullmatch(r"(mnist|cifar)-(\d{1,3})x(\d{1,6})", name, re.ASCII)
    if match is None or int(match[2]) < 1 or int(match[3]) < 1:
        raise InputError(
            f"unknown architecture {name!r}; write mnist-MxN or cifar-MxN: M layers, N neurons a hidden one"
        )
    return Architecture(match[1], int(match[2]), int(match[3]))
