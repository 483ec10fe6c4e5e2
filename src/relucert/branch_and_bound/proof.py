"""The record of a search, and the file that proves its lower bound."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from relucert.branch_and_bound.nodes import Nodes, Region
from relucert.checker.document import FORMAT
from relucert.network import Network
from relucert.network.fingerprint import fingerprint
from relucert.storage import files


@dataclass
class Certificate:
    """Why a node has no adversarial point up to a radius: slopes and multipliers, or (None) because it has no point."""

    radius: float
    lines: tuple[Tensor, Tensor] | None


@dataclass
class Tree:
    """Every node that was split, by which neuron and into which two, and the last certificate of those that closed."""

    roots: int
    children: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    closed: dict[int, Certificate] = field(default_factory=dict)

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
                continue  # what it proves of a larger ball may be needed still
            lines = None if empty else (nodes.slopes[place], nodes.multipliers[place])
            self.closed[name] = Certificate(radius, lines)

    def rows(self, region: Region, radius: float) -> list[dict[str, Any]]:
        """The nodes that prove a radius, the roots first, each saying where in this list its halves are."""
        neurons = [(value, place) for value in region.values for place in range(region.exact.sizes[value])]
        found: list[dict[str, Any]] = [{} for _ in range(self.roots)]
        waiting = [(name, name) for name in range(self.roots)]
        while waiting:
            name, place = waiting.pop()
            own = self.closed.get(name)
            if own is not None and own.radius >= radius:
                found[place] = {"radius": own.radius, **_lines(region, own)}
                continue
            neuron, *halves = self.children[name]
            found[place] = {"split": list(neurons[neuron]), "halves": [len(found), len(found) + 1]}
            waiting += [(half, len(found) + offset) for offset, half in enumerate(halves)]
            found += [{}, {}]
        return found


def _lines(region: Region, certificate: Certificate) -> dict[str, Any]:
    if certificate.lines is None:
        return {"empty": True}
    slopes, multipliers = (
        {str(made): own[0].nan_to_num(0).tolist() for made, own in region.by_relu(part[None]).items()}
        for part in certificate.lines
    )
    return {"slopes": slopes, "multipliers": multipliers}


def write(
    path: Path, network: Network, region: Region, tree: Tree, label: int, rivals: list[int], radius: float
) -> None:
    """Writes the proof that no adversarial point is within the radius; compressed where the name ends in .gz."""
    document = {
        "format": FORMAT,
        "network": {"name": network.name, "sha256": fingerprint(network)},
        "image": region.centre.tolist(),
        "label": label,
        "rivals": rivals,
        "norm": "inf" if math.isinf(region.norm.p) else region.norm.p,
        "box": None if region.box is None else list(region.box),
        "radius": radius,
        "nodes": tree.rows(region, radius),
    }
    content = json.dumps(document, allow_nan=False).encode()
    files.write(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
