"""The sections of a page about a group of runs: everything about one norm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from markupsafe import Markup

from relucert.common.words import counted
from relucert.report import charts, tables
from relucert.report.domain import NOT_RECORDED, in_words
from relucert.report.gallery import gallery
from relucert.report.grouping import RunGroup
from relucert.report.markup import render
from relucert.report.reading import NEURON_STATES, AnswerKind, Result
from relucert.report.series import PROVEN, Sandwich, Series, best_proven, sandwiches, series, tightness
from relucert.report.summary import against, rounded_down, rounded_up

NORMS = {"inf": "\N{INFINITY}"}
ACCURACY = {
    AnswerKind.UPPER: "Accuracy under attack against distance",
    AnswerKind.ESTIMATE: "Estimated accuracy against radius (not certified)",
    AnswerKind.UNPROVEN: "Accuracy against radius, rounding ignored (not certified)",
}
MEANS = {
    AnswerKind.ESTIMATE: "mean estimate (not certified)",
    AnswerKind.UNPROVEN: "mean radius, rounding ignored (not certified)",
}

Tiles = list[tuple[str, str]]
"""Numbers as they are shown, each with what it is."""


def norm_section(group: RunGroup, norm: str, title: str, facts: Mapping[str, Any] | None) -> Markup:
    """Everything about one norm.

    Args:
        title: The group's name where the page has several groups, else empty.
        facts: What to say first of the group; None where that is said elsewhere.
    """
    results = [answer for answer in group.results if answer.norm == norm]
    curves, questions = series(results, group.rivals), sandwiches(results, group.every_rival)
    top = charts.farthest(value for answer in results for value in (answer.lower, answer.upper))
    comparable = all(question.comparable for question in questions)
    measured = f"erturbations measured with p = {NORMS.get(norm, norm)}"
    rivals = against(group.target)
    return render(
        "norm.html",
        heading=f"{title}: p{measured}" if title else f"P{measured}",
        group=facts,
        contradicted=[question.results[0].image for question in questions if question.violated],
        unlike=None if comparable else _unlike(results),
        tiles=_tiles(curves, questions, best_proven(questions, group.rivals), rivals),
        accuracy=_accuracy(curves, norm, comparable, rivals),
        methods=_methods(curves, questions, group.every_rival),
        every_rival=group.every_rival,
        bar_keys=_bar_keys(questions),
        images=tables.sandwich(questions, top, group.every_rival),
        gallery=gallery(questions),
        neuron_keys=[(state, state) for state in NEURON_STATES],
        neurons=_neurons(results),
    )


def _unlike(results: Sequence[Result]) -> str:
    """A warning that methods were asked about different valid inputs."""
    names: dict[str, list[str]] = {}
    for name in dict.fromkeys(result.name for result in results):
        words = in_words(result.domain for result in results if result.name == name)
        names.setdefault(words, []).append(name)
    groups = "; ".join(f"{words} ({', '.join(methods)})" for words, methods in names.items())
    older = " Older versions did not record them, and their certificates are about every input."
    return (
        f"This file sets unlike questions side by side: {groups}.{older if NOT_RECORDED in names else ''} "
        "Ratios between them, such as tightness and gap, are left out."
    )


def _tiles(curves: Sequence[Series], questions: Sequence[Sandwich], best: Series | None, rivals: str) -> Tiles:
    """The few numbers to take away; rivals: the end of a sentence on images that keep their class."""
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
    attacks = [curve for curve in curves if curve.kind is AnswerKind.UPPER and curve.mean is not None]
    if attacks:
        nearest = min(attacks, key=lambda curve: curve.mean or 0.0)
        over = f"over {counted(len(nearest.finite), 'image')}, {nearest.name}"
        tiles.append((rounded_up(nearest.mean or 0.0, 4), f"mean distance of adversarial examples {over}"))
    gaps = [question.gap for question in questions if question.gap is not None]
    if gaps:
        tiles.append((f"{fmean(gaps):.3g}\N{MULTIPLICATION SIGN}", "mean gap: nearest example over proven radius"))
    return tiles


def _accuracy(curves: Sequence[Series], norm: str, comparable: bool, rivals: str) -> dict[str, Any]:
    """The curves, where their slider starts, and what the page's script reads from them; rivals: how the title ends."""
    top = charts.farthest(radius for curve in curves for radius in curve.radii)
    content = [
        {
            "name": curve.name,
            "asked": curve.images,
            "radii": curve.finite,
            "always": len(curve.radii) - len(curve.finite),
            "open": curve.kind is AnswerKind.UPPER,
        }
        for curve in curves
    ]
    middle = curves[0].median or 0.0
    return {
        "title": f"{_accuracy_title({curve.kind for curve in curves})}{rivals}",
        "chart": charts.accuracy(curves, top, NORMS.get(norm, norm)),
        "start": round(1000 * middle / top) if middle < top else 0,
        "legend": [
            (charts.style(number, curve.kind), curve.name, counted(curve.images, "image"))
            for number, curve in enumerate(curves)
        ],
        "data": {"top": top, "curves": content},
        "words": _accuracy_words(curves, comparable),
    }


def _accuracy_title(kinds: set[AnswerKind]) -> str:
    """The title of the chart of accuracy, which says whether anything in it is certified."""
    if kinds & set(PROVEN):
        return "Certified accuracy against radius"
    return ACCURACY[next(iter(kinds))] if len(kinds) == 1 else "Accuracy against radius (not certified)"


def _accuracy_words(curves: Sequence[Series], comparable: bool) -> str:
    """How to read the curves."""
    kinds = {curve.kind for curve in curves}
    words = ["The share of images that keep their class within a radius."]
    if kinds & set(PROVEN):
        words.append("Solid: proven.")
    if AnswerKind.UPPER in kinds:
        limit = ", which no proof can exceed" if comparable else ""
        words.append(f"Dashed: the share that no attack has changed{limit}.")
    if kinds & {AnswerKind.UNPROVEN, AnswerKind.ESTIMATE}:
        words.append("Dotted: not certified.")
    if len({curve.images for curve in curves}) > 1:
        words.append("Not every method answered for every image: curves over different images can't be compared.")
    return " ".join(words)


def _methods(curves: Sequence[Series], questions: Sequence[Sandwich], every_rival: bool) -> dict[str, Any]:
    """The table of methods, and the chart of time against tightness where two methods at least have both."""
    points = [
        charts.Point(curve.name, charts.colour(number), curve.seconds, share)
        for number, curve in enumerate(curves)
        if curve.kind is not AnswerKind.UPPER
        and curve.seconds
        and (share := tightness(curve.name, questions)) is not None
    ]
    return {
        "title": "Methods" if len(curves) > 1 else "Method",
        "table": tables.methods(curves, questions, every_rival),
        "timing": charts.timing(points) if len(points) > 1 else None,
        "beyond": any(point.tightness > 1 for point in points),
    }


def _bar_keys(questions: Sequence[Sandwich]) -> list[tuple[str, str]]:
    """The legend of the bars' colours."""
    answers = [answer for question in questions for answer in question.results]
    kinds = {answer.kind for answer in answers}
    keys = [("proven", "proven")] if kinds & set(PROVEN) else []
    keys += [("open", "unknown, up to the nearest example")] if kinds & {AnswerKind.UPPER, AnswerKind.EXACT} else []
    marked = list(dict.fromkeys(answer.name for answer in answers if answer.kind is not AnswerKind.UPPER))
    if marked:
        keys.append(("mark-key", f"a line at {marked[0]}" if len(marked) == 1 else "a line for each method"))
    return keys


def _neurons(results: Sequence[Result]) -> list[Markup]:
    """One table per method that counts neurons: mean counts over its answers."""
    blocks = []
    for name in dict.fromkeys(result.name for result in results if result.neurons):
        rows = [result.neurons for result in results if result.name == name and result.neurons]
        layers = [
            [fmean(row[layer][state] for row in rows if layer < len(row)) for state in range(len(NEURON_STATES))]
            for layer in range(max(map(len, rows)))
        ]
        blocks.append(tables.neurons(name, layers, len(rows)))
    return blocks
