"""What `relucert paper --json` records: a table of the paper, our numbers beside the published ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relucert.report.fields import number, optional, text, whole
from relucert.report.reading import REAL, AnswerKind, Recorded, inference_of, read_rows


@dataclass(frozen=True)
class TableCell:
    """One method's mean over the images of one line of the table; absence is None.

    Attributes:
        same_network: Whether the published number is about the very same network.
        images: Over how many images the mean is.
        closed: Of exact answers, how many are closed.
        sound: Whether the published number is a bound, as the paper says it is; None where there is none.
        inference: What the network is evaluated in for our numbers; the published ones are about real arithmetic.
    """

    network: str
    same_network: bool
    norm: str
    target: str
    valid_inputs: str
    method: str
    kind: AnswerKind
    images: int
    mean: float | None
    seconds: float | None
    closed: int | None
    published: str | None
    published_seconds: float | None
    sound: bool | None
    inference: str = REAL

    @property
    def name(self) -> str:
        """The method, and what it is about where that is not real arithmetic."""
        return self.method if self.inference == REAL else f"{self.method} in {self.inference}"


@dataclass(frozen=True)
class Table(Recorded):
    """A record of one of the paper's tables, computed anew."""

    cells: tuple[TableCell, ...]

    @property
    def name(self) -> str:
        """The table's name, such as "toy"."""
        return str(self.options.get("table", ""))


def table_of(record: Mapping[str, Any], path: Path) -> Table:
    """The table that a record from this file tells of; raises LoadError with one line."""
    head, cells = read_rows(record, path, "cell", _cell)
    return Table(head, path.name, cells)


def _cell(row: Mapping[str, Any]) -> TableCell:
    if row.get("kind") not in [kind.value for kind in AnswerKind]:
        raise ValueError(f"its kind is {row.get('kind')!r}")
    sound = row.get("published_is_a_bound")
    return TableCell(
        network=text(row, "network"),
        same_network=row.get("same_network") is True,
        norm=text(row, "norm"),
        target=text(row, "target"),
        valid_inputs=optional(text, row, "valid_inputs") or "",
        method=text(row, "method"),
        kind=AnswerKind(row["kind"]),
        images=whole(row, "images"),
        mean=number(row, "mean"),
        seconds=number(row, "seconds"),
        closed=optional(whole, row, "closed"),
        published=optional(text, row, "published"),
        published_seconds=number(row, "published_seconds"),
        sound=sound if isinstance(sound, bool) else None,
        inference=inference_of(row),
    )
