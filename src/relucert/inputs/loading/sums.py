"""Sums of several operations in which one number meets the roundings of all, whatever their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relucert.errors import NetworkError
from relucert.inputs.loading.selections import check_selections
from relucert.network import Add, Affine, Convolution, Linear, Network, Node


def joint_sums(network: Network) -> list[Node]:
    """The nodes, with operations that follow one another without a ReLU taken for terms of one sum.

    Every number of such a sum may meet as many roundings as its last operation would, written out in one.
    """
    nodes: Sequence[Node] = network.nodes
    try:
        check_selections(network)
    except NetworkError:  # earlier versions merged nodes of a maximum into the layer before it
        nodes = [replace(node, exact=False) for node in nodes]
    roundings = [0, *(_roundings(node) for node in nodes)]
    counts = [0]
    for value, node in enumerate(nodes, start=1):
        counts.append(_count(node, roundings[value], [counts[source] for source in node.inputs]))
    for value in range(len(nodes), 0, -1):
        node = nodes[value - 1]
        if isinstance(node.operation, Affine) and not node.exact:
            for source in node.inputs:
                if counts[source]:
                    counts[source] = max(counts[source], counts[value])
    return [
        replace(node, roundings=counts[value]) if 0 < roundings[value] < counts[value] else node
        for value, node in enumerate(nodes, start=1)
    ]


def _roundings(node: Node) -> int:
    return node.operation.roundings if isinstance(node.operation, Affine) and not node.exact else 0


def _count(node: Node, roundings: int, before: Sequence[int]) -> int:
    """The roundings of a value written as one sum of what does not round; 0 where its numbers are computed already."""
    if not isinstance(node.operation, Affine) or node.exact:
        return 0
    if isinstance(node.operation, Linear | Convolution) and roundings:
        return roundings * max(1, *before, 1)
    return roundings + (sum(before) if isinstance(node.operation, Add) else max(before))
