"""Nodes that tighten the intervals of neurons, and their bounds: any activation, in any arithmetic.

A node is a subdomain: where some pre-activations lie in intervals [l, u] that are parts of what is known of them. With
a line around every neuron over its interval, and multipliers of `z <= u` and `z >= l`, one back-substitution bounds a
row there.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.backward import DualVariables, PulledBack, bound_forms
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import CROWN
from relucert.network import Network


class IntervalNodes(NamedTuple):
    """Nodes of search trees: rows to be bounded where pre-activations lie in certain intervals.

    Attributes:
        rows: Which row each is about, (count,).
        lower, upper: The intervals of all neurons, (count, neurons), in float64.
        slopes: The slope of each neuron's line, (count, neurons after their activations). NaN: an ascent begins with
            CROWN's.
        multipliers: Those of the intervals' ends, (count, neurons).
        last: Which neuron was split last, (count,); -1: none was.
    """

    rows: Tensor
    lower: Tensor
    upper: Tensor
    slopes: Tensor
    multipliers: Tensor
    last: Tensor

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.rows)

    def pick(self, indices: Tensor | slice) -> IntervalNodes:
        return IntervalNodes(*(column[indices] for column in self))


class NeuronLayout:
    """Where the neurons of a network's pre-activations, and of its activations' values, stand among all of them.

    Those of the roots of products' factors stand among the former; nobody splits them.
    """

    def __init__(self, network: Network) -> None:
        needed = network.ancestors((network.output,))
        self.sources = _columns(network, [value for value in network.bounded if value in needed])
        self.values = _columns(network, [value for value in network.activations if value in needed])
        self.neurons = sum(network.sizes[value] for value in self.sources)

    def bounds(self, nodes: IntervalNodes, dtype: torch.dtype) -> Bounds:
        return {
            value: Interval(nodes.lower[:, columns], nodes.upper[:, columns]).cast(dtype)
            for value, columns in self.sources.items()
        }

    def duals(self, shares: Tensor, multipliers: Tensor) -> DualVariables:
        return DualVariables(
            {value: shares[:, None, columns] for value, columns in self.values.items()},
            constraints={value: multipliers[:, None, columns] for value, columns in self.sources.items()},
        )


def _columns(network: Network, values: list[int]) -> dict[int, slice]:
    first, columns = 0, {}
    for value in values:
        columns[value] = slice(first, first + network.sizes[value])
        first += network.sizes[value]
    return columns


class NodeBounds:
    """Bounds rows on the outputs over nodes, in one arithmetic."""

    def __init__(self, network: Network, region: Region, rows: Tensor, offsets: Tensor, arithmetic: Arithmetic) -> None:
        """region: A batch of one. rows: (rows, classes); offsets: (rows,)."""
        dtype = arithmetic.dtype
        self.network, self.region, self.arithmetic = network.cast(dtype), region.cast(dtype).clone(), arithmetic
        self.rows, self.offsets, self.layout = rows.to(dtype).clone(), offsets.to(dtype).clone(), NeuronLayout(network)

    def path(self, nodes: IntervalNodes, *, upper: bool = True) -> ReferencePath:
        """The reference path of nodes; upper: for slopes and multipliers of their own."""
        region = self.region.select(torch.zeros(len(nodes.rows), dtype=torch.long))
        bounds = self.layout.bounds(nodes, self.arithmetic.dtype)
        return ReferencePath(self.network, region, bounds, CROWN, self.arithmetic, upper=upper)

    def bound(self, path: ReferencePath, rows: Tensor, shares: Tensor, multipliers: Tensor) -> PulledBack:
        """Lower bounds of the rows (count,) of nodes, (count, 1): they hold where the nodes' intervals do."""
        duals = self.layout.duals(shares.to(self.arithmetic.dtype), multipliers.to(self.arithmetic.dtype))
        forms, offsets = self.rows[rows][:, None], self.offsets[rows][:, None]
        return bound_forms(path, self.network.output, forms, duals=duals, offsets=offsets)

    def lower(self, nodes: IntervalNodes) -> Tensor:
        """Lower bounds of nodes with their slopes and multipliers, (count,)."""
        path = self.path(nodes)
        return self.bound(path, nodes.rows, self.shares(path, nodes.slopes), nodes.multipliers).lower[:, 0]

    def derivatives(self, path: ReferencePath) -> Interval:
        """The least and the largest derivatives of all neurons, (count, neurons after their activations) each."""
        ends = [
            self.network.activations[value].derivatives(*path.bounds[self.network.source(value)])
            for value in self.layout.values
        ]
        return Interval(*(torch.cat(side, 1) for side in zip(*ends, strict=True)))

    def shares(self, path: ReferencePath, slopes: Tensor) -> Tensor:
        """Where between the least and the largest derivative slopes are, 0 to 1; beyond them no line is better."""
        least, largest = self.derivatives(path)
        width = largest - least
        return ((slopes - least) / torch.where(width > 0, width, 1)).nan_to_num(0.5, 1, 0).clamp(0, 1)

    def slopes(self, path: ReferencePath, shares: Tensor) -> Tensor:
        least, largest = self.derivatives(path)
        return (least + shares * (largest - least)).float()
