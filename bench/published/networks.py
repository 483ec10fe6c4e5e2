"""Networks and images of published tables.

Networks are .npz files: `W0, b0, W1, b1, ...` in order, one row per output neuron. A convolution is 4-dimensional and
has `sI = [stride, padding]`; a ReLU stands after every layer but the last.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from relucert import data
from relucert.network import Convolution, Layer, Linear, Network, Node, Relu, Reshape, Shape


def network_of(path: Path, shape: Shape) -> Network:
    """A network on inputs of this shape."""
    stored = np.load(path)
    operations: list[Layer] = []
    current, number = shape, 0
    while f"W{number}" in stored:
        weight, bias = (torch.from_numpy(stored[f"{name}{number}"]) for name in "Wb")
        if weight.ndim == 4:
            stride, padding = (int(size) for size in stored[f"s{number}"])
            size = (current[1], current[2])
            added: list[Layer] = [
                Convolution(weight, bias, size, (stride, stride), (padding,) * 4, (1, 1), 1)
            ]  # fmt: skip
        else:
            flat = (int(np.prod(current)),)
            added = [*([Reshape(current, flat)] if len(current) > 1 else []), Linear(weight, bias)]
        if number:
            added.insert(0, Relu())
        for operation in added:
            current = operation.shape(current)
        operations += added
        number += 1
    nodes = tuple(Node(operation, (place,)) for place, operation in enumerate(operations))
    return Network(shape, nodes, name=path.stem)


@functools.cache
def _mnist() -> data.Dataset:
    return data.load("mnist", "test", pixels=(0.0, 1.0))


def test_image(number: int, shape: Shape) -> tuple[Tensor, Tensor]:
    """An image of MNIST's test set, pixels / 255, and its label, as a batch of one."""
    images, labels = _mnist().images, _mnist().labels
    assert labels is not None
    place = slice(number, number + 1)
    return images[place].reshape(1, *shape), labels[place]
