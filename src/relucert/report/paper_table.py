"""The paper's table, our numbers beside the published ones: as `relucert paper --json` records it, and on a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from relucert.report import tables
from relucert.report.fields import number, optional, text, whole
from relucert.report.markup import render
from relucert.report.reading import REAL, AnswerKind, Recorded, inference_of, read_rows
from relucert.report.sections import NORMS
from relucert.report.series import group_by
from relucert.report.tables import NONE, Cell

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
    return list(group_by(cells, lambda cell: (cell.network, cell.norm, cell.target)).values())


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


def table_section(table: Table) -> Markup:
    """One table of means and one of times for every network."""
    networks = group_by(table.cells, lambda cell: cell.network)
    return render(
        "paper.html",
        table=table,
        inferences=dict.fromkeys(cell.inference for cell in table.cells if cell.inference != REAL),
        valid=dict.fromkeys(f"{cell.name}: {cell.valid_inputs}" for cell in table.cells if cell.valid_inputs),
        networks=[(network, *_network(network, cells)) for network, cells in networks.items()],
    )


def _network(network: str, cells: Sequence[TableCell]) -> tuple[Markup, Markup]:
    """A network's tables of means and of times."""
    another = "published numbers are about another network of the same size"
    whose = "the authors' own network" if cells[0].same_network else another
    return (
        _table(f"{network}: mean radius or distance over the images; {whose}", cells, _mean),
        _table(f"{network}: mean seconds per image; {whose}", cells, _seconds),
    )


def _table(caption: str, cells: Sequence[TableCell], shown: Callable[[TableCell], Cell]) -> Markup:
    """One row per norm and target, one column per method."""
    methods = dict.fromkeys((cell.name, cell.kind) for cell in cells)
    rows = []
    for line in by_line(cells):
        count = max(cell.images for cell in line)
        amounts = {cell.name: _noted(cell, shown(cell), count) for cell in line}
        norm, target = line[0].norm, line[0].target
        question = [Cell(NORMS.get(norm, norm)), Cell(target), Cell(count)]
        rows.append([*question, *(amounts.get(method, Cell(NONE)) for method, _ in methods)])
    titles = [f"{method} (no bound)" if kind is AnswerKind.ESTIMATE else method for method, kind in methods]
    return tables.table(caption, ("p", "target", "images", *titles), rows, sortable=True)


def _noted(cell: TableCell, amount: Cell, count: int) -> Cell:
    """The amount; says where it is about fewer images than others, or where not all intervals closed."""
    notes = [amount.note] if amount.note else []
    notes += [f"{cell.images} of the images"] if cell.images < count else []
    notes += [f"{cell.closed} closed"] if cell.closed is not None and cell.closed < cell.images else []
    return replace(amount, note=", ".join(notes) or None)


def _mean(cell: TableCell) -> Cell:
    return tables.bound(cell.kind, cell.mean, cell.beside_mean)


def _seconds(cell: TableCell) -> Cell:
    return tables.number(cell.seconds, "{:.3g}", cell.beside_seconds())
