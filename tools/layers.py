"""The rooms of the package in layers, and the imports between them as they are.

A module may import what is in its own room and in layers below; rooms of one layer do not import each other.
`tests/test_layers.py` holds the package to it, `python -m tools.architecture` draws it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "relucert"
PACKAGE = SOURCE.name


@dataclass(frozen=True)
class Layer:
    """Rooms side by side, folders or modules of the package, and what they are for."""

    rooms: tuple[str, ...]
    purpose: str


LAYERS = (  # from the lowest to the highest
    Layer(("errors",), "what users can get wrong"),
    Layer(("common",), "checks, names, numbers, progress, time"),
    Layer(("arithmetic",), "rounding, norms, forms, regions, properties"),
    Layer(("network", "answers"), "the graph and its operations; certificates"),
    Layer(("bounding", "inputs", "estimates", "hardness"), "relaxations; files; CLEVER; set cover"),
    Layer(("methods", "checker", "data", "report"), "what certifies; what checks proofs; images; pages"),
    Layer(("query",), "images, labels, targets as users ask"),
    Layer(("search", "attacks", "training", "execution"), "radii; witnesses; trained networks; runs, Ray"),
    Layer(("branch_and_bound", "verification"), "splits; given properties, VNN-LIB"),
    Layer(("proofs",), "everything that writes proof files"),
    Layer(("api",), "the public calls, one module each"),
    Layer(("experiments",), "comparisons, the paper's tables"),
    Layer(("cli",), "commands"),
    Layer(("__main__",), "python -m relucert"),
)


def modules() -> dict[str, Path]:
    """The files of the package by the names of their modules."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports() -> dict[str, set[str]]:
    """By module, the modules of the package that it imports, wherever in its file; for type checkers alone does not
    count."""
    known = modules()
    return {name: set(_imported(path, known)) for name, path in known.items()}


def room_of(module: str) -> str | None:
    """The folder or module directly in the package; None for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def room_imports() -> dict[str, set[str]]:
    """By room, the other rooms that it imports."""
    found: dict[str, set[str]] = {}
    for module, others in imports().items():
        if (room := room_of(module)) is not None:
            rooms = {room_of(other) for other in others} - {room, None}
            found.setdefault(room, set()).update(name for name in rooms if name is not None)
    return found


def level_of() -> dict[str, int]:
    """The number of each room's layer, the lowest being 0."""
    return {room: number for number, layer in enumerate(LAYERS) for room in layer.rooms}


def _imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    for_types = {id(inner) for node in ast.walk(tree) if _is_for_types(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == PACKAGE:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
