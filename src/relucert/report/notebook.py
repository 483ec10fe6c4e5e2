"""Lists of answers in a notebook: as a table, and as a curve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from matplotlib.axes import Axes

from relucert.answers import Answer
from relucert.report import accuracy, tables
from relucert.report.markup import join, tag
from relucert.report.reading import Kind, Result, result
from relucert.report.series import series
from relucert.report.tables import NONE, Cell

MOST = 100  # rows of a table
LINES = {Kind.CERTIFIED: "-", Kind.EXACT: "-", Kind.UNPROVEN: ":", Kind.ESTIMATE: ":", Kind.UPPER: "--"}
SHARES = {
    Kind.CERTIFIED: "certified accuracy",
    Kind.EXACT: "certified accuracy",
    Kind.UNPROVEN: "accuracy, not certified",
    Kind.ESTIMATE: "accuracy, not certified",
    Kind.UPPER: "accuracy under attack",
}
TITLES = {
    Kind.CERTIFIED: "certified radius",
    Kind.EXACT: "exact distance",
    Kind.UNPROVEN: "radius (rounding ignored)",
    Kind.ESTIMATE: "estimate (not certified)",
    Kind.UPPER: "distance",
}


def plot(answers: Iterable[Answer], axes: Axes | None) -> Axes:
    """A step down at every image's radius, a curve a method; several lists may share axes."""
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.figure(layout="constrained").add_subplot()
    results = _results(answers)
    curves = series(results, None)
    begun = axes.has_data()
    top = max(
        [1.05 * own.finite[-1] for own in curves if own.finite] + ([axes.get_xlim()[1]] if begun else []), default=1
    )
    listed = ", rivals listed" if len({(own.image, own.name) for own in results}) < len(results) else ""
    said = {SHARES[own.kind] + listed for own in curves} | ({axes.get_ylabel()} if begun else set())
    for own in curves:
        radii, shares = own.steps()
        axes.step([*radii, top], [*shares, shares[-1]], where="post", linestyle=LINES[own.kind], label=own.name)
    accuracy.frame(axes, top, "radius", said.pop() if len(said) == 1 else "share of images")
    if curves:
        axes.legend(frameon=False)
    return axes


def table(answers: Sequence[Answer]) -> str:
    """What was found, a row an answer, with a line about all of them."""
    shown = _results(islice(answers, MOST))
    kinds = {own.kind for own in shown}
    title = TITLES[kinds.pop()] if len(kinds) == 1 else "answer"
    remarks = any(own.reason for own in shown)
    rows = [_row(own)[: None if remarks else -1] for own in shown]
    headers = ("image", "label", "rival", title, "seconds", "remark")[: None if remarks else -1]
    more = None if len(answers) <= MOST else tag("p", f"These are the first {MOST} of {len(answers):,} answers.")
    return join(tables.table(_caption(_results(answers)), headers, rows), more)


def _caption(results: Sequence[Result]) -> str:
    """The method, the norm and the mean, rounded as its kind has to be."""
    parts = [f"{len(results):,} answers"]
    for own in series(results, None):
        mean = (
            "" if own.mean is None else f", mean {tables.bound(own.kind, own.mean).shown} over {len(own.finite)} images"
        )
        parts.append(f"{own.name}{mean}")
    return "; ".join([*parts, *dict.fromkeys(f"p = {own.norm}" for own in results)])


def _row(own: Result) -> list[Cell]:
    found = (
        tables.ends(own)
        if own.kind is Kind.EXACT
        else tables.bound(own.kind, own.upper if own.kind is Kind.UPPER else own.lower)
    )
    rival = NONE if own.target is None else own.target
    return [Cell(own.image), Cell(own.label), Cell(rival), found, Cell(f"{own.seconds:.3g}"), Cell(own.reason or "")]


def _results(answers: Iterable[Answer]) -> list[Result]:
    return [result(answer.to_json()) for answer in answers]
