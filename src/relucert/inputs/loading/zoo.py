"""Networks by name: those that come with the package, and those built into the user's cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from relucert.common.names import suggestion
from relucert.errors import LoadError
from relucert.inputs.loading import safetensors_file
from relucert.inputs.loading.paths import file_digest
from relucert.inputs.storage.files import cache_directory
from relucert.network import Network

SUFFIX = ".safetensors"


def names() -> list[str]:
    """Every network that can be loaded by name, sorted."""
    return sorted({*bundled(), *built()})


def bundled() -> list[str]:
    """The networks that come with the package."""
    file_names = (entry.name for entry in (files(__package__) / "zoo").iterdir())
    return sorted(name.removesuffix(SUFFIX) for name in file_names if name.endswith(SUFFIX))


def built() -> list[str]:
    """The networks in the user's cache."""
    folder = cache_directory("networks")
    return sorted(path.stem for path in folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []


def cache_path(name: str) -> Path:
    """The file of a network that is built under this name."""
    return cache_directory("networks") / f"{name}{SUFFIX}"


def load(name: str) -> Network:
    with _file(name) as path:
        return safetensors_file.load_safetensors(path)


def about(name: str) -> dict[str, str]:
    """The description of a network: its recipe and its accuracy on the test images."""
    with _file(name) as path:
        return safetensors_file.about(path)


def digest(name: str) -> str:
    """The SHA-256 of the network's file."""
    with _file(name) as path:
        return file_digest(path)


@contextmanager
def _file(name: str) -> Iterator[Path]:
    if name in bundled():
        with as_file(files(__package__) / "zoo" / f"{name}{SUFFIX}") as path:
            yield path
    elif name in built():
        yield cache_path(name)
    else:
        raise LoadError(_missing(name))


def _missing(name: str) -> str:
    from relucert.inputs.recipes.plans import PLANS

    if name in PLANS:
        return f"the network {name!r} has not been built yet: relucert zoo train {name}"
    advice = f"name an .onnx or .safetensors file or one of {', '.join(names())}"
    return f"there is no network {name!r}; {advice}{suggestion(name, tuple({*names(), *PLANS}))}"
