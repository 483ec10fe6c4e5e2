"""The networks that come with the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from relucert.errors import LoadError
from relucert.loading import safetensors_file
from relucert.network import Network

SUFFIX = ".safetensors"


def names() -> list[str]:
    """Every bundled network's name, sorted."""
    found = (entry.name for entry in (files(__package__) / "zoo").iterdir())
    return sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))


def load(name: str) -> Network:
    with _file(name) as path:
        return safetensors_file.load_safetensors(path)


def about(name: str) -> dict[str, str]:
    """What is known about a bundled network: its recipe and its accuracy on the test images."""
    with _file(name) as path:
        return safetensors_file.about(path)


@contextmanager
def _file(name: str) -> Iterator[Path]:
    if name not in names():
        raise LoadError(
            f"there is no network {name!r}; name an .onnx or .safetensors file or one of {', '.join(names())}"
        )
    with as_file(files(__package__) / "zoo" / f"{name}{SUFFIX}") as path:
        yield path
