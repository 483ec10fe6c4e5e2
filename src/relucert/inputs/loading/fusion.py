"""The last steps of an import: unused nodes go, biases join their layers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from torch import Tensor

from relucert.network import Convolution, Linear, Node, Shift
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
