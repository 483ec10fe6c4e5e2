"""ReLUs of one layer whose pre-activations are multiples of each other are folded, exactly in real arithmetic.

Obfuscated networks, as those of the benchmark relusplitter, write a number z as `relu(z) - relu(-z)`. With
`relu(r z) = r relu(z)` for r > 0 and `relu(z) = z + relu(-z)` the neurons of one direction z contribute

    a relu(z) + b relu(-z) = a z + (a + b) relu(-z)

to the next layer: one ReLU at most, and none where a = -b. What relaxations lost on two ReLUs of one number is gained.
A layer stays as it is where its numbers can't be added without rounding, so both networks are one function of real
numbers. The folded network is for bounds: evaluations in floating point and proofs are about the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.common.deadline import check_time
from relucert.network.add import Add
from relucert.network.convolution import Convolution
from relucert.network.graph import Network, Node
from relucert.network.linear import Linear
from relucert.network.relu import Relu

Neurons = Linear | Convolution


class _Folded(NamedTuple):
    """What a layer, its ReLUs and the next layer become; None for a path that is not needed.

    Attributes:
        linear: The two layers of what needs no ReLU.
        rectified: The layers before and after the ReLUs that are left.
    """

    linear: tuple[Neurons, Neurons] | None
    rectified: tuple[Neurons, Neurons] | None


def fold_split_neurons(network: Network) -> Network:
    """The same function of real numbers, with as few ReLUs as there are directions; the network itself if it has none
    to fold."""
    if network.inference.rounds:
        return network
    folded: dict[int, _Folded] = {}  # by the value of the layer after the ReLUs
    for value, node in network.steps():
        check_time()
        fold = _fold_at(network, node)
        if fold is not None and _replaced(network, value)[0] not in folded:
            folded[value] = fold
    return fold_split_neurons(_rebuilt(network, folded)) if folded else network


def _fold_at(network: Network, node: Node) -> _Folded | None:
    """What a layer after ReLUs becomes together with the layer before them; None where nothing is to fold."""
    after, relu = node.operation, node.inputs[0]
    if not isinstance(after, Neurons) or not relu or len(network.users[relu]) > 1:
        return None
    before_value = network.node(relu).inputs[0]
    if not isinstance(network.node(relu).operation, Relu) or not before_value or len(network.users[before_value]) > 1:
        return None
    before = network.node(before_value).operation
    if not isinstance(before, Neurons) or type(before) is not type(after) or before.weight.dtype != after.weight.dtype:
        return None
    if any(layer.groups > 1 for layer in (before, after) if isinstance(layer, Convolution)):
        return None
    try:
        return _fold(before, after)
    except _InexactError:
        return None


class _InexactError(Exception):
    """A number of the folded layers can't be had exactly."""


def _require(exact: bool) -> None:
    if not exact:
        raise _InexactError


def _fold(before: Neurons, after: Neurons) -> _Folded | None:
    groups = _directions(before)
    if all(len(group) == 1 for group in groups):
        return None
    direct: list[tuple[int, Tensor]] = []  # neurons without ReLU, and their columns of the next layer
    rectified: list[tuple[int, Tensor]] = []
    for group in groups:
        positive = [(neuron, factor) for neuron, factor in group if factor > 0]
        negative = [(neuron, -factor) for neuron, factor in group if factor < 0]
        first = _column(after, positive)
        if not negative:
            rectified.append((positive[0][0], first))
            continue
        direct.append((positive[0][0], first))
        total = _sum(first, _column(after, negative))
        if bool(total.any()):
            neuron, factor = negative[0]  # relu(factor (-z)) stands for relu(-z)
            scaled = total / factor
            _require(torch.equal(scaled * factor, total))
            rectified.append((neuron, scaled))
    linear, bent = (_path(before, after, chosen) if chosen else None for chosen in (direct, rectified))
    if linear is not None and bent is not None:
        linear = linear[0], replace(linear[1], bias=torch.zeros_like(after.bias))  # the sum has the bias once
    return _Folded(linear, bent)


def _directions(layer: Neurons) -> list[list[tuple[int, float]]]:
    """The neurons by direction, each with its factor, relative to the first of its direction, which has the factor 1.

    Rows, bias included, are compared after they are scaled by a power of two and a sign, which rounds nothing.
    """
    rows = torch.cat([layer.weight.flatten(1), layer.bias[:, None]], 1).double()
    largest = rows.abs().amax(1, keepdim=True)
    scales = torch.ldexp(torch.ones_like(largest), torch.frexp(largest)[1])
    first = (rows != 0).double().argmax(1, keepdim=True)
    scales = torch.where(rows.gather(1, first) < 0, -scales, scales)
    directions = rows / scales + 0.0  # without negative zeros
    exact = (directions * scales == rows).all(1) & (largest[:, 0] > 0)
    by_direction: dict[bytes, list[tuple[int, float]]] = {}
    for neuron, (direction, scale) in enumerate(zip(directions.numpy(), scales[:, 0].tolist(), strict=True)):
        key = direction.tobytes() if bool(exact[neuron]) else neuron.to_bytes(8, "little")
        by_direction.setdefault(key, []).append((neuron, scale))
    return [[(neuron, scale / group[0][1]) for neuron, scale in group] for group in by_direction.values()]


def _column(after: Neurons, members: Sequence[tuple[int, float]]) -> Tensor:
    """The sum of the next layer's columns of some neurons, times their factors."""
    columns = []
    for neuron, factor in members:
        column = after.weight[:, neuron].double()
        columns.append(column * factor)
        _require(torch.equal(columns[-1] / factor, column))
    return reduce(_sum, columns)


def _sum(first: Tensor, second: Tensor) -> Tensor:
    """The sum in float64, where it does not round, which its error (Knuth's two-sum) shows."""
    total = first + second
    high = total - first
    error = (first - (total - high)) + (second - high)
    _require(not bool(error.any()) and bool(total.isfinite().all()))
    return total


def _path(before: Neurons, after: Neurons, columns_by_neuron: Sequence[tuple[int, Tensor]]) -> tuple[Neurons, Neurons]:
    """Both layers with some neurons between them, and their columns, where the precision holds these."""
    neurons = [neuron for neuron, _ in columns_by_neuron]
    columns = torch.stack([column for _, column in columns_by_neuron], 1)
    weight = columns.to(after.weight.dtype)
    _require(torch.equal(weight.double(), columns))
    return replace(before, weight=before.weight[neurons], bias=before.bias[neurons]), replace(after, weight=weight)


def _rebuilt(network: Network, folded: dict[int, _Folded]) -> Network:
    """The network with the folded layers in the place of what they stand for."""
    nodes: list[Node] = []
    renumbered = {0: 0}
    skipped = {value for last in folded for value in _replaced(network, last)}

    def append(operation: Neurons | Relu | Add, *inputs: int) -> int:
        nodes.append(Node(operation, inputs))
        return len(nodes)

    for value, node in network.steps():
        if value in folded:
            source = renumbered[network.node(_replaced(network, value)[0]).inputs[0]]
            ends = []
            for layers, bends in ((folded[value].linear, False), (folded[value].rectified, True)):
                if layers is not None:
                    inner = append(layers[0], source)
                    ends.append(append(layers[1], append(Relu(), inner) if bends else inner))
            renumbered[value] = append(Add(), *ends) if len(ends) > 1 else ends[0]
        elif value not in skipped:
            nodes.append(replace(node, inputs=tuple(renumbered[source] for source in node.inputs)))
            renumbered[value] = len(nodes)
    return replace(network, nodes=tuple(nodes))


def _replaced(network: Network, last: int) -> tuple[int, int]:
    """The values of the layer before and of its ReLUs, by that of the layer after them."""
    relu = network.node(last).inputs[0]
    return network.node(relu).inputs[0], relu
