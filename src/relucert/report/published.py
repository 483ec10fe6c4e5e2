"""The paper's table on a page: our means, and the published numbers beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from relucert.report import tables
from relucert.report.markup import render
from relucert.report.paper_table import Table, TableCell
from relucert.report.reading import REAL, AnswerKind
from relucert.report.sections import NORMS
from relucert.report.tables import NONE, Cell


def table_section(table: Table) -> Markup:
    """One table of means and one of times for every network."""
    networks: dict[str, list[TableCell]] = {}
    for cell in table.cells:
        networks.setdefault(cell.network, []).append(cell)
    skipped = table.head.get("skipped")
    return render(
        "paper.html",
        table=table,
        inferences=dict.fromkeys(cell.inference for cell in table.cells if cell.inference != REAL),
        valid=dict.fromkeys(f"{cell.name}: {cell.valid_inputs}" for cell in table.cells if cell.valid_inputs),
        left_out=[f"{name}: {reason}" for name, reason in skipped.items()] if isinstance(skipped, dict) else [],
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
    lines: dict[tuple[str, str], dict[str, TableCell]] = {}
    for cell in cells:
        lines.setdefault((cell.norm, cell.target), {})[cell.name] = cell
    rows = []
    for (norm, target), by_method in lines.items():
        count = max(cell.images for cell in by_method.values())
        amounts = [
            _noted(by_method[method], shown, count) if method in by_method else Cell(NONE) for method, _ in methods
        ]
        rows.append([Cell(NORMS.get(norm, norm)), Cell(target), Cell(count), *amounts])
    titles = [f"{method} (no bound)" if kind is AnswerKind.ESTIMATE else method for method, kind in methods]
    return tables.table(caption, ("p", "target", "images", *titles), rows, sortable=True)


def _noted(cell: TableCell, shown: Callable[[TableCell], Cell], count: int) -> Cell:
    """A cell that says where it is about fewer images than others, or where not all intervals closed."""
    amount = shown(cell)
    notes = [amount.note] if amount.note else []
    notes += [f"{cell.images} of the images"] if cell.images < count else []
    notes += [f"{cell.closed} closed"] if cell.closed is not None and cell.closed < cell.images else []
    return Cell(amount.shown, amount.value, ", ".join(notes) or None)


def _mean(cell: TableCell) -> Cell:
    dagger = "\N{DAGGER}" if cell.sound is False and cell.kind is not AnswerKind.ESTIMATE else ""
    return tables.bound(cell.kind, cell.mean, _beside(cell, cell.published and f"{cell.published}{dagger}"))


def _seconds(cell: TableCell) -> Cell:
    published = None if cell.published_seconds is None else f"{cell.published_seconds:g}"
    if cell.seconds is None:
        return Cell(NONE, note=_beside(cell, published))
    return Cell(f"{cell.seconds:.3g}", cell.seconds, _beside(cell, published))


def _beside(cell: TableCell, published: str | None) -> str | None:
    if published is None:
        return None
    return f"[{published}]" if cell.same_network else f"({published})"
