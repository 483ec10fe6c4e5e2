"""Two networks of equal structure as one: every layer of it holds a layer of the first and one of the second.

A network that was joined of two, such as an original and a compressed copy, computes one after the other. Side by side
their neurons become pairs, `z` in the first half of a layer and `z'` in the second, whose differences can be bounded
(`bounding/pairs.py`). Weights become block diagonal, nothing is added or rounded, so both networks are one function of
real numbers.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from relucert.network.add import Add
from relucert.network.graph import Network, Node
from relucert.network.index_map import IndexMap
from relucert.network.linear import Linear
from relucert.network.registry import Layer
from relucert.network.relu import Relu
from relucert.network.reshape import Reshape
from relucert.network.shift import Shift

MOST_NEURONS = 512  # of a layer: block diagonal matrices have as many zeros as weights
MOST_SHARED = 4  # operations before the two networks, such as one that gives both the same input


def side_by_side(network: Network) -> Network:
    """The same function of real numbers with its two branches side by side; the network itself if it has no such
    branches."""
    if network.inference.rounds:
        return network
    for count in range(len(network.nodes) // 2, 0, -1):
        for shared in range(min(MOST_SHARED, len(network.nodes) - 2 * count) + 1):
            if _are_twins(network, shared, count):
                return _stacked(network, shared, count)
    return network


def paired_activations(network: Network) -> tuple[int, ...]:
    """The values of ReLUs that hold two networks side by side: what they feed are block diagonal matrices."""
    return tuple(
        value
        for value, activation in network.activations.items()
        if isinstance(activation, Relu) and network.sizes[value] % 2 == 0 and _feeds_blocks(network, value)
    )


def _feeds_blocks(network: Network, value: int) -> bool:
    operations = [network.node(user).operation for user in network.users[value]]
    return bool(operations) and all(
        isinstance(operation, Linear) and _is_block_diagonal(operation) for operation in operations
    )


def _is_block_diagonal(operation: Linear) -> bool:
    (rows, columns), weight = (size // 2 for size in operation.weight.shape), operation.weight
    return len(weight) % 2 == 0 and not bool(weight[:rows, columns:].any()) and not bool(weight[rows:, :columns].any())


def _are_twins(network: Network, shared: int, count: int) -> bool:
    """Whether, after some shared nodes, `count` nodes do what the next `count` do, with weights of their own."""
    first, second = network.nodes[shared : shared + count], network.nodes[shared + count : shared + 2 * count]
    return any(isinstance(node.operation, Relu) for node in first) and all(
        type(node.operation) is type(twin.operation)
        and isinstance(node.operation, _takes(node, shared))
        and tuple(source + count if source > shared else source for source in node.inputs) == twin.inputs
        and network.shapes[value] == network.shapes[value + count]
        and network.sizes[value] <= MOST_NEURONS
        for value, (node, twin) in enumerate(zip(first, second, strict=True), shared + 1)
    )


def _takes(node: Node, shared: int) -> tuple[type[Layer], ...]:
    """The operations that both networks may have on values of their own, or on what they share."""
    if all(source > shared for source in node.inputs):
        return Linear, Relu, Reshape, Shift, Add
    return (Linear, IndexMap) if len(node.inputs) == 1 else ()


def _stacked(network: Network, shared: int, count: int) -> Network:
    nodes = list(network.nodes[:shared])
    for value in range(shared + 1, shared + count + 1):
        nodes.append(replace(network.node(value), operation=_both(network, value, count, shared)))
    renumbered = {value: value for value in range(shared + 1)}
    for value, node in list(network.steps())[shared + 2 * count :]:
        for source in node.inputs:
            if source not in renumbered:
                nodes.append(_half(network, source, shared, count))
                renumbered[source] = len(nodes)
        nodes.append(replace(node, inputs=tuple(renumbered[source] for source in node.inputs)))
        renumbered[value] = len(nodes)
    if len(network.nodes) == shared + 2 * count:  # which gives the second network's output alone
        nodes.append(_half(network, network.output, shared, count))
    return replace(network, nodes=tuple(nodes))


def _both(network: Network, value: int, count: int, shared: int) -> Layer:
    """The operation on both halves of a layer, which is flat."""
    node, size = network.node(value), network.sizes[value]
    first, second = node.operation, network.node(value + count).operation
    if isinstance(first, Linear) and isinstance(second, Linear):
        weights = first.weight, second.weight
        weight = torch.cat(weights) if node.inputs[0] <= shared else torch.block_diag(*weights)
        return Linear(weight, torch.cat([first.bias, second.bias]))
    if isinstance(first, Shift) and isinstance(second, Shift):
        return Shift(torch.cat([shift.offset.expand(network.shapes[value]).flatten() for shift in (first, second)]))
    if isinstance(first, IndexMap) and isinstance(second, IndexMap):
        return IndexMap(first.indices + second.indices, first.before, (2 * size,))
    return Reshape((2 * size,), (2 * size,)) if isinstance(first, Reshape) else first


def _half(network: Network, value: int, shared: int, count: int) -> Node:
    """What picks one network's value out of both, in its own shape."""
    size, second = network.sizes[value], value > shared + count
    positions = torch.arange(size) + size * second
    return Node(IndexMap.of(positions.reshape(network.shapes[value]), (2 * size,)), (value - count * second,))
