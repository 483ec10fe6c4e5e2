"""The digest that identifies a network's file."""

from __future__ import annotations

import hashlib
from pathlib import Path

EXTERNAL = b"location"  # how an .onnx file calls the place of a tensor that it keeps in another one


def file_digest(path: Path) -> str:
    """The SHA-256 of a network's file and of those that it keeps tensors in."""
    content = path.read_bytes()
    digest = hashlib.sha256(content)
    if path.suffix.lower() == ".onnx" and EXTERNAL in content:
        for external in _external(path):
            digest.update(hashlib.sha256(external.read_bytes()).digest())
    return digest.hexdigest()


def _external(path: Path) -> list[Path]:
    """The files beside a model that have some of its tensors."""
    import onnx  # which takes its time, and is seldom needed here
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        graph = onnx.load(path, load_external_data=False).graph
    except DecodeError:
        return []  # whoever loads it says so
    tensors = [
        *graph.initializer,
        *(attribute.t for node in graph.node for attribute in node.attribute if attribute.HasField("t")),
    ]
    names = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == EXTERNAL.decode()}
    return [path.parent / name for name in sorted(names) if (path.parent / name).is_file()]
