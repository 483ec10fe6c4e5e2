"""A table for readers and programs: our number, and the published one beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relucert.experiments.comparison.methods import CONTENDERS
from relucert.experiments.comparison.ranking import Ranking
from relucert.experiments.paper.published import PublishedLine
from relucert.experiments.paper.rerun import LineResult
from relucert.report.reading import AnswerKind
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
    if inference == "real":
        return LEGEND
    return f"{LEGEND} Ours are about evaluations in {inference}, the published numbers about real arithmetic."


def radii(results: Sequence[LineResult], methods: Sequence[str], inference: str) -> Table:
    """Titles and rows of mean radii: the question, then one column per method."""
    return _table(results, methods, _radius, inference)


def seconds(results: Sequence[LineResult], methods: Sequence[str], inference: str) -> Table:
    """Titles and rows of mean times per image: the question, then one column per method."""
    return _table(results, methods, _time, inference)


def _table(results: Sequence[LineResult], methods: Sequence[str], cell: Any, inference: str) -> Table:
    rows = []
    for result in results:
        line = result.line
        count = max((ranking.count for ranking in result.rankings.values()), default=0)
        cells = []
        for name in methods:
            ranking = result.rankings.get(name)
            fewer = f", {ranking.count} of the images" if ranking is not None and ranking.count < count else ""
            if ranking is not None and ranking.closed is not None and ranking.closed < ranking.count:
                fewer += f", lower ends, {ranking.closed} closed"
            cells.append(cell(line, name, ranking, result.authors) + fewer)
        rows.append([result.label, line.norm, line.target, str(count), *cells])
    about = "" if inference == "real" else f" in {inference}"
    return [*QUESTION, *(f"{TITLES.get(name, name)}{about}" for name in methods)], rows


def _bounds(line: PublishedLine, method: str) -> bool | None:
    """Whether the published number is a bound; None where there is no number."""
    if method not in line.radii:
        return None
    return line.sound(method) and CONTENDERS[method].kind is not AnswerKind.ESTIMATE


def _radius(line: PublishedLine, method: str, ranking: Ranking | None, authors: bool) -> str:
    published = line.radii.get(method)
    if published is not None and not line.sound(method):
        published += "†"
    ours = "-"
    if ranking is not None and ranking.mean is not None:
        ours = (rounded_up if ranking.kind is AnswerKind.UPPER else rounded_down)(ranking.mean, 4)
    return _beside(ours, published, authors)


def _time(line: PublishedLine, method: str, ranking: Ranking | None, authors: bool) -> str:
    published = line.seconds.get(method)
    ours = "-" if ranking is None or ranking.seconds is None else f"{ranking.seconds:.3g} s"
    return _beside(ours, None if published is None else f"{published:g} s", authors)


def _beside(ours: str, published: str | None, authors: bool) -> str:
    if published is None:
        return ours
    return f"{ours} [{published}]" if authors else f"{ours} ({published})"


def markdown(results: Sequence[LineResult], methods: Sequence[str], valid: str, inference: str) -> str:
    tables = []
    for title, (titles, rows) in both(results, methods, inference):
        lines = [titles, ["---"] * len(titles), *rows]
        tables.append(f"{title}:\n\n" + "\n".join(f"| {' | '.join(cells)} |" for cells in lines))
    return "\n\n".join([*tables, legend(inference), f"Valid inputs: {valid}."]) + "\n"


def latex(results: Sequence[LineResult], methods: Sequence[str], valid: str, inference: str) -> str:
    tables = []
    for title, (titles, rows) in both(results, methods, inference):
        head = " & ".join(titles)
        body = "\n".join(
            " & ".join([row[0], NORMS[row[1]], *(cell.replace("†", r"$^\dagger$") for cell in row[2:])]) + r" \\"
            for row in rows
        )
        begin, end = rf"\begin{{tabular}}{{lll{'r' * (len(titles) - 3)}}}", r"\end{tabular}"
        tables.append("\n".join([f"% {title}", begin, r"\hline", rf"{head} \\ \hline", body, r"\hline", end]))
    return "\n\n".join([*tables, f"% {legend(inference)}\n% Valid inputs: {valid}."]) + "\n"


def both(results: Sequence[LineResult], methods: Sequence[str], inference: str) -> list[tuple[str, Table]]:
    return [
        ("mean radius", radii(results, methods, inference)),
        ("mean seconds an image", seconds(results, methods, inference)),
    ]


def cells(
    results: Sequence[LineResult], methods: Sequence[str], valid: Mapping[str, str], inference: str
) -> list[dict[str, Any]]:
    """One cell per line and method, with every number in full; absence is None. valid: the valid inputs of each."""
    table_cells = []
    for result in results:
        line = result.line
        for name in methods:
            ranking = result.rankings.get(name)
            table_cells.append(
                {
                    "network": line.network, "same_network": result.authors, "norm": line.norm, "target": line.target,
                    "valid_inputs": valid.get(name), "method": name, "kind": CONTENDERS[name].kind.value,
                    "inference": inference,
                    "images": ranking.count if ranking else 0,
                    "mean": ranking and ranking.mean, "seconds": ranking and ranking.seconds,
                    "closed": ranking and ranking.closed,
                    "published": line.radii.get(name), "published_is_a_bound": _bounds(line, name),
                    "published_seconds": line.seconds.get(name),
                }
            )  # fmt: skip
    return table_cells
