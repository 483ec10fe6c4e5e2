"""The affine pieces of a network: wherever every ReLU stays as it is, active or dead, the network is an affine map."""

from __future__ import annotations

from torch import Tensor

from relucert.network import Affine, Network

Pattern = dict[int, Tensor]  # for every value that feeds a ReLU, which of its neurons are active: (batch, size)


def pattern_at(network: Network, points: Tensor) -> Pattern:
    """Which neurons are active at points (batch, size)."""
    values = network.values(points)
    return {value: values[value] > 0 for value in network.rectified}


def piece_values(network: Network, pattern: Pattern, points: Tensor) -> list[Tensor]:
    """Every value, flat, as the affine map of a pattern has it at points (batch, size), which may lie outside."""
    values = [points.unflatten(-1, network.input_shape)]
    for value, node in network.steps():
        if isinstance(node.operation, Affine):
            values.append(node.operation.apply(*(values[source] for source in node.inputs)))
        else:
            source = node.inputs[0]
            values.append(values[source] * pattern[source].unflatten(-1, network.shapes[value]))
    return [value.flatten(1) for value in values]


def pull_back(network: Network, pattern: Pattern, value: int, forms: Tensor) -> Tensor:
    """The gradients, (batch, forms, input size), of linear forms on a value, (batch, forms, size), in a piece."""
    pending = {value: forms}
    for current in range(value, 0, -1):
        if current not in pending:
            continue
        node, form = network.nodes[current - 1], pending.pop(current)
        if isinstance(node.operation, Affine):
            parts = [part.flatten(2) for part in node.operation.transpose(form.unflatten(-1, network.shapes[current]))]
        else:
            parts = [form * pattern[node.inputs[0]][:, None]]
        for source, part in zip(node.inputs, parts, strict=True):
            pending[source] = pending[source] + part if source in pending else part
    return pending[0]
