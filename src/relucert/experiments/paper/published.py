"""The numbers of the paper's tables, as published: the questions, and the authors' answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from relucert.errors import InputError

FILE = "published.json"
TABLES = ("toy", "large", "defences")  # small networks, large ones, and those of defences
TABLE_METHODS = {
    "toy": ("fast-lin", "crown", "alpha", "fast-lip", "op-norm", "lp", "lp-full", "exact", "clever", "attack"),
    "large": ("fast-lin", "crown", "fast-lip", "op-norm", "lp", "clever", "attack"),
    "defences": ("fast-lin", "crown", "fast-lip"),
}
PROGRAMS = ("lp", "lp-full")  # the methods that solve linear programs


@dataclass(frozen=True)
class PublishedLine:
    """A line of a table: the question, and for each method the mean radius, as printed, and the seconds per image."""

    network: str
    norm: str
    target: str
    radii: dict[str, str]
    seconds: dict[str, float]

    def sound(self, method: str) -> bool:
        """Whether the published number is a bound: the linear programs for p = 2 and 1 searched one direction only."""
        return method not in PROGRAMS or self.norm == "inf"


def lines(
    table: str, networks: Sequence[str] | None, norms: Sequence[str] | None, targets: Sequence[str] | None
) -> list[PublishedLine]:
    """The lines of a table, or those of some networks, norms and targets."""
    table_lines = [PublishedLine(**row) for row in _content()[table]]
    chosen = {"network": networks, "norm": norms, "target": targets}
    for name, wanted in chosen.items():
        present = list(dict.fromkeys(getattr(line, name) for line in table_lines))
        for value in wanted or ():
            if value not in present:
                raise InputError(f"the table {table!r} has no {name} {value!r}; it has {', '.join(present)}")
    return [
        line
        for line in table_lines
        if all(wanted is None or getattr(line, name) in wanted for name, wanted in chosen.items())
    ]


def is_authors(name: str, digest: str) -> bool:
    """Whether a network's weights are those of the authors' network."""
    return _content()["authors"].get(name) == digest  # type: ignore[no-any-return]


@cache
def _content() -> dict[str, Any]:
    return json.loads((resources.files(__package__) / FILE).read_text())  # type: ignore[no-any-return]
