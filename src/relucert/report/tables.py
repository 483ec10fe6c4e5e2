"""Tables: real ones, with headers that a screen reader knows and, where asked for, a script can sort by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relucert.report import charts
from relucert.report.markup import Markup, tag
from relucert.report.reading import PARTS, Kind, Result
from relucert.report.series import PROVEN, Sandwich, Series, tightness
from relucert.report.summary import rounded_down, rounded_up

NONE = "\N{EN DASH}"
MANY = 15  # rows, beyond which a table scrolls in a window of its own


@dataclass(frozen=True)
class Cell:
    """What is shown, and what is sorted by: a number, or nothing, which comes last."""

    shown: object
    value: float | None = None
    note: str | None = None
    style: str | None = None


def table(caption: str, headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, sortable: bool = False) -> Markup:
    """The first cell of a row is its header; a column of numbers is sorted by a button in its own header."""
    numeric = {place for row in rows for place, cell in enumerate(row) if cell.value is not None}
    heads = [
        tag("th", tag("button", name, type="button"), scope="col", aria_sort="none")
        if sortable and place in numeric
        else tag("th", name, scope="col")
        for place, name in enumerate(headers)
    ]
    written = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *(tag("tr", *(_cell(place, cell) for place, cell in enumerate(row))) for row in rows)),
        class_="sortable" if sortable else None,
    )
    return tag(
        "div",
        written,
        class_="scroll tall" if len(rows) > MANY else "scroll",
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def methods(curves: Sequence[Series], questions: Sequence[Sandwich]) -> Markup:
    """A row a method: what it found in the mean, how tight, how fast."""
    rows = []
    for place, own in enumerate(curves):
        share = None if own.kind is Kind.UPPER else tightness(own.name, questions)
        rows.append(
            [
                Cell(tag("span", own.name, class_=f"key {charts.style(place, own.kind)}")),
                Cell(MEANING[own.kind]),
                Cell(f"{len(own.finite)} of {own.asked}", len(own.finite)),
                bound(own.kind, own.mean),
                bound(own.kind, own.median),
                Cell(NONE) if share is None else Cell(f"{share:.1%}", share),
                Cell(f"{own.seconds:.3g}", own.seconds),
            ]
        )
    reached = "nearest example" if any(own.upper is not None for own in questions) else "best proven bound"
    headers = ("method", "what it gives", "images", "mean", "median", "tightness", "seconds an answer")
    return table(f"Methods side by side; tightness is the share of the {reached}", headers, rows, sortable=True)


def sandwich(questions: Sequence[Sandwich], top: float, every_rival: bool) -> Markup:
    """A row a question: the largest proven bound, the exact distance, the nearest adversarial example."""
    given = {own.kind for question in questions for own in question.results}
    columns: list[tuple[str, Callable[[Sandwich], Cell]]] = [
        ("image", lambda own: Cell(own.results[0].image, own.results[0].image)),
        ("label", lambda own: Cell(own.results[0].label, own.results[0].label)),
    ]
    if every_rival:
        columns.append(("rival", lambda own: _rival(own.results[0].target)))
    columns.append(("from 0", lambda own: Cell(charts.bar(own, top))))
    if given & set(PROVEN):
        columns.append(("proven", lambda own: _end(Kind.CERTIFIED, own.lower)))
    if Kind.EXACT in given:
        columns.append(("exact", lambda own: ends(own.exact)))
    if given & {Kind.UPPER, Kind.EXACT}:
        columns.append(("nearest example", lambda own: _end(Kind.UPPER, own.upper)))
    if Kind.UNPROVEN in given:
        columns.append(("rounding ignored", lambda own: _guess(own, Kind.UNPROVEN)))
    if Kind.ESTIMATE in given:
        columns.append(("estimate", lambda own: _guess(own, Kind.ESTIMATE)))
    if any(own.gap is not None for own in questions):
        columns.append(("gap", lambda own: _gap(own.gap)))
    if any(own.reason for question in questions for own in question.results):
        columns.append(("remark", _remark))
    rows = [[make(question) for _, make in columns] for question in questions]
    return table("Every image", [name for name, _ in columns], rows, sortable=True)


def neurons(name: str, layers: Sequence[Sequence[float]], answers: int) -> Markup:
    """A row a layer: its neurons' mean counts over the images."""
    rows = [
        [Cell(number), Cell(charts.stack(counts)), *(Cell(f"{count:.1f}", count) for count in counts)]
        for number, counts in enumerate(layers, start=1)
    ]
    caption = f"{name}: neurons at the certified radius, mean over {answers} answers"
    return table(caption, ("layer", "shares", *PARTS), rows)


def bound(kind: Kind, value: float | None, note: str | None = None) -> Cell:
    """Rounded to the safe side of its kind."""
    if value is None:
        return Cell(NONE)
    if math.isinf(value):
        return Cell("any distance", 1e308, note)
    return Cell(rounded_up(value) if kind is Kind.UPPER else rounded_down(value), value, note)


def _end(kind: Kind, own: Result | None) -> Cell:
    """One end of a sandwich, and who gives it."""
    if own is None:
        return Cell(NONE)
    return bound(kind, own.upper if kind is Kind.UPPER else own.lower, own.name)


def _rival(target: int | None) -> Cell:
    return Cell(NONE) if target is None else Cell(target, target)


def _gap(gap: float | None) -> Cell:
    return Cell(NONE) if gap is None else Cell(f"{gap:.3g}\N{MULTIPLICATION SIGN}", gap)


def _remark(question: Sandwich) -> Cell:
    """What the answers remark; a remark that several make is said once."""
    remarks: dict[str, list[str]] = {}
    for own in question.results:
        if own.reason:
            remarks.setdefault(own.reason, []).append(own.name)
    alone = len(question.results) == 1
    said = [reason if alone else f"{', '.join(names)}: {reason}" for reason, names in remarks.items()]
    return Cell("; ".join(said), style="remark")


def ends(own: Result | None) -> Cell:
    """Both ends of an exact answer, or the one number they agree on."""
    if own is None or own.lower is None:
        return Cell(NONE)
    if math.isinf(own.lower):
        return Cell("none is valid", 1e308)
    low, high = rounded_down(own.lower), "?" if own.upper is None else rounded_up(own.upper)
    return Cell(low if low == high else f"{low} {NONE} {high}", own.lower, None if own.closed else "not closed")


def _guess(question: Sandwich, kind: Kind) -> Cell:
    own = next((own for own in question.results if own.kind is kind and own.lower is not None), None)
    return Cell(NONE) if own is None or own.lower is None else Cell(f"{own.lower:.4g}", own.lower, "not certified")


def _cell(place: int, cell: Cell) -> Markup:
    note = None if cell.note is None else tag("small", " ", cell.note)
    if place == 0:
        return tag("th", cell.shown, note, scope="row", data_value=_exactly(cell.value))
    style = cell.style or (None if cell.value is None else "number")
    return tag("td", cell.shown, note, data_value=_exactly(cell.value), class_=style)


def _exactly(value: float | None) -> str | None:
    return None if value is None else repr(float(value))


MEANING = {
    Kind.CERTIFIED: "certified lower bound",
    Kind.EXACT: "proven lower end of the exact interval",
    Kind.UNPROVEN: "not certified: rounding ignored",
    Kind.ESTIMATE: "not certified: an estimate",
    Kind.UPPER: "upper bound: an adversarial example",
}
