"""The check of a proof, in ball arithmetic, without any of the code that found it.

It uses the network's stored numbers and the proof file, and nothing else of this library. A proof is a tree for every
rival. Its leaves are parts of the ball in which some neurons are not negative or not positive; that the halves of
every split are there makes the leaves cover the ball. In each leaf the neurons are bounded anew, layer by layer, and
then the margin, with the leaf's own slopes and multipliers: any numbers would do, wrong ones only prove less.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from flint import arb, ctx

from relucert.checker.ball_arithmetic import Bounder, Bounds
from relucert.checker.document import Leaf, Proof, Rejected, Split, read
from relucert.loading import load
from relucert.network import Network
from relucert.network.fingerprint import fingerprint

__all__ = ["Claim", "Rejected", "check"]

BITS = 80  # of the midpoints of balls


@dataclass(frozen=True)
class Claim:
    """What was proven: around the image no valid input within the radius makes a rival catch up with the label."""

    network: str
    sha256: str
    image: str  # the SHA-256 of its numbers, as float64 in little-endian order
    label: int
    rivals: tuple[int, ...]
    norm: float
    radius: float
    box: tuple[float, float] | None
    nodes: int
    leaves: int

    def __str__(self) -> str:
        rivals = f"class {self.rivals[0]}" if len(self.rivals) == 1 else f"none of the classes {list(self.rivals)}"
        catches = "does not catch up" if len(self.rivals) == 1 else "catches up"
        valid = "" if self.box is None else f", pixels from {self.box[0]!r} to {self.box[1]!r}"
        return (
            f"{rivals} {catches} with class {self.label} within {self.radius!r} of the image, norm {self.norm:g}{valid}"
        )


def check(
    path: str | Path,
    network: Network | torch.nn.Module | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Claim:
    """What a proof file proves about a network (by default the one it names); raises `Rejected` where it does not."""
    proof = read(Path(path))
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
        known.name, sha256, _digest(proof.image), proof.label, proof.rivals, proof.norm, proof.radius, proof.box,
        len(proof.nodes), leaves,
    )  # fmt: skip


def _digest(image: list[float]) -> str:
    return hashlib.sha256(struct.pack(f"<{len(image)}d", *image)).hexdigest()


class _Walk:
    """Visits the nodes from the roots, and every leaf's region with the signs on the way to it."""

    def __init__(self, proof: Proof, network: Network, progress: Callable[[int, int], None] | None) -> None:
        self.proof, self.network, self.progress = proof, network, progress
        self.relus = {(made, network.sizes[made]) for made, node in network.steps() if node.operation.name == "relu"}
        self.bounders: dict[float, Bounder] = {}
        self._check_question()

    def _check_question(self) -> None:
        proof, classes = self.proof, self.network.classes
        if len(proof.image) != self.network.sizes[0]:
            raise Rejected(f"its image has {len(proof.image)} numbers, the network takes {self.network.sizes[0]}")
        if proof.box is not None and not all(proof.box[0] <= pixel <= proof.box[1] for pixel in proof.image):
            raise Rejected("its image is no valid input itself")
        if not all(0 <= own < classes for own in (proof.label, *proof.rivals)):
            raise Rejected(f"the network has the classes 0 to {classes - 1}")
        if len(proof.nodes) < len(proof.rivals):
            raise Rejected("a rival without a tree")

    def run(self) -> int:
        """How many leaves there are; all of them hold, and nothing is left over."""
        waiting = [(place, rival, dict[tuple[int, int], int]()) for place, rival in enumerate(self.proof.rivals)]
        seen, leaves = set(range(len(waiting))), 0
        while waiting:
            place, rival, signs = waiting.pop()
            node = self.proof.nodes[place]
            if isinstance(node, Leaf):
                self._check_leaf(place, node, rival, signs)
                leaves += 1
                if self.progress is not None:
                    self.progress(leaves, (len(self.proof.nodes) + len(self.proof.rivals)) // 2)
                continue
            self._check_split(place, node, seen)
            seen.update(node.halves)
            for half, sign in zip(node.halves, (1, -1), strict=True):
                waiting.append((half, rival, {**signs, (node.value, node.neuron): sign}))
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

    def _check_leaf(self, place: int, leaf: Leaf, rival: int, signs: dict[tuple[int, int], int]) -> None:
        if leaf.radius < self.proof.radius:
            raise Rejected(f"leaf {place} is about a smaller ball")
        bounder = self._bounder(leaf.radius)
        bounds = bounder.enclose(signs)
        if bounds is None:
            return  # no point has these signs
        if leaf.empty:
            raise Rejected(f"leaf {place} is not empty")
        margin = [arb(0)] * self.network.classes
        margin[self.proof.label], margin[rival] = arb(1), arb(-1)
        if not self._margin(place, bounder, bounds, margin, leaf) > 0:
            raise Rejected(f"leaf {place} does not prove that the margin is positive")

    def _margin(self, place: int, bounder: Bounder, bounds: Bounds, margin: list[arb], leaf: Leaf) -> arb:
        for table in (leaf.slopes, leaf.multipliers):
            if not {(made, len(own)) for made, own in table.items()} <= self.relus:
                raise Rejected(f"leaf {place} has slopes or multipliers of ReLUs that the network does not have")
        (found,) = bounder.lower([margin], self.network.output, bounds, leaf.slopes, leaf.multipliers)
        return found

    def _bounder(self, radius: float) -> Bounder:
        if radius not in self.bounders:
            proof = self.proof
            self.bounders[radius] = Bounder(self.network, proof.image, proof.norm, radius, proof.box)
        return self.bounders[radius]
