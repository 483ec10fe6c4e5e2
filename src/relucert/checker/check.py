"""The check of a proof, in ball arithmetic, without any of the code that found it.

It uses the network's stored numbers and the proof file, and nothing else of this library. A proof is a tree for every
row of the property. Its leaves are parts of the region in which some neurons are not negative or not positive; that
the halves of every split are there makes the leaves cover the region. In each leaf the neurons are bounded anew, layer
by layer, and then the row, with the leaf's own slopes and multipliers: any numbers would do, wrong ones prove less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from flint import arb, ctx

from relucert.checker.ball_arithmetic import Bounder, Bounds
from relucert.checker.document import Leaf, Proof, Rejected, Split, image_digest, read
from relucert.loading import load
from relucert.network import Network
from relucert.network.fingerprint import fingerprint

__all__ = ["Claim", "Rejected", "check"]

BITS = 80  # of the midpoints of balls


@dataclass(frozen=True)
class Claim:
    """What was proven: around the image the rows, plus offsets, of the outputs stay positive at every valid input.

    index: the image's number among those that were asked about; image: the SHA-256 of its numbers, as float64 in
    little-endian order. box, scale: as of a `Proof`.
    """

    network: str
    sha256: str
    index: int
    image: str
    rows: list[list[float]]
    offsets: list[float]
    norm: float
    radius: float
    box: tuple[list[float], list[float]] | None
    scale: list[float] | None
    nodes: int
    leaves: int

    @property
    def margins(self) -> tuple[int, list[int]] | None:
        """The label and the rivals, where the rows are the margins of one class over others."""
        if any(self.offsets):
            return None
        pairs = [_margin(row) for row in self.rows]
        labels = {pair[0] for pair in pairs if pair is not None}
        if None in pairs or len(labels) != 1:
            return None
        return labels.pop(), [pair[1] for pair in pairs if pair is not None]

    def __str__(self) -> str:
        where = f"within {self.radius!r} of image {self.index}, norm {self.norm:g}{self._valid()}"
        margins = self.margins
        if margins is None:
            return f"{len(self.rows)} linear forms on the outputs stay positive {where}"
        label, rivals = margins
        if len(rivals) == 1:
            return f"class {rivals[0]} does not catch up with class {label} {where}"
        return f"none of the classes {rivals} catches up with class {label} {where}"

    def _valid(self) -> str:
        scaled = "" if self.scale is None else ", distances in units of the scale of each coordinate"
        if self.box is None:
            return scaled
        low, high = self.box
        if len(set(low)) == len(set(high)) == 1:
            return f", pixels from {low[0]!r} to {high[0]!r}{scaled}"
        return f", a valid range for each coordinate{scaled}"


def _margin(row: list[float]) -> tuple[int, int] | None:
    """The classes of a row that is one score less another."""
    others = [number for number in row if number not in (0.0, 1.0, -1.0)]
    if others or row.count(1.0) != 1 or row.count(-1.0) != 1:
        return None
    return row.index(1.0), row.index(-1.0)


def check(
    path: str | Path,
    network: Network | torch.nn.Module | str | None = None,
    progress: Callable[[int, int], None] | None = None,
    images: torch.Tensor | None = None,
) -> Claim:
    """What a proof file proves about a network (by default the one it names); raises `Rejected` where it does not.

    images: one row per image; where they are given the proof has to be about the one of its number.
    """
    proof = read(Path(path))
    if images is not None:
        _check_image(proof, images)
    known = load(proof.name if network is None else network)
    sha256 = fingerprint(known)
    if sha256 != proof.sha256:
        raise Rejected(f"it is about another network than {known.name}: the SHA-256 of their numbers differ")
    before = ctx.prec
    ctx.prec = BITS
    try:
        leaves = _Walk(proof, known, progress).run()
    finally:
        ctx.prec = before
    return Claim(
        known.name, sha256, proof.index, image_digest(proof.image), proof.rows, proof.offsets, proof.norm,
        proof.radius, proof.box, proof.scale, len(proof.nodes), leaves,
    )  # fmt: skip


def _check_image(proof: Proof, images: torch.Tensor) -> None:
    if proof.index >= len(images):
        raise Rejected(f"it is about image {proof.index}, and there are {len(images)} images")
    if images[proof.index].flatten().double().tolist() != proof.image:
        raise Rejected(f"image {proof.index} of these is another one than it is about")


class _Walk:
    """Visits the nodes from the roots, and every leaf's region with the signs on the way to it."""

    def __init__(self, proof: Proof, network: Network, progress: Callable[[int, int], None] | None) -> None:
        self.proof, self.network, self.progress = proof, network, progress
        self.relus = {(value, network.sizes[value]) for value, node in network.steps() if node.operation.name == "relu"}
        self.bounders: dict[float, Bounder] = {}
        self._check_question()

    def _check_question(self) -> None:
        proof, classes = self.proof, self.network.classes
        if len(proof.image) != self.network.sizes[0]:
            raise Rejected(f"its image has {len(proof.image)} numbers, the network takes {self.network.sizes[0]}")
        if proof.box is not None:
            ends = zip(*proof.box, proof.image, strict=True)
            if not all(low <= pixel <= high for low, high, pixel in ends):
                raise Rejected("its image is no valid input itself")
        if not all(len(row) == classes for row in proof.rows):
            raise Rejected(f"the network has {classes} outputs, its rows another number")
        if len(proof.nodes) < len(proof.rows):
            raise Rejected("a row without a tree")

    def run(self) -> int:
        """How many leaves there are; all of them hold, and nothing is left over."""
        waiting = [(place, place, dict[tuple[int, int], int]()) for place in range(len(self.proof.rows))]
        seen, leaves = set(range(len(waiting))), 0
        while waiting:
            place, row, signs = waiting.pop()
            node = self.proof.nodes[place]
            if isinstance(node, Leaf):
                self._check_leaf(place, node, row, signs)
                leaves += 1
                if self.progress is not None:
                    self.progress(leaves, (len(self.proof.nodes) + len(self.proof.rows)) // 2)
                continue
            self._check_split(place, node, seen)
            seen.update(node.halves)
            for half, sign in zip(node.halves, (1, -1), strict=True):
                waiting.append((half, row, {**signs, (node.value, node.neuron): sign}))
        if len(seen) != len(self.proof.nodes):
            raise Rejected("some nodes belong to no tree")
        return leaves

    def _check_split(self, place: int, node: Split, seen: set[int]) -> None:
        if node.value not in self.network.rectified or not 0 <= node.neuron < self.network.sizes[node.value]:
            raise Rejected(f"node {place} is split by a neuron that the network does not have")
        first, second = node.halves
        inside = all(0 <= half < len(self.proof.nodes) for half in node.halves)
        if first == second or seen & {first, second} or not inside:
            raise Rejected(f"node {place} has no two halves of its own")

    def _check_leaf(self, place: int, leaf: Leaf, row: int, signs: dict[tuple[int, int], int]) -> None:
        if leaf.radius < self.proof.radius:
            raise Rejected(f"leaf {place} is about a smaller region")
        bounder = self._bounder(leaf.radius)
        bounds = bounder.enclose(signs)
        if bounds is None:
            return  # no point has these signs
        if leaf.empty:
            raise Rejected(f"leaf {place} is not empty")
        if not self._least(place, bounder, bounds, row, leaf) > 0:
            raise Rejected(f"leaf {place} does not prove that its row is positive")

    def _least(self, place: int, bounder: Bounder, bounds: Bounds, row: int, leaf: Leaf) -> arb:
        form = [arb(number) for number in self.proof.rows[row]]
        for table in (leaf.slopes, leaf.multipliers):
            if not {(value, len(numbers)) for value, numbers in table.items()} <= self.relus:
                raise Rejected(f"leaf {place} has slopes or multipliers of ReLUs that the network does not have")
        (least,) = bounder.lower([form], self.network.output, bounds, leaf.slopes, leaf.multipliers)
        return least + arb(self.proof.offsets[row])

    def _bounder(self, radius: float) -> Bounder:
        if radius not in self.bounders:
            proof = self.proof
            self.bounders[radius] = Bounder(self.network, proof, radius)
        return self.bounders[radius]
