"""The linear regions of a network: where no ReLU changes between active and inactive, the network is an affine map."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from relucert.network import INPUT, Affine, Network, pull_back, transposed

Pattern = dict[int, Tensor]  # for every value that feeds a ReLU, which of its neurons are active: (batch, size)


def pattern_at(network: Network, points: Tensor) -> Pattern:
    """The activation pattern at points (batch, size)."""
    values = network.values(points)
    return {value: values[value] > 0 for value in network.rectified}


def affine_values(network: Network, pattern: Pattern, points: Tensor) -> list[Tensor]:
    """Every value of the affine map that belongs to an activation pattern.

    points: (batch, size), which may lie outside the pattern's linear region; result: one (batch, size) per value.
    """
    values = [points.unflatten(-1, network.input_shape)]
    for value, node in network.steps():
        if isinstance(node.operation, Affine):
            values.append(node.operation.apply(*(values[source] for source in node.inputs)))
        else:
            source = node.inputs[0]
            values.append(values[source] * pattern[source].unflatten(-1, network.shapes[value]))
    return [value.flatten(1) for value in values]


def form_gradients(network: Network, pattern: Pattern, value: int, forms: Tensor) -> Tensor:
    """The gradients of linear forms on a value with respect to the input, in the linear region of a pattern.

    forms: (batch, forms, size of the value); result: (batch, forms, input size).
    """
    return pull_back(network, value, forms, _LinearRule(network, pattern))[INPUT]


@dataclass(frozen=True, eq=False)
class _LinearRule:
    network: Network
    pattern: Pattern

    def affine(self, value: int, form: Tensor) -> list[Tensor]:
        return transposed(self.network, value, form)

    def relu(self, value: int, source: int, form: Tensor) -> Tensor:
        return form * self.pattern[source][:, None]

    def join(self, value: int, one: Tensor, other: Tensor) -> Tensor:
        return one + other
