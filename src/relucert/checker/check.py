"""The check of a proof, without any of the code that found it.

It uses the network's stored numbers and the proof file, and nothing else of this library. Slopes, multipliers and
splits are the file's; every bound is computed anew, in integers. Any numbers would do, wrong ones prove less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from relucert.checker.certificate import check_certificates
from relucert.checker.certificate_document import CertificateProof
from relucert.checker.claim import RadiusClaim, image_digest
from relucert.checker.document import Proof, QueryProof, Rejected, read
from relucert.checker.entries import MOST_BYTES, require
from relucert.checker.quadratic import check_quadratic
from relucert.checker.quadratic_document import QuadraticProof
from relucert.checker.query_check import QueryClaim, check_query
from relucert.checker.tree_check import TreeCheck, check_rows
from relucert.common.checks import shown
from relucert.common.words import counted
from relucert.errors import LoadError
from relucert.inputs.loading import load, zoo
from relucert.network import Network
from relucert.network.fingerprint import fingerprint

__all__ = ["Claim", "QueryClaim", "Rejected", "check", "check_claim", "check_property", "network_of"]


@dataclass(frozen=True)
class Claim:
    """What was proven: around the image the rows, plus offsets, of the outputs stay positive at every valid input.

    index: the image's number among those that were asked about; image: the SHA-256 of its numbers, as float64 in
    little-endian order. box, scale: as of a `Proof`. inference: what the network is evaluated in. activation_ulps: how
    many units in the last place, at most, such an evaluation of a smooth activation is off.
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
    activation_ulps: int | None = None

    @property
    def margins(self) -> tuple[int, list[int]] | None:
        """The label and the rivals, where the rows are the margins of one class over others."""
        pairs = [_margin(row) for row in self.rows]
        labels = {pair[0] for pair in pairs if pair is not None}
        if any(self.offsets) or None in pairs or len(labels) != 1:
            return None
        return labels.pop(), [pair[1] for pair in pairs if pair is not None]

    def __str__(self) -> str:
        evaluated = "" if self.inference == "real" else f", in every evaluation in {self.inference}"
        if self.activation_ulps is not None:
            evaluated += f" whose activations are off by at most {self.activation_ulps} units in the last place"
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
    if (row.count(1.0), row.count(-1.0), row.count(0.0)) != (1, 1, len(row) - 2):
        return None
    return row.index(1.0), row.index(-1.0)


def check(
    path: str | Path,
    network: Network | torch.nn.Module | str | None = None,
    progress: Callable[[int, int], None] | None = None,
    images: torch.Tensor | None = None,
    most_bytes: int = MOST_BYTES,
) -> Claim:
    """Checks a proof file, and returns what it proves about a network; raises `Rejected` where it proves nothing.

    Args:
        path: The file.
        network: What it has to be about; None: the bundled or built network of the name that it gives.
        progress: Called with the leaves done, and with how many there are.
        images: One row per image; where they are given the proof has to be about the one of its number.
        most_bytes: Of the file, once it is unpacked; a larger one is rejected.
    """
    proof = read(Path(path), most_bytes)
    if isinstance(proof, QueryProof):
        raise Rejected("it is about a property, and not about an image")
    return check_claim(proof, network_of(proof, network), progress, images)


def check_property(
    path: str | Path,
    network: Network | torch.nn.Module | str | None = None,
    progress: Callable[[int, int], None] | None = None,
    most_bytes: int = MOST_BYTES,
) -> QueryClaim:
    """The property that a proof file proves about a network; raises `Rejected` where it does not. See `check`."""
    proof = read(Path(path), most_bytes)
    if not isinstance(proof, QueryProof):
        raise Rejected("it is about an image, and not about a property")
    return check_query(proof, network_of(proof, network), progress)


def network_of(proof: RadiusClaim | QueryProof, network: Network | torch.nn.Module | str | None) -> Network:
    """The network that a proof is about, by its SHA-256.

    None stands for the bundled or built one of the proof's name: a proof is not trusted to choose a file, which might
    be one of its own.
    """
    if network is None and proof.name not in zoo.names():
        raise LoadError(
            f"it is about a network named {shown(proof.name)}, SHA-256 {shown(proof.sha256)}, which is none that is "
            "known by name: say which one with --network (in Python, network=)"
        )
    loaded = zoo.load(proof.name) if network is None else load(network)
    if fingerprint(loaded, proof.inference != "real") != proof.sha256:
        raise Rejected(f"it is about another network than {loaded.name}, one of SHA-256 {shown(proof.sha256)}")
    return loaded


def check_claim(
    proof: RadiusClaim,
    network: Network,
    progress: Callable[[int, int], None] | None = None,
    images: torch.Tensor | None = None,
) -> Claim:
    """Checks a proof about an image, and returns what it proves of the network; the arguments are those of `check`."""
    if images is not None:
        _check_image(proof, images)
    _check_question(proof, network)
    nodes = leaves = len(proof.rows)
    try:
        if isinstance(proof, QuadraticProof):
            check_quadratic(network, proof)
        elif isinstance(proof, CertificateProof):
            check_certificates(network, proof)
        else:
            assert isinstance(proof, Proof)
            trees = proof.relaxation.rows
            check_rows(TreeCheck.of(network, proof, proof.relaxation, progress).margins())
            nodes, leaves = (nodes, leaves) if trees is None else (len(trees.nodes), len(trees.scales))
    except ArithmeticError as error:
        raise Rejected(f"its bounds are no numbers: {error}") from None
    return Claim(
        network.name, proof.sha256, proof.index, image_digest(proof.image), proof.rows, proof.offsets, proof.norm,
        proof.radius, proof.box, proof.scale, nodes, leaves, proof.inference, proof.activation_ulps,
    )  # fmt: skip


def _check_image(proof: RadiusClaim, images: torch.Tensor) -> None:
    if proof.index >= len(images):
        raise Rejected(f"it is about image {proof.index}, which is none of {counted(len(images), 'image')}")
    if images[proof.index].flatten().double().tolist() != proof.image:
        raise Rejected(f"image {proof.index} of these is another one than it is about")


def _check_question(proof: RadiusClaim, network: Network) -> None:
    if len(proof.image) != network.sizes[0]:
        raise Rejected(f"its image has {len(proof.image)} numbers, the network takes {network.sizes[0]}")
    if proof.box is not None:
        ends = zip(*proof.box, proof.image, strict=True)
        require(all(low <= pixel <= high for low, high, pixel in ends), "its image is no valid input itself")
    if not all(len(row) == network.classes for row in proof.rows):
        raise Rejected(f"the network has {network.classes} outputs, its rows another number")
