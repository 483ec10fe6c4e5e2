"""Lists of answers in a notebook: as a table, and as a curve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from matplotlib.axes import Axes

from relucert.answers import Recordable
from relucert.report import accuracy, tables
from relucert.report.domain import UNLIKE, in_words
from relucert.report.markup import join, tag
from relucert.report.reading import Kind, Result, result
from relucert.report.series import series
from relucert.report.tables import NONE, Cell

MOST = 100  # rows of a table
RADIUS = "radius; "  # begins the label of an axis, which goes on with the valid inputs
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


def plot(answers: Iterable[Recordable], axes: Axes | None) -> Axes:
    """Draws one curve per method, a step down at every image's radius; several lists may share axes."""
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.figure(layout="constrained").add_subplot()
    results = _results(answers)
    curves = series(results, None)
    begun = axes.has_data()
    ends = [1.05 * curve.finite[-1] for curve in curves if curve.finite]
    top = max(ends + ([axes.get_xlim()[1]] if begun else []), default=1)
    listed = ", rivals listed" if len({(result.image, result.name) for result in results}) < len(results) else ""
    labels = {SHARES[curve.kind] + listed for curve in curves} | ({axes.get_ylabel()} if begun else set())
    across = _radius_label(results, axes.get_xlabel() if begun else "")
    for curve in curves:
        radii, shares = curve.steps()
        axes.step([*radii, top], [*shares, shares[-1]], where="post", linestyle=LINES[curve.kind], label=curve.name)
    accuracy.frame(axes, top, across, labels.pop() if len(labels) == 1 else "share of images")
    if curves:
        axes.legend(frameon=False)
    return axes


def table(answers: Sequence[Recordable]) -> str:
    """A table with one row per answer, and a caption about all of them."""
    shown = _results(islice(answers, MOST))
    kinds = {result.kind for result in shown}
    title = TITLES[kinds.pop()] if len(kinds) == 1 else "answer"
    remarks = any(result.reason for result in shown)
    rows = [_row(result)[: None if remarks else -1] for result in shown]
    headers = ("image", "label", "rival", title, "seconds", "remark")[: None if remarks else -1]
    more = None if len(answers) <= MOST else tag("p", f"These are the first {MOST} of {len(answers):,} answers.")
    return join(tables.table(_caption(_results(answers)), headers, rows), more)


def _radius_label(results: Sequence[Result], before: str) -> str:
    """The label of the axis of radii, with the valid inputs; before: the label that the axes had, if any."""
    labels = {RADIUS + in_words(result.domain for result in results)} if results else set()
    labels |= {before} if before.startswith(RADIUS) else set()
    if not labels:
        return "radius"
    return labels.pop() if len(labels) == 1 else RADIUS + UNLIKE


def _caption(results: Sequence[Result]) -> str:
    """How many answers, each method with its mean, rounded so that it holds, the norm and the valid inputs."""
    parts = [f"{len(results):,} answers"]
    for curve in series(results, None):
        mean = "" if curve.mean is None else tables.bound(curve.kind, curve.mean).shown
        parts.append(f"{curve.name}, mean {mean} over {len(curve.finite)} images" if mean else curve.name)
    parts += dict.fromkeys(f"p = {result.norm}" for result in results)
    return "; ".join([*parts, in_words(result.domain for result in results)] if results else parts)


def _row(result: Result) -> list[Cell]:
    """The cells of one answer, its remark last."""
    if result.kind is Kind.EXACT:
        distance = tables.ends(result)
    else:
        distance = tables.bound(result.kind, result.upper if result.kind is Kind.UPPER else result.lower)
    rival, seconds = NONE if result.target is None else result.target, f"{result.seconds:.3g}"
    return [Cell(result.image), Cell(result.label), Cell(rival), distance, Cell(seconds), Cell(result.reason or "")]


def _results(answers: Iterable[Recordable]) -> list[Result]:
    return [result(answer.to_json()) for answer in answers]
