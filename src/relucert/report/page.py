"""A run as one self-contained HTML page: no request leaves it, and only the script it comes with may run."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from statistics import fmean
from typing import Any

from relucert.report import charts, png, tables
from relucert.report.domain import NOT_RECORDED, in_words
from relucert.report.markup import Markup, data, raw, tag
from relucert.report.reading import PARTS, Kind, Picture, Result, Run
from relucert.report.series import PROVEN, Sandwich, Series, best_proven, sandwiches, series, tightness
from relucert.report.summary import rounded_down, rounded_up

PICTURES = 60  # adversarial examples on a page at most
PICTURE_BYTES = 4_000_000  # of markup, beyond which no more are added
NORMS = {"inf": "\N{INFINITY}"}


def page(run: Run) -> str:
    """The whole page as text."""
    folder = resources.files("relucert.report")
    style, script = (folder.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    network = run.head.get("network")
    name = network.get("name") if isinstance(network, dict) else None
    title = f"How robust is {name or 'the network'}?"
    norms = list(dict.fromkeys(result.norm for result in run.results))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} \N{MIDDLE DOT} relucert"),
        raw("style", style),
    )
    parts = [_norm(run, norm, [result for result in run.results if result.norm == norm]) for norm in norms]
    body = tag("body", _header(run, title), tag("main", *parts, _record(run.head)), raw("script", script))
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en")


def _policy(style: str, script: str) -> str:
    """Nothing may be fetched, and no style or script but these may count."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _header(run: Run, title: str) -> Markup:
    """The title, and what the whole run has in common."""
    network, options = run.head.get("network"), run.options
    layers = network.get("layers") if isinstance(network, dict) else None
    facts = [
        f"{len({result.image for result in run.results}):,} images",
        None if layers is None else f"layers {layers}",
        None if options.get("target") is None else f"target {options['target']}",
        in_words(result.domain for result in run.results),
        None if options.get("scale") is None else "perturbations scaled per coordinate",
        f"relucert {run.head['relucert']}",
    ]
    unfinished = tag("p", "This run was not finished: the page tells of the answers so far.", class_="warning")
    skipped = run.head.get("skipped")
    left_out = [f"{name}: {reason}" for name, reason in skipped.items()] if isinstance(skipped, dict) else []
    return tag(
        "header",
        tag("h1", title),
        tag("p", " \N{MIDDLE DOT} ".join(fact for fact in facts if fact)),
        tag("p", f"Left out or stopped: {'; '.join(left_out)}") if left_out else None,
        None if run.complete else unfinished,
    )


def _norm(run: Run, norm: str, results: Sequence[Result]) -> Markup:
    """Everything about one norm."""
    curves, questions = series(results, run.rivals), sandwiches(results, run.every_rival)
    top = charts.farthest(value for result in results for value in (result.lower, result.upper))
    comparable = all(question.comparable for question in questions)
    return tag(
        "section",
        tag("h2", f"Perturbations measured with p = {NORMS.get(norm, norm)}"),
        _alarm(questions),
        None if comparable else _unlike(results),
        _tiles(curves, questions, best_proven(questions, run.rivals)),
        _accuracy(curves, charts.farthest(radius for curve in curves for radius in curve.radii), comparable),
        _block("Methods", tables.methods(curves, questions), _timing(curves, questions)),
        _block("Image by image", _bar_key(questions), tables.sandwich(questions, top, run.every_rival)),
        _pictures(questions),
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


def _tiles(curves: Sequence[Series], questions: Sequence[Sandwich], best: Series | None) -> Markup:
    """The few numbers to take away."""
    tiles = []
    if best is not None and best.mean is not None:
        if best.median is not None and math.isfinite(best.median):
            tiles.append((rounded_down(best.median, 4), "within this, half of the images provably keep their class"))
        over = f"over {len(best.finite)} images, the best of all methods"
        tiles.append((rounded_down(best.mean, 4), f"mean proven radius {over}"))
    attacks = [curve for curve in curves if curve.kind is Kind.UPPER and curve.mean is not None]
    if attacks:
        nearest = min(attacks, key=lambda curve: curve.mean or 0.0)
        over = f"over {len(nearest.finite)} images, {nearest.name}"
        tiles.append((rounded_up(nearest.mean or 0.0, 4), f"mean distance of adversarial examples {over}"))
    gaps = [question.gap for question in questions if question.gap is not None]
    if gaps:
        tiles.append((f"{fmean(gaps):.3g}\N{MULTIPLICATION SIGN}", "mean gap: nearest example over proven radius"))
    return tag("dl", *(tag("div", tag("dt", text), tag("dd", number)) for number, text in tiles), class_="tiles")


def _accuracy(curves: Sequence[Series], top: float, comparable: bool) -> Markup:
    """The curves, a slider for the radius, and what each curve says there."""
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
            tag("output", f"{curve.asked} images", aria_live="off"),
        )
        for place, curve in enumerate(curves)
    ]
    middle = curves[0].median or 0.0
    start = round(1000 * middle / top) if middle < top else 0
    slider = tag("input", type="range", min=0, max=1000, value=start, aria_label="radius to read the curves at")
    figure = tag(
        "figure",
        charts.accuracy(curves, top),
        tag("div", tag("label", "at radius ", tag("output", "0", class_="radius"), slider), class_="reader"),
        tag("ul", *keys, class_="keys"),
        raw("script", data({"top": top, "curves": content}), type="application/json"),
        tag("figcaption", _accuracy_words(curves, comparable)),
        class_="accuracy",
    )
    title = "Certified accuracy" if any(curve.kind in PROVEN for curve in curves) else "Accuracy, not certified"
    return _block(f"{title} against radius", figure)


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
    given = {result.kind for question in questions for result in question.results}
    keys = [("proven", "proven")] if given & set(PROVEN) else []
    keys += [("open", "unknown, up to the nearest example")] if given & {Kind.UPPER, Kind.EXACT} else []
    keys += [("mark-key", "a line for each method")]
    return tag("ul", *(tag("li", tag("span", text, class_=f"swatch {name}")) for name, text in keys), class_="keys")


def _pictures(questions: Sequence[Sandwich]) -> Markup | None:
    """The nearest adversarial examples: original, perturbation, adversarial."""
    known = [
        (result, result.picture, question)
        for question in questions
        for result in question.results
        if result.picture is not None and result.upper
    ]
    known.sort(key=lambda item: item[0].upper or 0.0)
    drawn: list[Markup] = []
    for result, picture, question in known[:PICTURES]:
        if sum(map(len, drawn)) < PICTURE_BYTES:
            drawn.append(_triple(result, picture, question.lower))
    if not drawn:
        return None
    words = f"The {len(drawn)} nearest of {len(known)} adversarial examples, nearest first."
    return _block("Adversarial examples", tag("p", words), tag("div", *drawn, class_="gallery"))


def _triple(attack: Result, picture: Picture, lower: Result | None) -> Markup:
    """The image, the perturbation and the adversarial example, its distance, and the radius proven to have none."""
    changes = [new - old for old, new in zip(picture.original, picture.adversarial, strict=True)]
    factor = png.magnification(max(map(abs, changes)) / 255)
    shown = bytes(min(255, max(0, round(127.5 + factor * change))) for change in changes)
    taken = "another class" if attack.predicted is None else f"class {attack.predicted}"
    panels = (
        (picture.original, f"image {attack.image}, class {attack.label}", f"class {attack.label}"),
        (shown, f"its perturbation, magnified {factor} times", f"\N{MULTIPLICATION SIGN}{factor}"),
        (picture.adversarial, f"adversarial example for image {attack.image}, taken for {taken}", taken),
    )
    pictures = [
        tag("figure", tag("img", src=png.address(picture.shape, pixels), alt=alt), tag("figcaption", words))
        for pixels, alt, words in panels
    ]
    distance, proven = f"image {attack.image}: distance {rounded_up(attack.upper or 0.0, 4)}", ""
    if lower is not None and lower.lower and lower.covers(attack):
        proven = f", none within {rounded_down(lower.lower, 4)} ({lower.name})"
    words = tag("small", attack.name, proven)
    return tag("article", tag("h4", distance), tag("div", *pictures), words, class_="triple")


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


def _record(head: Mapping[str, Any]) -> Markup:
    """What is needed to run it again: everything that the head of the run file says."""
    rows = [
        tag("div", tag("dt", name), tag("dd", value))
        for key, content in head.items()
        for name, value in _entries(key, content)
    ]
    return tag("section", tag("h2", "For reproduction"), tag("dl", *rows, class_="record"))


def _entries(name: str, content: Any) -> list[tuple[str, str]]:
    """Names and values of whatever is nested in the content."""
    if isinstance(content, dict):
        return [pair for key, value in content.items() for pair in _entries(f"{name} \N{MIDDLE DOT} {key}", value)]
    if isinstance(content, bool):
        return [(name, "yes" if content else "no")]
    if isinstance(content, list):
        return [(name, ", ".join(map(str, content)))]
    return [] if content is None else [(name, str(content))]
