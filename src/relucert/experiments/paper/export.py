"""A table for readers and programs: our number, and the published one beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relucert.report.paper_table import DAGGER, TableCell, by_line
from relucert.report.reading import REAL, AnswerKind
from relucert.report.summary import rounded_down, rounded_up

LEGEND = (
    "Each cell: ours, then the published number; in square brackets for the same network, the authors' own; in "
    "round ones, as context, for another network of the same size. A dagger: published, but no bound (see docs/lp.md). "
    "Exact: the mean of the proven lower ends, and where not all intervals closed in time, how many did. CLEVER: where "
    "no distribution could be fitted, the largest sampled gradient counts, as in the original."
)
TITLES = {
    "fast-lin": "Fast-Lin", "crown": "CROWN", "alpha": "Alpha", "best": "Best",
    "fast-lip": "Fast-Lip", "op-norm": "Op-norm", "lp": "LP", "lp-full": "LP-Full",
    "exact": "Exact", "clever": "CLEVER (no bound)", "attack": "Attacks",
}  # fmt: skip
NORMS = {"inf": r"$\infty$", "2": "$2$", "1": "$1$"}
QUESTION = ("network", "p", "target", "images")  # the first columns: what a row is about
Table = tuple[list[str], list[list[str]]]


def legend(inference: str) -> str:
    """The legend of a table that was computed with an inference."""
    if inference == REAL:
        return LEGEND
    return f"{LEGEND} Ours are about evaluations in {inference}, the published numbers about real arithmetic."


def both(cells: Sequence[TableCell]) -> list[tuple[str, Table]]:
    """The table of mean radii and that of mean times per image: the question, then one column per method."""
    return [("mean radius", _table(cells, _radius)), ("mean seconds an image", _table(cells, _time))]


def _table(cells: Sequence[TableCell], shown: Callable[[TableCell], list[str | None]]) -> Table:
    methods = dict.fromkeys((cell.method, cell.inference) for cell in cells)
    rows = []
    for line in by_line(cells):
        count, first = max(cell.images for cell in line), line[0]
        label = f"{first.network} (the authors')" if first.same_network else first.network
        amounts = [" ".join(filter(None, shown(cell))) + _notes(cell, count) for cell in line]
        rows.append([label, first.norm, first.target, str(count), *amounts])
    titles = [
        f"{TITLES.get(name, name)}{'' if inference == REAL else f' in {inference}'}" for name, inference in methods
    ]
    return [*QUESTION, *titles], rows


def _notes(cell: TableCell, count: int) -> str:
    """Says where a number is about fewer images than others, or where not all intervals closed."""
    fewer = f", {cell.images} of the images" if cell.images < count else ""
    return fewer + (
        f", lower ends, {cell.closed} closed" if cell.closed is not None and cell.closed < cell.images else ""
    )


def _radius(cell: TableCell) -> list[str | None]:
    way = rounded_up if cell.kind is AnswerKind.UPPER else rounded_down
    return ["-" if cell.mean is None else way(cell.mean, 4), cell.beside_mean]


def _time(cell: TableCell) -> list[str | None]:
    return ["-" if cell.seconds is None else f"{cell.seconds:.3g} s", cell.beside_seconds(" s")]


def markdown(cells: Sequence[TableCell], valid: str, inference: str) -> str:
    tables = []
    for title, (titles, rows) in both(cells):
        lines = [titles, ["---"] * len(titles), *rows]
        tables.append(f"{title}:\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in lines))
    return "\n\n".join([*tables, legend(inference), f"Valid inputs: {valid}."]) + "\n"


def latex(cells: Sequence[TableCell], valid: str, inference: str) -> str:
    tables = []
    for title, (titles, rows) in both(cells):
        head = " & ".join(titles)
        body = "\n".join(
            " & ".join([row[0], NORMS[row[1]], *(cell.replace(DAGGER, r"$^\dagger$") for cell in row[2:])]) + r" \\"
            for row in rows
        )
        begin, end = rf"\begin{{tabular}}{{lll{'r' * (len(titles) - 3)}}}", r"\end{tabular}"
        tables.append("\n".join([f"% {title}", begin, r"\hline", rf"{head} \\ \hline", body, r"\hline", end]))
    return "\n\n".join([*tables, f"% {legend(inference)}\n% Valid inputs: {valid}."]) + "\n"
