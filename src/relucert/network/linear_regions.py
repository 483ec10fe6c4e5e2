"""Gradients at points, and the linear regions of a ReLU network: where no neuron changes between active and inactive,
the network is an affine map."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.network import INPUT, Affine, Network, Relu, pull_back, transposed

Pattern = dict[int, Tensor]  # for every value that feeds a ReLU, which of its neurons are active: (batch, size)


def pattern_at(network: Network, points: Tensor) -> Pattern:
    """The activation pattern at points (batch, size)."""
    values = network.values(points)
    return {value: values[value] > 0 for value in network.preactivations}


def affine_values(network: Network, pattern: Pattern, points: Tensor) -> list[Tensor]:
    """Every value of the affine map that belongs to an activation pattern.

    points: (batch, size), which may lie outside the pattern's linear region; result: one (batch, size) per value.
    """
    values = [points.unflatten(-1, network.input_shape)]
    for value, node in network.steps():
        if isinstance(node.operation, Affine):
            values.append(node.operation.apply(*(values[source] for source in node.inputs)))
        elif isinstance(node.operation, Relu):
            source = node.inputs[0]
            values.append(values[source] * pattern[source].unflatten(-1, network.shapes[value]))
        else:
            raise UnsupportedError(f"linear regions are of ReLU networks; value {value} is {node.operation.name}")
    return [value.flatten(1) for value in values]


def form_gradients(network: Network, pattern: Pattern, value: int, forms: Tensor) -> Tensor:
    """The gradients of linear forms on a value with respect to the input, in the linear region of a pattern.

    forms: (batch, forms, size of the value); result: (batch, forms, input size).
    """
    factors = {activation_value: pattern[network.source(activation_value)] for activation_value in network.activations}
    return pulled_gradients(network, factors, value, forms)


def derivatives_at(network: Network, points: Tensor) -> dict[int, Tensor]:
    """The derivative of every activation at points (batch, size), by its value: (batch, size) each."""
    values = network.values(points)
    return {
        activation_value: activation.derivative(values[network.source(activation_value)])
        for activation_value, activation in network.activations.items()
    }


def pulled_gradients(network: Network, derivatives: dict[int, Tensor], value: int, forms: Tensor) -> Tensor:
    """The gradients of linear forms on a value where activations have these derivatives, by their values.

    forms: (batch, forms, size of the value); result: (batch, forms, input size).
    """
    return pull_back(network, value, forms, _GradientRule(network, derivatives))[INPUT]


@dataclass(frozen=True, eq=False)
class _GradientRule:
    network: Network
    derivatives: dict[int, Tensor]

    def affine(self, value: int, form: Tensor) -> list[Tensor]:
        return transposed(self.network, value, form)

    def activation(self, value: int, source: int, form: Tensor) -> Tensor:
        return form * self.derivatives[value][:, None]

    def join(self, value: int, one: Tensor, other: Tensor) -> Tensor:
        return one + other
