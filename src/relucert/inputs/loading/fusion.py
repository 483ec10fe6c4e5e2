"""The last steps of an import: unused nodes go, biases join their layers, products of two values are balanced.

A product is written in squares, `x y = ((k x + y)^2 - (k x - y)^2) / (4 k)`. That holds for every k; its chords and
tangents are as tight as McCormick's planes where k x varies as much as y.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.network import Convolution, Linear, Network, Node, Reshape, Scale, Shape, Shift
from relucert.network.graph import needed_nodes


def tidied(nodes: list[Node], output: int) -> list[Node]:
    """The nodes that this value depends on, with a bias in the layer that it belongs to; it is the last node's."""
    return needed_nodes(_fused(needed_nodes(nodes, output)))


def _fused(nodes: list[Node]) -> list[Node]:
    """Merges a layer without bias and a shift that is its only use into one layer; nothing rounds."""
    uses = Counter(source for node in nodes for source in node.inputs)
    return [_fused_node(node, nodes, uses) for node in nodes]


def _fused_node(node: Node, nodes: list[Node], uses: Counter[int]) -> Node:
    shift, source = node.operation, node.inputs[0]
    if not isinstance(shift, Shift) or source == 0 or uses[source] > 1 or node.exact:  # exact: in a selection
        return node
    before = nodes[source - 1]
    layer = before.operation
    if (
        before.exact
        or not isinstance(layer, Linear | Convolution)
        or bool(layer.bias.any())
        or shift.offset.dtype != layer.bias.dtype
    ):
        return node
    bias = _bias(shift.offset, layer)
    if bias is None:
        return node
    fused = replace(layer, bias=bias)
    roundings = max(node.roundings or 0, before.roundings or 0)
    return Node(fused, before.inputs, roundings=roundings if roundings > fused.roundings else None)


def _bias(offset: Tensor, layer: Linear | Convolution) -> Tensor | None:
    """An offset as the bias of a layer; None where it differs within a channel."""
    if isinstance(layer, Linear):
        return offset.expand(len(layer.weight)).clone()
    if offset.ndim and any(size > 1 for size in offset.shape[-2:]):
        return None
    return offset.flatten().expand(len(layer.weight)).clone()


COUNT = 8  # random inputs at which the spreads of factors are compared
FARTHEST = 20  # the largest exponent of a scale 2^e


class ProductValues(NamedTuple):
    """The values of a product: its factors x and y, `k x`, and the result, which is divided by 4 k."""

    left: int
    right: int
    scaled: int
    result: int


def balanced(nodes: Sequence[Node], products: Sequence[ProductValues], shapes: Sequence[Shape]) -> list[Node]:
    """The nodes with powers of two as the k of every product, chosen by how much its factors vary on random inputs.

    shapes: Of all values, the input's first.
    """
    rescaled = list(nodes)
    if not products:
        return rescaled
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(COUNT, math.prod(shapes[0]), generator=generator, dtype=torch.float64)
    flat = Node(Reshape(shapes[-1], (math.prod(shapes[-1]),)), (len(nodes),))  # as the last value of a network is
    with torch.no_grad():
        values = Network(shapes[0], (*nodes, flat)).cast(torch.float64).values(points)
    for product in products:
        left, right = _spread(values[product.left]), _spread(values[product.right])
        if 0 < left < math.inf and 0 < right < math.inf:
            k = 2.0 ** max(-FARTHEST, min(FARTHEST, round(math.log2(right) - math.log2(left))))
            for value, factor in ((product.scaled, k), (product.result, 0.25 / k)):
                scale = Scale(torch.tensor(factor, dtype=torch.float64), divide=False)
                rescaled[value - 1] = replace(rescaled[value - 1], operation=scale)
    return rescaled


def _spread(values: Tensor) -> float:
    """How much the coordinates vary, in the mean; 0 where that is unknown."""
    return float(values.std(0).mean().nan_to_num(0.0))
