"""The claim of a proof file about an image, read with suspicion."""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass
from typing import Any

from relucert.checker.entries import as_list, as_number, as_numbers, as_text, as_whole, require

INFERENCES = ("real", "float32", "float16", "bfloat16")
KEYS = {"format", "network", "image", "rows", "offsets", "norm", "box", "scale", "radius"}
NORMS: dict[object, float] = {"inf": math.inf, 1.0: 1.0, 2.0: 2.0}


@dataclass(frozen=True)
class RadiusClaim:
    """A claim: `rows @ outputs + offsets` stay positive at all valid x with `||(x - image) / scale||_p <= radius`.

    index: the image's number among those that were asked about.
    box: the lowest and the highest valid value of every coordinate, or None; infinite: no limit.
    inference: what the network is evaluated in, one of `INFERENCES`.
    activation_ulps: how many units in the last place evaluations of smooth activations may be off; None: not said.
    """

    name: str
    sha256: str
    index: int
    image: list[float]
    rows: list[list[float]]
    offsets: list[float]
    norm: float
    box: tuple[list[float], list[float]] | None
    scale: list[float] | None
    radius: float
    inference: str
    activation_ulps: int | None


def claim_of(document: dict[str, Any]) -> dict[str, Any]:
    """The claim of a proof, by the names of its fields; a document without an inference is about real arithmetic."""
    inference = document.get("inference", "real")
    require(inference in INFERENCES, "its inference is none that is known")
    index, image = _image(document["image"])
    rows = [as_numbers(row) for row in as_list(document["rows"])]
    offsets = as_numbers(document["offsets"])
    require(bool(rows) and len(rows) == len(offsets), "it has no rows, or not one offset for each")
    distinct = {(*row, offset) for row, offset in zip(rows, offsets, strict=True)}
    require(len(distinct) == len(rows), "a row stands twice")
    require(document["norm"] in NORMS and document["norm"] is not True, "its norm is not 1, 2 or inf")
    scale = None if document["scale"] is None else as_numbers(document["scale"])
    require(scale is None or (len(scale) == len(image) and min(scale) >= 0), "its scale is not one number >= 0 each")
    radius = as_number(document["radius"])
    require(radius > 0, "its radius is not positive")
    network = document["network"]
    return {
        "name": as_text(network["name"]), "sha256": as_text(network["sha256"]), "index": index, "image": image,
        "rows": rows, "offsets": offsets, "norm": NORMS[document["norm"]], "box": _box(document["box"], len(image)),
        "scale": scale, "radius": radius, "inference": inference, "activation_ulps": _activation_ulps(document),
    }  # fmt: skip


def _activation_ulps(document: dict[str, Any]) -> int | None:
    if "activation_ulps" not in document:
        return None
    ulps: int = as_whole(document["activation_ulps"])
    require(0 < ulps < 2**16, "the units in the last place of its activations are no small number")
    return ulps


def _image(entry: Any) -> tuple[int, list[float]]:
    """The image's number and its values, which have the SHA-256 that stands beside them."""
    require(set(entry) == {"index", "sha256", "values"}, "its image has no index, SHA-256 and values")
    index, values = as_whole(entry["index"]), as_numbers(entry["values"])
    require(index >= 0, "its image has no number")
    require(image_digest(values) == as_text(entry["sha256"]), "its image is not that of the SHA-256 it names")
    return index, values


def _box(entry: Any, size: int) -> tuple[list[float], list[float]] | None:
    if entry is None:
        return None
    ends = as_list(entry)
    require(len(ends) == 2, "its box has no two ends")
    low, high = (
        [endless if number is None else as_number(number) for number in as_list(end)]
        for end, endless in zip(ends, (-math.inf, math.inf), strict=True)
    )
    ordered = len(low) == len(high) == size and all(pair[0] <= pair[1] for pair in zip(low, high, strict=True))
    require(ordered, "its box has no lowest and highest value for every coordinate")
    return low, high


def image_digest(values: list[float]) -> str:
    """The SHA-256 of an image's numbers, as float64 in little-endian order."""
    return hashlib.sha256(struct.pack(f"<{len(values)}d", *values)).hexdigest()
