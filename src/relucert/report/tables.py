"""HTML tables, with headers that screen readers know and, where asked for, a script can sort by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from relucert.common.words import counted
from relucert.report import charts
from relucert.report.markup import render
from relucert.report.reading import NEURON_STATES, AnswerKind, Result
from relucert.report.series import PROVEN, Sandwich, Series, tightness
from relucert.report.summary import rounded_down, rounded_up

NONE = "\N{EN DASH}"
REMARK = "remark"  # the title of a last column that a table may do without
MANY = 15  # rows, beyond which a table scrolls in its window


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        value: The number that rows are sorted by; rows without one come last.
        note: What stands after it in small letters.
        style: The cell's style; by default that of numbers where it has one.
        key: The style of what is shown where that is the key of a curve.
    """

    shown: object
    value: float | None = None
    note: str | None = None
    style: str | None = None
    key: str | None = None


def table(
    caption: str, headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, sortable: bool = False,
    notes: Sequence[str] = (),
) -> Markup:  # fmt: skip
    """A table whose rows have their header first; a button in its header sorts a column of numbers.

    A last column of remarks is left out where there are none. notes: One paragraph each, below the table.
    """
    if headers[-1] == REMARK and not any(row[-1].shown for row in rows):
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    numeric = {column for row in rows for column, cell in enumerate(row) if cell.value is not None}
    return render(
        "table.html", caption=caption, headers=headers, rows=rows, sortable=sortable, numeric=numeric, many=MANY,
        notes=notes,
    )  # fmt: skip


def methods(curves: Sequence[Series], questions: Sequence[Sandwich], every_rival: bool) -> Markup:
    """One row per method: its mean and median radius, how tight it is beside others, how fast."""
    shares = [None if curve.kind is AnswerKind.UPPER else tightness(curve.name, questions) for curve in curves]
    beside = len(curves) > 1 and any(share is not None for share in shares)
    rows = []
    for index, (curve, share) in enumerate(zip(curves, shares, strict=True)):
        rows.append(
            [
                Cell(curve.name, key=charts.style(index, curve.kind)),
                Cell(MEANING[curve.kind], note=curve.remark),
                Cell(f"{len(curve.finite)} of {curve.images}", len(curve.finite)),
                bound(curve.kind, curve.mean),
                bound(curve.kind, curve.median),
                *([number(share, "{:.1%}")] if beside else []),
                number(curve.seconds, "{:.3g}"),
            ]
        )
    reached = "nearest example" if any(question.upper is not None for question in questions) else "best proven bound"
    caption = [
        f"Methods side by side; tightness is the share of the {reached}" if beside else "Means over the images",
        *(["an image counts with its weakest rival"] if every_rival else []),
    ]
    headers = ["method", "what it gives", "images", "mean", "median", *(["tightness"] if beside else [])]
    return table("; ".join(caption), [*headers, "seconds per answer"], rows, sortable=True)


def sandwich(questions: Sequence[Sandwich], top: float, every_rival: bool) -> Markup:
    """One row per question: the largest proven bound, the exact distance, the nearest adversarial example."""
    kinds = {result.kind for question in questions for result in question.results}
    attacked = bool(kinds & {AnswerKind.UPPER, AnswerKind.EXACT})
    gaps = any(question.gap is not None for question in questions)
    columns: list[tuple[str, bool, Callable[[Sandwich], Cell]]] = [  # with whether there is anything in them
        ("image", True, lambda question: number(question.results[0].image)),
        ("label", True, lambda question: number(question.results[0].label)),
        ("rival", every_rival, lambda question: number(question.results[0].target)),
        ("from 0", True, lambda question: Cell(charts.bar(question, top))),
        ("proven", bool(kinds & set(PROVEN)), lambda question: _end(AnswerKind.CERTIFIED, question.lower)),
        ("exact", AnswerKind.EXACT in kinds, lambda question: ends(question.exact)),
        ("nearest example", attacked, lambda question: _end(AnswerKind.UPPER, question.upper)),
        ("rounding ignored", AnswerKind.UNPROVEN in kinds, lambda question: _guess(question, AnswerKind.UNPROVEN)),
        ("estimate", AnswerKind.ESTIMATE in kinds, lambda question: _guess(question, AnswerKind.ESTIMATE)),
        ("gap", gaps, lambda question: number(question.gap, "{:.3g}\N{MULTIPLICATION SIGN}")),
        (REMARK, True, _remark),
    ]
    shown = [(title, cell) for title, present, cell in columns if present]
    rows = [[cell(question) for _, cell in shown] for question in questions]
    return table("Every image", [title for title, _ in shown], rows, sortable=True)


def neurons(name: str, layers: Sequence[Sequence[float]], answers: int) -> Markup:
    """One row per layer of ReLUs: its neurons' mean counts over the answers; layers: (layers, statuses)."""
    rows = [
        [Cell(layer), Cell(charts.stack(counts)), *(number(count, "{:.1f}") for count in counts)]
        for layer, counts in enumerate(layers, start=1)
    ]
    caption = f"{name}: neurons at the certified radius, mean over {counted(answers, 'answer')}"
    return table(caption, ("layer", "shares", *NEURON_STATES), rows)


def number(value: float | None, pattern: str = "{}", note: str | None = None) -> Cell:
    """A number that rows can be sorted by, written as the pattern says."""
    return Cell(NONE if value is None else pattern.format(value), value, note)


def bound(answer_kind: AnswerKind, value: float | None, note: str | None = None) -> Cell:
    """A bound, rounded down, or up if it is an upper bound, so that it still holds as printed."""
    if value is None:
        return Cell(NONE, note=note)
    if math.isinf(value):
        return Cell("any distance", 1e308, note)
    return Cell(rounded_up(value) if answer_kind is AnswerKind.UPPER else rounded_down(value), value, note)


def _end(answer_kind: AnswerKind, result: Result | None) -> Cell:
    """The best lower or upper bound, and the method that gives it."""
    if result is None:
        return Cell(NONE)
    return bound(answer_kind, result.upper if answer_kind is AnswerKind.UPPER else result.lower, result.name)


def _remark(question: Sandwich) -> Cell:
    """The reasons that the answers give; a reason that several give is written once."""
    remarks: dict[str, list[str]] = {}
    for result in question.results:
        if result.reason:
            remarks.setdefault(result.reason, []).append(result.name)
    alone = len(question.results) == 1
    said = [reason if alone else f"{', '.join(names)}: {reason}" for reason, names in remarks.items()]
    return Cell("; ".join(said), style="remark")


def ends(exact: Result | None) -> Cell:
    """Both ends of an exact answer, or the one number they agree on."""
    if exact is None or exact.lower is None:
        return Cell(NONE)
    if math.isinf(exact.lower):
        return Cell("none is valid", 1e308)
    low, high = rounded_down(exact.lower), "?" if exact.upper is None else rounded_up(exact.upper)
    return Cell(low if low == high else f"{low} {NONE} {high}", exact.lower, None if exact.closed else "not closed")


def _guess(question: Sandwich, answer_kind: AnswerKind) -> Cell:
    """The first number of a kind that is not certified."""
    values = [result.lower for result in question.results if result.kind is answer_kind and result.lower is not None]
    return Cell(f"{values[0]:.4g}", values[0], "not certified") if values else Cell(NONE)


MEANING = {
    AnswerKind.CERTIFIED: "certified lower bound",
    AnswerKind.EXACT: "proven lower end of the exact interval",
    AnswerKind.UNPROVEN: "not certified: rounding ignored",
    AnswerKind.ESTIMATE: "not certified: an estimate",
    AnswerKind.UPPER: "upper bound: an adversarial example",
}
