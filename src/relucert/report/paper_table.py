"""What `relucert paper --json` records: a table of the paper, our numbers beside the published ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from relucert.report.fields import number, optional, text, whole
from relucert.report.reading import REAL, AnswerKind, Recorded, inference_of, read_rows

DAGGER = "\N{DAGGER}"


@dataclass(frozen=True)
class TableCell:
    """One method's mean over the images of one line of the table; absence is None. The fields are the keys of a record.

    Attributes:
        same_network: Whether the published number is about the very same network.
        inference: What the network is evaluated in for our numbers; the published ones are about real arithmetic.
        images: Over how many images the mean is.
        closed: Of exact answers, how many are closed.
        published_is_a_bound: As the paper says it is; None where there is no published number.
    """

    network: str
    same_network: bool
    norm: str
    target: str
    valid_inputs: str
    method: str
    kind: AnswerKind
    inference: str
    images: int
    mean: float | None
    seconds: float | None
    closed: int | None
    published: str | None
    published_is_a_bound: bool | None
    published_seconds: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"kind": self.kind.value}

    @property
    def name(self) -> str:
        """The method, and what it is about where that is not real arithmetic."""
        return self.method if self.inference == REAL else f"{self.method} in {self.inference}"

    @property
    def beside_mean(self) -> str | None:
        """The published number, with a dagger where it is no bound, as it stands beside our mean."""
        unsound = self.published_is_a_bound is False and self.kind is not AnswerKind.ESTIMATE
        return self._beside(self.published and f"{self.published}{DAGGER if unsound else ''}")

    def beside_seconds(self, unit: str = "") -> str | None:
        """The published time, as it stands beside ours."""
        return self._beside(None if self.published_seconds is None else f"{self.published_seconds:g}{unit}")

    def _beside(self, published: str | None) -> str | None:
        """In square brackets where it is about the same network, else in round ones."""
        if published is None:
            return None
        return f"[{published}]" if self.same_network else f"({published})"


def by_line(cells: Iterable[TableCell]) -> list[list[TableCell]]:
    """The cells of each line of the table: a network, a norm and a target."""
    lines: dict[tuple[str, str, str], list[TableCell]] = {}
    for cell in cells:
        lines.setdefault((cell.network, cell.norm, cell.target), []).append(cell)
    return list(lines.values())


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
        inference=inference_of(row),
        images=whole(row, "images"),
        mean=number(row, "mean"),
        seconds=number(row, "seconds"),
        closed=optional(whole, row, "closed"),
        published=optional(text, row, "published"),
        published_is_a_bound=sound if isinstance(sound, bool) else None,
        published_seconds=number(row, "published_seconds"),
    )
