"""The record of cuts at inputs, for a proof: each box that closed, by bounds that the check of proofs repeats."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RECORDED
from relucert.bounding.backward import DualVariables, bound_forms
from relucert.bounding.layerwise import backward
from relucert.bounding.record import lines_of
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import CROWN
from relucert.network import Network

Slopes = dict[int, Tensor]  # by the value of a ReLU, (pairs, 1, size)
ELSEWHERE = 2**48  # the first name that a worker's record gives: names below are those of the boxes that it was given


@dataclass(eq=False)
class CutTree:
    """The cuts of boxes, each at an input and a threshold, and the slopes that closed each row in a box, in float64."""

    network: Network
    prop: Property
    cuts: dict[int, tuple[int, float, int, int]] = field(default_factory=dict)
    leaves: dict[tuple[int, int], dict[str, list[float]]] = field(default_factory=dict)
    boxes: int = 1

    def cut(self, names: Tensor, inputs: Tensor, thresholds: Tensor) -> Tensor:
        """Records cuts of some boxes; returns the names of their halves, all lower ones first: (2 * count,)."""
        count = len(names)
        cuts = zip(names.tolist(), inputs.tolist(), thresholds.tolist(), strict=True)
        for number, (name, index, threshold) in enumerate(cuts):
            self.cuts[name] = (index, threshold, self.boxes + number, self.boxes + count + number)
        fresh = torch.arange(self.boxes, self.boxes + 2 * count)
        self.boxes += 2 * count
        return fresh

    def merge_record(self, part: CutTree, names: Tensor) -> Tensor:
        """Takes over the record of a worker; returns names of boxes, (count,), that it gave, as they are here."""
        shift = self.boxes - ELSEWHERE

        def renamed(name: int) -> int:
            return name + shift if name >= ELSEWHERE else name

        for name, (index, threshold, lower, upper) in part.cuts.items():
            self.cuts[renamed(name)] = index, threshold, renamed(lower), renamed(upper)
        self.leaves.update({(renamed(name), row): slopes for (name, row), slopes in part.leaves.items()})
        self.boxes += part.boxes - ELSEWHERE
        return torch.where(names >= ELSEWHERE, names + shift, names)

    def close(self, region: Region, names: Tensor, rows: Tensor, slopes: Slopes | None) -> Tensor:
        """Which pairs of box and row close by the bounds that a check repeats, (pairs,); they are recorded.

        Args:
            region: One for each pair.
            slopes: Of the rows' lower lines; None: CROWN's.
        """
        network = self.network
        bounds = (
            backward(network, region, CROWN, RECORDED, network.preactivations[-1:]) if network.preactivations else {}
        )
        path = ReferencePath(network, region, bounds, CROWN, RECORDED, upper=True)
        tables = lines_of(path, 1) | (slopes or {})
        forms, offsets = self.prop.rows[0, rows][:, None], self.prop.offsets[0, rows][:, None]
        pulled = bound_forms(path, network.output, forms, duals=DualVariables(tables), offsets=offsets)
        lower = pulled.lower.squeeze(1)
        closed = lower > 0
        for pair in closed.nonzero().flatten().tolist():
            numbers = {
                str(value): RECORDED.slopes(table[pair, 0].nan_to_num(0)).tolist() for value, table in tables.items()
            }
            self.leaves[int(names[pair]), int(rows[pair])] = numbers
        return closed

    def rows(self) -> list[dict[str, Any]]:
        """The nodes of one tree per row, the roots first, each saying where in this list its halves are."""
        count = self.prop.rows.shape[1]
        nodes: list[dict[str, Any]] = [{} for _ in range(count)]
        waiting = [(0, row, row) for row in range(count)]
        while waiting:
            name, row, node = waiting.pop()
            if (name, row) in self.leaves:
                nodes[node] = {"slopes": self.leaves[name, row]}
                continue
            index, threshold, *halves = self.cuts[name]
            nodes[node] = {"cut": [index, threshold], "halves": [len(nodes), len(nodes) + 1]}
            waiting += [(half, row, len(nodes) + offset) for offset, half in enumerate(halves)]
            nodes += [{}, {}]
        return nodes
