"""A network as a chain of dense affine layers with ReLUs between them, where it is one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from relucert.arithmetic.rigor import RIGOROUS
from relucert.common.deadline import check_time
from relucert.errors import UnsupportedError
from relucert.network import Affine, Convolution, Linear, Network, Node, Operation, Relu, Shape


@dataclass(frozen=True, eq=False)
class Layer:
    """`weight @ x + bias`: the network's own numbers where they are stored as such, else within an error of them.

    Attributes:
        weight: (outputs, inputs).
        bias: (outputs,).
        weight_error: How far each weight may be from the true one, (outputs, inputs); None: all are exact.
        bias_error: The same of the biases, (outputs,).
    """

    weight: Tensor
    bias: Tensor
    weight_error: Tensor | None = None
    bias_error: Tensor | None = None

    def noise(self, sizes: Tensor) -> Tensor:
        """How far the outputs may be from the true ones at inputs of at most these absolute values: (outputs,)."""
        if self.weight_error is None or self.bias_error is None:
            return torch.zeros_like(self.bias)
        return RIGOROUS.above(self.weight_error @ sizes + self.bias_error, len(sizes) + 2)


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
            elif not isinstance(node.operation, Relu):
                raise UnsupportedError(f"quadratic certificates need ReLU; value {value} is {node.operation.name}")
            else:
                layers.append(_dense(segment, network.shapes[value - len(segment) - 1]))
                values.append(value - 1)
                segment = []
        layers.append(_dense(segment, network.shapes[len(network.nodes) - len(segment)]))
        return cls(tuple(layers), tuple(values))


def _dense(segment: list[Node], shape: Shape) -> Layer:
    """The affine operations between two ReLUs as one matrix."""
    operations = [node.operation.cast(torch.float64) for node in segment]
    weighted = [operation for operation in operations if not _moves(operation)]
    if len(operations) == 1 and isinstance(operations[0], Linear):
        return Layer(operations[0].weight, operations[0].bias)
    # Products with 1 and sums with 0 are exact.
    exact = len(weighted) == 1 and isinstance(weighted[0], (Linear, Convolution))
    size = prod(shape)
    images = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
    constant, image_error, error = (torch.zeros_like(part) for part in (images[:1], images, images[:1]))
    for operation in operations:
        assert isinstance(operation, Affine)
        check_time()
        if not exact:
            image_error = _error(operation, images, image_error)
            error = _error(operation, constant, error)
            if operation.constant is not None:
                error = RIGOROUS.above(error + RIGOROUS.gamma(operation.terms + 2) * operation.constant.abs(), 3)
        images, constant = operation.linear(images), operation.apply(constant)
    layer = Layer(images.flatten(1).T.contiguous(), constant.flatten())
    return layer if exact else replace(layer, weight_error=image_error.flatten(1).T, bias_error=error.flatten())


def _error(operation: Affine, values: Tensor, errors: Tensor) -> Tensor:
    """How far an operation's linear part may be from the true one, at values within errors of the true ones."""
    gamma = RIGOROUS.gamma(operation.terms + 2)
    moved = operation.absolute.linear(errors + gamma * (values.abs() + errors))
    return RIGOROUS.above(moved, 2 * operation.terms + 12)


def _moves(operation: Operation) -> bool:
    """Whether an affine operation has neither products nor a constant."""
    return isinstance(operation, Affine) and not operation.terms and operation.constant is None
