"""The record of a search, and the file that proves its lower bound."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from relucert.branch_and_bound.nodes import NodeBounder, Nodes
from relucert.checker.document import FORMAT, UNREADABLE, image_digest, unpacked
from relucert.network import Network
from relucert.network.fingerprint import fingerprint
from relucert.query.property import Property
from relucert.region import RegionShape
from relucert.storage import files


@dataclass
class ClosedNode:
    """Why a node has no violation up to a radius: slopes and multipliers, or (None) because it has no point."""

    radius: float
    duals: tuple[Tensor, Tensor] | None


@dataclass
class Tree:
    """Every node that was split, by which neuron and into which two, and why those that closed did."""

    roots: int
    children: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    closed: dict[int, ClosedNode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._next = self.roots

    def split(self, names: Tensor, neurons: Tensor) -> Tensor:
        """Names for both halves of some nodes, all the positive ones first."""
        count = len(names)
        for place, (name, neuron) in enumerate(zip(names.tolist(), neurons.tolist(), strict=True)):
            self.children[name] = (neuron, self._next + place, self._next + count + place)
        fresh = names.new_tensor(range(self._next, self._next + 2 * count))
        self._next += 2 * count
        return fresh

    def close(self, nodes: Nodes, radius: float, empty: bool) -> None:
        for place, name in enumerate(nodes.names.tolist()):
            if name in self.closed and self.closed[name].radius >= radius:
                continue  # what it proves of a larger region may be needed still
            duals = None if empty else (nodes.slopes[place], nodes.multipliers[place])
            self.closed[name] = ClosedNode(radius, duals)

    def rows(self, bounder: NodeBounder, radius: float) -> list[dict[str, Any]]:
        """The nodes that prove a radius, the roots first, each saying where in this list its halves are."""
        neurons = [(value, place) for value in bounder.values for place in range(bounder.exact.sizes[value])]
        rows: list[dict[str, Any]] = [{} for _ in range(self.roots)]
        waiting = [(name, name) for name in range(self.roots)]
        while waiting:
            name, place = waiting.pop()
            closed = self.closed.get(name)
            if closed is not None and closed.radius >= radius:
                rows[place] = {"radius": closed.radius, **_duals(bounder, closed)}
                continue
            neuron, *halves = self.children[name]
            rows[place] = {"split": list(neurons[neuron]), "halves": [len(rows), len(rows) + 1]}
            waiting += [(half, len(rows) + offset) for offset, half in enumerate(halves)]
            rows += [{}, {}]
        return rows


def _duals(bounder: NodeBounder, closed: ClosedNode) -> dict[str, Any]:
    if closed.duals is None:
        return {"empty": True}
    slopes, multipliers = (
        {str(value): table[0].nan_to_num(0).tolist() for value, table in bounder.by_relu(part[None]).items()}
        for part in closed.duals
    )
    return {"slopes": slopes, "multipliers": multipliers}


def claimed(network: Network, index: int, image: Tensor, shape: RegionShape, prop: Property) -> dict[str, Any]:
    """What a proof is about, but for the radius: image number `index`, (size,), and a property with a batch of one."""
    values = image.double().tolist()
    return {
        "format": FORMAT,
        "network": {"name": network.name, "sha256": fingerprint(network)},
        "image": {"index": index, "sha256": image_digest(values), "values": values},
        "rows": prop.rows[0].tolist(),
        "offsets": prop.offsets[0].tolist(),
        "norm": "inf" if math.isinf(shape.norm.p) else shape.norm.p,
        "box": None if shape.box is None else [_ends(end) for end in shape.box],
        "scale": None if shape.scale is None else shape.scale.tolist(),
    }


def is_about(content: bytes, claim: dict[str, Any]) -> bool:
    """Whether a file's content is a proof of the same claim, whatever its radius."""
    try:
        document = json.loads(unpacked(content))
    except UNREADABLE:
        return False
    return isinstance(document, dict) and all(document.get(name) == value for name, value in claim.items())


def write(path: Path, claim: dict[str, Any], bounder: NodeBounder, tree: Tree, radius: float) -> None:
    """Writes the proof that no violation is within the radius; compressed where the name ends in .gz."""
    document = {**claim, "radius": radius, "nodes": tree.rows(bounder, radius)}
    content = json.dumps(document, allow_nan=False).encode()
    files.write(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _ends(end: Tensor) -> list[float | None]:
    """One number per coordinate; None where there is no limit."""
    return [value if math.isfinite(value) else None for value in end.tolist()]
