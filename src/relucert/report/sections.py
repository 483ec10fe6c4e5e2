"""The sections of a page about a group of runs: everything about one norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from relucert.common.words import counted
from relucert.report import charts, tables
from relucert.report.domain import NOT_RECORDED, in_words
from relucert.report.gallery import gallery
from relucert.report.grouping import Group
from relucert.report.markup import Markup, data, raw, tag
from relucert.report.reading import PARTS, Kind, Result
from relucert.report.series import PROVEN, Sandwich, Series, best_proven, sandwiches, series, tightness
from relucert.report.summary import against, rounded_down, rounded_up

NORMS = {"inf": "\N{INFINITY}"}
ACCURACY = {
    Kind.UPPER: "Accuracy under attack against distance",
    Kind.ESTIMATE: "Estimated accuracy against radius (not certified)",
    Kind.UNPROVEN: "Accuracy against radius, rounding ignored (not certified)",
}
MEANS = {
    Kind.ESTIMATE: "mean estimate (not certified)",
    Kind.UNPROVEN: "mean radius, rounding ignored (not certified)",
}


def norm_section(group: Group, norm: str, title: str, facts: Sequence[Markup | None]) -> Markup:
    """Everything about one norm.

    title: of the group, where there are several, else empty; facts: what is to be said first.
    """
    results = [answer for answer in group.results if answer.norm == norm]
    curves, questions = series(results, group.rivals), sandwiches(results, group.every_rival)
    top = charts.farthest(value for answer in results for value in (answer.lower, answer.upper))
    comparable = all(question.comparable for question in questions)
    measured = f"erturbations measured with p = {NORMS.get(norm, norm)}"
    pictures, rival_by_rival = gallery(questions), ", rival by rival" if group.every_rival else ""
    return tag(
        "section",
        tag("h2", f"{title}: p{measured}" if title else f"P{measured}"),
        *facts,
        _alarm(questions),
        None if comparable else _unlike(results),
        _tiles(curves, questions, best_proven(questions, group.rivals), against(group.target)),
        _accuracy(curves, norm, comparable, against(group.target)),
        _block(
            "Methods" if len(curves) > 1 else "Method",
            tables.methods(curves, questions, group.every_rival),
            _timing(curves, questions),
        ),
        _block(
            f"Image by image{rival_by_rival}",
            _bar_key(questions),
            tables.sandwich(questions, top, group.every_rival),
        ),
        _block("Adversarial examples", *pictures) if pictures else None,
        _neurons(results),
    )


def _block(title: str, *children: object) -> Markup:
    return tag("section", tag("h3", title), *children)


def _alarm(questions: Sequence[Sandwich]) -> Markup | None:
    """A warning where an adversarial example contradicts a proof."""
    wrong = [question.results[0].image for question in questions if question.violated]
    if not wrong:
        return None
    return tag(
        "p",
        f"Contradiction: an adversarial example lies within a proven radius at image {', '.join(map(str, wrong))}. "
        "One of the two is wrong; nothing on this page should be relied on.",
        class_="warning",
        role="alert",
    )


def _unlike(results: Sequence[Result]) -> Markup:
    """A warning that methods were asked about different valid inputs."""
    names: dict[str, list[str]] = {}
    for name in dict.fromkeys(result.name for result in results):
        words = in_words(result.domain for result in results if result.name == name)
        names.setdefault(words, []).append(name)
    groups = "; ".join(f"{words} ({', '.join(methods)})" for words, methods in names.items())
    older = " Older versions did not record them, and their certificates are about every input."
    return tag(
        "p",
        f"This file sets unlike questions side by side: {groups}.{older if NOT_RECORDED in names else ''} "
        "Ratios between them, such as tightness and gap, are left out.",
        class_="warning",
    )


def _tiles(curves: Sequence[Series], questions: Sequence[Sandwich], best: Series | None, rivals: str) -> Markup:
    """The few numbers to take away; rivals: how a sentence on images that keep their class goes on."""
    tiles = []
    if best is not None and best.mean is not None:
        if best.median is not None and math.isfinite(best.median):
            half = f"within this, half of the images provably keep their class{rivals}"
            tiles.append((rounded_down(best.median, 4), half))
        proven = [curve.name for curve in curves if curve.kind in PROVEN]
        by = proven[0] if len(proven) == 1 else "the best of all methods"
        tiles.append(
            (rounded_down(best.mean, 4), f"mean proven radius over {counted(len(best.finite), 'image')}, {by}")
        )
    for curve in curves:
        if curve.kind in MEANS and curve.mean is not None:
            over = f"over {counted(len(curve.finite), 'image')}, {curve.name}"
            tiles.append((rounded_down(curve.mean, 4), f"{MEANS[curve.kind]} {over}"))
    attacks = [curve for curve in curves if curve.kind is Kind.UPPER and curve.mean is not None]
    if attacks:
        nearest = min(attacks, key=lambda curve: curve.mean or 0.0)
        over = f"over {counted(len(nearest.finite), 'image')}, {nearest.name}"
        tiles.append((rounded_up(nearest.mean or 0.0, 4), f"mean distance of adversarial examples {over}"))
    gaps = [question.gap for question in questions if question.gap is not None]
    if gaps:
        tiles.append((f"{fmean(gaps):.3g}\N{MULTIPLICATION SIGN}", "mean gap: nearest example over proven radius"))
    return tag("dl", *(tag("div", tag("dt", text), tag("dd", number)) for number, text in tiles), class_="tiles")


def _accuracy(curves: Sequence[Series], norm: str, comparable: bool, rivals: str) -> Markup:
    """The curves, a slider for the radius, and what each curve says there; rivals: how its title goes on."""
    top = charts.farthest(radius for curve in curves for radius in curve.radii)
    content = [
        {
            "name": curve.name,
            "asked": curve.asked,
            "radii": curve.finite,
            "always": len(curve.radii) - len(curve.finite),
            "open": curve.kind is Kind.UPPER,
        }
        for curve in curves
    ]
    keys = [
        tag(
            "li",
            tag("span", curve.name, class_=f"key {charts.style(place, curve.kind)}"),
            " ",
            tag("output", counted(curve.asked, "image"), aria_live="off"),
        )
        for place, curve in enumerate(curves)
    ]
    middle = curves[0].median or 0.0
    start = round(1000 * middle / top) if middle < top else 0
    slider = tag("input", type="range", min=0, max=1000, value=start, aria_label="radius to read the curves at")
    figure = tag(
        "figure",
        charts.accuracy(curves, top, NORMS.get(norm, norm)),
        tag("div", tag("label", "at radius ", tag("output", "0", class_="radius"), slider), class_="reader"),
        tag("ul", *keys, class_="keys"),
        raw("script", data({"top": top, "curves": content}), type="application/json"),
        tag("figcaption", _accuracy_words(curves, comparable)),
        class_="accuracy",
    )
    return _block(f"{_accuracy_title({curve.kind for curve in curves})}{rivals}", figure)


def _accuracy_title(kinds: set[Kind]) -> str:
    """What the curves are, in words that suit every kind of run."""
    if kinds & set(PROVEN):
        return "Certified accuracy against radius"
    return ACCURACY[next(iter(kinds))] if len(kinds) == 1 else "Accuracy against radius (not certified)"


def _accuracy_words(curves: Sequence[Series], comparable: bool) -> str:
    """How to read the curves."""
    kinds = {curve.kind for curve in curves}
    words = ["The share of images that keep their class within a radius."]
    if kinds & set(PROVEN):
        words.append("Solid: proven.")
    if Kind.UPPER in kinds:
        limit = ", which no proof can exceed" if comparable else ""
        words.append(f"Dashed: the share that no attack has changed{limit}.")
    if kinds & {Kind.UNPROVEN, Kind.ESTIMATE}:
        words.append("Dotted: not certified.")
    if len({curve.asked for curve in curves}) > 1:
        words.append("Not every method answered for every image: curves over different images can't be compared.")
    return " ".join(words)


def _timing(curves: Sequence[Series], questions: Sequence[Sandwich]) -> Markup | None:
    """The chart of time against tightness; None where fewer than two methods have both."""
    points = [
        charts.Point(curve.name, place, curve.seconds, share)
        for place, curve in enumerate(curves)
        if curve.kind is not Kind.UPPER and curve.seconds and (share := tightness(curve.name, questions)) is not None
    ]
    if len(points) < 2:
        return None
    words = "Time against tightness: the higher, the more of the way is bounded; the farther left, the faster."
    above = " An estimate beyond 100% is drawn there." if any(point.tightness > 1 for point in points) else ""
    return tag("figure", charts.timing(points), tag("figcaption", words, above))


def _bar_key(questions: Sequence[Sandwich]) -> Markup:
    """What the bars' colours mean."""
    answers = [answer for question in questions for answer in question.results]
    given = {answer.kind for answer in answers}
    keys = [("proven", "proven")] if given & set(PROVEN) else []
    keys += [("open", "unknown, up to the nearest example")] if given & {Kind.UPPER, Kind.EXACT} else []
    marked = list(dict.fromkeys(answer.name for answer in answers if answer.kind is not Kind.UPPER))
    if marked:
        keys.append(("mark-key", f"a line at {marked[0]}" if len(marked) == 1 else "a line for each method"))
    return tag("ul", *(tag("li", tag("span", text, class_=f"swatch {name}")) for name, text in keys), class_="keys")


def _neurons(results: Sequence[Result]) -> Markup | None:
    """Mean counts over the answers, for each method that has any."""
    names = list(dict.fromkeys(result.name for result in results if result.neurons))
    blocks = []
    for name in names:
        rows = [result.neurons for result in results if result.name == name and result.neurons]
        layers = [
            [fmean(row[layer][part] for row in rows if layer < len(row)) for part in range(len(PARTS))]
            for layer in range(max(map(len, rows)))
        ]
        blocks.append(tables.neurons(name, layers, len(rows)))
    if not blocks:
        return None
    keys = tag("ul", *(tag("li", tag("span", part, class_=f"swatch {part}")) for part in PARTS), class_="keys")
    return _block("Where neurons are undecided", keys, *blocks)
