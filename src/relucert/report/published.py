"""The paper's table on a page: our means, and the published numbers beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from markupsafe import Markup

from relucert.report import tables
from relucert.report.markup import render
from relucert.report.paper_table import Table, TableCell, by_line
from relucert.report.reading import REAL, AnswerKind
from relucert.report.sections import NORMS
from relucert.report.tables import NONE, Cell


def table_section(table: Table) -> Markup:
    """One table of means and one of times for every network."""
    networks: dict[str, list[TableCell]] = {}
    for cell in table.cells:
        networks.setdefault(cell.network, []).append(cell)
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
