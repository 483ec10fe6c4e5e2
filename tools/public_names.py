"""Which public names are documented: each has a docstring that mentions its parameters and fields, and a reference."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType

import relucert

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


def complaints() -> list[str]:
    """One line for each public name that lacks a docstring, a part of it, or its place in the API reference."""
    shown = referenced(REFERENCE)
    names = dict(public(relucert))
    lines = [f"{name} is not in docs/reference" for name in sorted(names.keys() - shown)]
    lines += [f"{name} in docs/reference is not public" for name in sorted(shown - names.keys())]
    return lines + [line for name, value in names.items() for line in undocumented(name, value)]


def referenced(folder: Path) -> set[str]:
    """The names that the pages in a folder show."""
    pages = (page.read_text() for page in folder.glob("*.md"))
    return {name for text in pages for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}


def public(module: ModuleType) -> Iterator[tuple[str, object]]:
    """The public names of a module with their values; those of a public module within it in its place."""
    own = [name for name, value in vars(module).items() if _is_defined_in(value, module) and not name.startswith("_")]
    for name in getattr(module, "__all__", own):
        value = getattr(module, name)
        if inspect.ismodule(value):
            yield from public(value)
        else:
            yield f"{module.__name__}.{name}", value


def undocumented(name: str, value: object) -> Iterator[str]:
    """What the docstrings of a function, or of a class and its members, leave out; constants have none."""
    if inspect.isclass(value):
        yield from _lacking(name, value.__doc__, [field.name for field in fields(value)] if is_dataclass(value) else [])
        for member, attribute in _members(value).items():
            yield from _member(f"{name}.{member}", attribute)
    elif inspect.isfunction(value):
        yield from _lacking(name, value.__doc__, list(inspect.signature(value).parameters))


def _members(given: type) -> dict[str, object]:
    """The public members of a class, those of the package's classes that it derives from included."""
    package = given.__module__.partition(".")[0]
    bases = [base for base in reversed(given.__mro__) if base.__module__.partition(".")[0] == package]
    return {name: value for base in bases for name, value in vars(base).items() if not name.startswith("_")}


def _member(name: str, attribute: object) -> Iterator[str]:
    """A member's docstring need not mention parameters."""
    if isinstance(attribute, property | classmethod | staticmethod) or inspect.isfunction(attribute):
        yield from _lacking(name, inspect.getdoc(attribute), [])


def _lacking(name: str, text: str | None, parts: list[str]) -> Iterator[str]:
    if not text or text.startswith(f"{name.rpartition('.')[2]}("):  # what dataclasses write for themselves
        yield f"{name} has no docstring"
    else:
        for part in parts:
            if not re.search(rf"(?<!\w){part}(?!\w)", text):
                yield f"the docstring of {name} does not mention {part}"


def _is_defined_in(value: object, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__
