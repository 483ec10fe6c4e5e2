"""The identity of a run, whatever its images and its files are called."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import relucert
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.network import Network
from relucert.network.fingerprint import fingerprint
from relucert.query.targets import parse_target
from relucert.query.types import TargetLike

UNTOLD = {
    "shape", "norm", "target", "property", "box", "scale", "inference", "memory", "proof", "workers", "store",
    "progress", "fraction",
}  # fmt: skip
# options that `identity` tells by themselves, or that change no answer


def identity(
    command: str, network: Network, shape: RegionShape, target: TargetLike | Property, options: Any
) -> dict[str, Any]:
    """The question and the effort in plain values; targets of their own that images have are told by the answers, and a
    property by its checksum.

    Args:
        options: A dataclass, of which every field counts but those of `UNTOLD`.
    """
    effort = {field.name: getattr(options, field.name) for field in fields(options) if field.name not in UNTOLD}
    if isinstance(target, Property):
        numbers = (tensor.double().contiguous().numpy().tobytes() for tensor in (target.rows, target.offsets))
        digest = hashlib.sha256(str(tuple(target.rows.shape)).encode() + b"".join(numbers)).hexdigest()
        parsed: Any = f"property {digest[:16]}"
    else:
        parsed = parse_target(target, network.classes)
    return {
        "command": command,
        **network_mark(network),
        "norm": shape.norm.p,
        "box": shape.given_box,
        "scale": shape.scale,
        "target": "per image" if isinstance(parsed, tuple) else parsed,
        **{name: value.value if isinstance(value, Enum) else value for name, value in effort.items()},
    }


def network_mark(network: Network) -> dict[str, Any]:
    """The mark of a network and its evaluation, which no other has."""
    return {"network": fingerprint(network, network.inference.rounds), "inference": network.inference.name}


@cache
def program_mark() -> str:
    """The mark of this program: a SHA-256 of its sources."""
    folder = Path(relucert.__file__).parent
    digest = hashlib.sha256(relucert.__version__.encode())
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
