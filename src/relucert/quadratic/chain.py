"""A network as a chain of dense affine layers with ReLUs between them, where it is one."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.network import Affine, Convolution, Linear, Network, Node


@dataclass(frozen=True, eq=False)
class Layer:
    """`weight @ x + bias`, exactly the network's own numbers; weight: (outputs, inputs); bias: (outputs,)."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, eq=False)
class Chain:
    """Layers with a ReLU after each but the last, and the values of the network that they compute.

    Attributes:
        layers: In float64, those of the hidden neurons first, that of the class scores last.
        values: The pre-activations of every hidden layer, as values of the network.
    """

    layers: tuple[Layer, ...]
    values: tuple[int, ...]

    @classmethod
    def of(cls, network: Network) -> Chain:
        """Raises UnsupportedError where the network is no such chain."""
        layers, values, segment = [], [], []
        for value, node in network.steps():
            if node.inputs != (value - 1,):
                raise UnsupportedError(
                    f"quadratic certificates need a chain of layers, and the network branches at value {value}, "
                    f"{node.operation.name}"
                )
            if isinstance(node.operation, Affine):
                segment.append(node)
            else:
                layers.append(_dense(segment, network.shapes[value - len(segment) - 1]))
                values.append(value - 1)
                segment = []
        layers.append(_dense(segment, network.shapes[len(network.nodes) - len(segment)]))
        return cls(tuple(layers), tuple(values))


def _dense(segment: list[Node], shape: tuple[int, ...]) -> Layer:
    """The affine operations between two ReLUs as one matrix, exactly: all but one of them only move numbers."""
    weighted = [node.operation for node in segment if not _moves(node)]
    if len(weighted) != 1 or not isinstance(weighted[0], (Linear, Convolution)):
        names = ", ".join(node.operation.name for node in segment) or "nothing"
        raise UnsupportedError(
            f"quadratic certificates need one fully connected or convolutional layer before each ReLU and at the end, "
            f"not {names}"
        )
    if len(segment) == 1 and isinstance(weighted[0], Linear):
        return Layer(weighted[0].weight.double(), weighted[0].bias.double())
    size = prod(shape)
    images = torch.eye(size, dtype=torch.float64).reshape(size, *shape)  # products with 1 and sums with 0 are exact
    zero = torch.zeros(1, *shape, dtype=torch.float64)
    for node in segment:
        operation = node.operation.cast(torch.float64)
        assert isinstance(operation, Affine)
        images, zero = operation.linear(images), operation.apply(zero)
    return Layer(images.flatten(1).T.contiguous(), zero.flatten())


def _moves(node: Node) -> bool:
    """Whether an affine operation has neither products nor a constant."""
    operation = node.operation
    return isinstance(operation, Affine) and not operation.terms and operation.constant is None
