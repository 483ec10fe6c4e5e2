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
from flint import arb

from relucert.checker.ball_arithmetic import BallRegion, Bounder
from relucert.checker.document import BoundProof, Certified, Leaf, Proof, QueryProof, Rejected, image_digest, read
from relucert.checker.quadratic import check_quadratic
from relucert.checker.quadratic_document import QuadraticProof
from relucert.checker.query_check import QueryClaim, check_query
from relucert.checker.rules import least_margins
from relucert.checker.walk import Walk, precision
from relucert.loading import load
from relucert.network import Network
from relucert.network.fingerprint import fingerprint

__all__ = ["Claim", "QueryClaim", "Rejected", "check", "check_property"]


@dataclass(frozen=True)
class Claim:
    """What was proven: around the image the rows, plus offsets, of the outputs stay positive at every valid input.

    index: the image's number among those that were asked about; image: the SHA-256 of its numbers, as float64 in
    little-endian order. box, scale: as of a `Proof`. inference: what the network is evaluated in.
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
    inference: str = "real"

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
        evaluated = "" if self.inference == "real" else f", in every evaluation in {self.inference}"
        where = f"within {self.radius!r} of image {self.index}, norm {self.norm:g}{self._valid()}{evaluated}"
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
    if isinstance(proof, QueryProof):
        raise Rejected("it is about a property, and not about an image")
    if images is not None:
        _check_image(proof, images)
    known = _load(proof, network)
    _check_question(proof, known)
    if isinstance(proof, BoundProof):
        _check_bounds(proof, known)
        nodes = leaves = len(proof.rows)
    elif isinstance(proof, QuadraticProof):
        check_quadratic(known, proof)
        nodes = leaves = len(proof.rows)
    else:
        assert isinstance(proof, Proof)
        with precision():
            nodes, leaves = len(proof.nodes), _walk(proof, known, progress)
    return Claim(
        known.name, proof.sha256, proof.index, image_digest(proof.image), proof.rows, proof.offsets, proof.norm,
        proof.radius, proof.box, proof.scale, nodes, leaves,
        proof.inference if isinstance(proof, BoundProof) else "real",
    )  # fmt: skip


def _check_bounds(proof: BoundProof, network: Network) -> None:
    try:
        margins = least_margins(network, proof)
    except ArithmeticError as error:
        raise Rejected(f"its bounds are no numbers: {error}") from None
    for row, least in enumerate(margins):
        if not least > 0:
            raise Rejected(f"by its rule, {proof.rule}, row {row} is not proven to be positive")


def check_property(
    path: str | Path,
    network: Network | torch.nn.Module | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> QueryClaim:
    """The property that a proof file proves about a network; raises `Rejected` where it does not."""
    proof = read(Path(path))
    if not isinstance(proof, QueryProof):
        raise Rejected("it is about an image, and not about a property")
    return check_query(proof, _load(proof, network), progress)


def _load(proof: Certified | QueryProof, network: Network | torch.nn.Module | str | None) -> Network:
    """The network that a proof is about."""
    known = load(proof.name if network is None else network)
    if fingerprint(known) != proof.sha256:
        raise Rejected(f"it is about another network than {known.name}: the SHA-256 of their numbers differ")
    return known


def _walk(proof: Proof, network: Network, progress: Callable[[int, int], None] | None) -> int:
    """How many leaves there are; all of them hold."""
    bounders: dict[float, Bounder] = {}

    def bounder_of(place: int, leaf: Leaf) -> Bounder:
        if leaf.radius < proof.radius:
            raise Rejected(f"leaf {place} is about a smaller region")
        if leaf.radius not in bounders:
            bounders[leaf.radius] = Bounder(network, BallRegion.of(proof, leaf.radius))
        return bounders[leaf.radius]

    forms = [[arb(number) for number in row] for row in proof.rows]
    offsets = [arb(number) for number in proof.offsets]
    return Walk(network, proof.nodes, forms, offsets, bounder_of, progress).run()


def _check_image(proof: Certified, images: torch.Tensor) -> None:
    if proof.index >= len(images):
        raise Rejected(f"it is about image {proof.index}, and there are {len(images)} images")
    if images[proof.index].flatten().double().tolist() != proof.image:
        raise Rejected(f"image {proof.index} of these is another one than it is about")


def _check_question(proof: Certified, network: Network) -> None:
    if len(proof.image) != network.sizes[0]:
        raise Rejected(f"its image has {len(proof.image)} numbers, the network takes {network.sizes[0]}")
    if proof.box is not None:
        ends = zip(*proof.box, proof.image, strict=True)
        if not all(low <= pixel <= high for low, high, pixel in ends):
            raise Rejected("its image is no valid input itself")
    if not all(len(row) == network.classes for row in proof.rows):
        raise Rejected(f"the network has {network.classes} outputs, its rows another number")
