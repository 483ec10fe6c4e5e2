"""Answers as curves: the share of images that keep their class against the radius."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from relucert.report import accuracy
from relucert.report.domain import UNLIKE, in_words
from relucert.report.reading import AnswerKind, Result, result
from relucert.report.series import Series, group_by, series

LINES: dict[AnswerKind, Literal["-", ":", "--"]] = {
    AnswerKind.CERTIFIED: "-",
    AnswerKind.EXACT: "-",
    AnswerKind.UNPROVEN: ":",
    AnswerKind.ESTIMATE: ":",
    AnswerKind.UPPER: "--",
}
SHARES = {
    AnswerKind.CERTIFIED: "certified accuracy",
    AnswerKind.EXACT: "certified accuracy",
    AnswerKind.UNPROVEN: "accuracy, not certified",
    AnswerKind.ESTIMATE: "accuracy, not certified",
    AnswerKind.UPPER: "accuracy under attack",
}
COLOURS = 10  # of matplotlib's cycle


class AccuracyCurve(Line2D):
    """A step curve of accuracy against radius that remembers its method, norm and valid inputs.

    name: the method's, or what it was labelled with; share: what the vertical axis is called.
    """

    def __init__(self, drawn: Series, results: Sequence[Result], label: str | None, colour: str) -> None:
        self._steps, self._end = drawn.steps(), drawn.finite[-1] if drawn.finite else 0.0
        self.name = drawn.name if label is None else label
        self.norm, self.domain = results[0].norm, in_words(answer.domain for answer in results)
        listed = len({answer.image for answer in results}) < len(results)
        self.share = SHARES[drawn.kind] + (", rivals listed" if listed else "")
        super().__init__(*self._steps, drawstyle="steps-post", color=colour, label=self.name)
        self.set_linestyle(LINES[drawn.kind])

    @property
    def top(self) -> float:
        """The right end of an axis that shows the whole curve."""
        return 1.05 * self._end

    def extend(self, top: float) -> None:
        """Extends the last step to the right end of the axis."""
        radii, shares = self._steps
        self.set_data([*radii, top], [*shares, shares[-1]])


def plot(rows: Iterable[Mapping[str, Any]], axes: Axes | None, label: str | None) -> Axes:
    """Draws one curve per method and norm of answers in their JSON form; several lists may share axes.

    label: stands in the legend in place of the method's name; with several methods, before it.
    """
    axes = accuracy.new_axes() if axes is None else axes
    tops = [axes.get_xlim()[1]] if axes.has_data() else []
    groups = group_by(map(result, rows), lambda answer: answer.norm)
    listed = [(method, group) for group in groups.values() for method in series(group, None)]
    for method, group in listed:
        words = label if label is None or len(listed) == 1 else f"{label}, {method.name}"
        answers = [answer for answer in group if answer.name == method.name]
        axes.add_line(AccuracyCurve(method, answers, words, f"C{len(axes.lines) % COLOURS}"))
    curves = [line for line in axes.lines if isinstance(line, AccuracyCurve)]
    top = max([*tops, *(curve.top for curve in curves)], default=0.0) or 1.0
    for curve in curves:
        curve.extend(top)
    shares = {curve.share for curve in curves}
    accuracy.frame(axes, top, _radius_label(curves), shares.pop() if len(shares) == 1 else "share of images")
    _tell_apart(curves)
    if curves:
        axes.legend(frameon=False)
    return axes


def _radius_label(curves: Sequence[AccuracyCurve]) -> str:
    """The label of the axis of radii: the norm and the valid inputs, where all curves agree on them."""
    norms, domains = {curve.norm for curve in curves}, {curve.domain for curve in curves}
    norm = f", p = {norms.pop()}" if len(norms) == 1 else ""
    valid = f"; {domains.pop() if len(domains) == 1 else UNLIKE}" if domains else ""
    return f"radius{norm}{valid}"


def _tell_apart(curves: Sequence[AccuracyCurve]) -> None:
    """Labels every curve by its name, by the norm and the valid inputs where these differ, else by a number."""
    norms, domains = {curve.norm for curve in curves}, {curve.domain for curve in curves}
    labels = [
        curve.name
        + (f", p = {curve.norm}" if len(norms) > 1 else "")
        + (f", {curve.domain}" if len(domains) > 1 else "")
        for curve in curves
    ]
    counts, seen = Counter(labels), Counter[str]()
    for curve, words in zip(curves, labels, strict=True):
        seen[words] += 1
        curve.set_label(f"{words} ({seen[words]})" if counts[words] > 1 else words)
