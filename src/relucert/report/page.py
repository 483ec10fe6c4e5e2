"""A run as one page that needs nothing else: no request leaves it, and only its own script may run."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from statistics import fmean
from typing import Any

from relucert.report import charts, png, tables
from relucert.report.markup import Markup, data, raw, tag
from relucert.report.reading import PARTS, Kind, Picture, Result, Run
from relucert.report.series import PROVEN, Sandwich, Series, best_proven, sandwiches, series, tightness
from relucert.report.summary import rounded_down, rounded_up

PICTURES = 60  # at most so many triples, and so many bytes of them
PICTURE_BYTES = 4_000_000
NORMS = {"inf": "\N{INFINITY}"}


def page(run: Run) -> str:
    """The whole page as text."""
    folder = resources.files("relucert.report")
    style, script = (folder.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    network = run.head.get("network")
    name = network.get("name") if isinstance(network, dict) else None
    title = f"How robust is {name or 'the network'}?"
    norms = list(dict.fromkeys(own.norm for own in run.results))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} \N{MIDDLE DOT} relucert"),
        raw("style", style),
    )
    parts = [_norm(run, norm, [own for own in run.results if own.norm == norm]) for norm in norms]
    body = tag("body", _header(run, title), tag("main", *parts, _record(run.head)), raw("script", script))
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en")


def _policy(style: str, script: str) -> str:
    """Nothing may be fetched, and no style or script but these may count."""
    own = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{own[0]}'; script-src 'sha256-{own[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _header(run: Run, title: str) -> Markup:
    network, options = (own if isinstance(own, dict) else {} for own in map(run.head.get, ("network", "options")))
    facts = [
        f"{len({own.image for own in run.results}):,} images",
        None if network.get("layers") is None else f"layers {network['layers']}",
        None if options.get("target") is None else f"target {options['target']}",
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
    """All that was asked in one norm."""
    curves, questions = series(results, run.rivals), sandwiches(results, run.every_rival)
    top = charts.farthest(value for own in results for value in (own.lower, own.upper))
    return tag(
        "section",
        tag("h2", f"Perturbations measured with p = {NORMS.get(norm, norm)}"),
        _alarm(questions),
        _tiles(curves, questions, best_proven(questions, run.rivals)),
        _accuracy(curves, charts.farthest(radius for own in curves for radius in own.radii)),
        _block("Methods", tables.methods(curves, questions), _timing(curves, questions)),
        _block("Image by image", _bar_key(questions), tables.sandwich(questions, top, run.every_rival)),
        _pictures(questions),
        _neurons(results),
    )


def _block(title: str, *children: object) -> Markup:
    return tag("section", tag("h3", title), *children)


def _alarm(questions: Sequence[Sandwich]) -> Markup | None:
    wrong = [own.results[0].image for own in questions if own.violated]
    if not wrong:
        return None
    return tag(
        "p",
        f"Contradiction: an adversarial example lies within a proven radius at image {', '.join(map(str, wrong))}. "
        "One of the two is wrong; nothing on this page should be relied on.",
        class_="warning",
        role="alert",
    )


def _tiles(curves: Sequence[Series], questions: Sequence[Sandwich], best: Series | None) -> Markup:
    """The few numbers to take away."""
    tiles = []
    if best is not None and best.mean is not None:
        if best.median is not None and math.isfinite(best.median):
            tiles.append((rounded_down(best.median, 4), "within this, half of the images provably keep their class"))
        over = f"over {len(best.finite)} images, the best of all methods"
        tiles.append((rounded_down(best.mean, 4), f"mean proven radius {over}"))
    attacks = [own for own in curves if own.kind is Kind.UPPER and own.mean is not None]
    if attacks:
        nearest = min(attacks, key=lambda own: own.mean or 0.0)
        over = f"over {len(nearest.finite)} images, {nearest.name}"
        tiles.append((rounded_up(nearest.mean or 0.0, 4), f"mean distance of adversarial examples {over}"))
    gaps = [own.gap for own in questions if own.gap is not None]
    if gaps:
        tiles.append((f"{fmean(gaps):.3g}\N{MULTIPLICATION SIGN}", "mean gap: nearest example over proven radius"))
    return tag("dl", *(tag("div", tag("dt", text), tag("dd", number)) for number, text in tiles), class_="tiles")


def _accuracy(curves: Sequence[Series], top: float) -> Markup:
    """The curves, a slider for the radius, and what each curve says there."""
    content = [
        {
            "name": own.name,
            "asked": own.asked,
            "radii": own.finite,
            "always": len(own.radii) - len(own.finite),
            "open": own.kind is Kind.UPPER,
        }
        for own in curves
    ]
    keys = [
        tag(
            "li",
            tag("span", own.name, class_=f"key {charts.style(place, own.kind)}"),
            " ",
            tag("output", f"{own.asked} images", aria_live="off"),
        )
        for place, own in enumerate(curves)
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
        tag("figcaption", _accuracy_words(curves)),
        class_="accuracy",
    )
    title = "Certified accuracy" if any(own.kind in PROVEN for own in curves) else "Accuracy, not certified"
    return _block(f"{title} against radius", figure)


def _accuracy_words(curves: Sequence[Series]) -> str:
    kinds = {own.kind for own in curves}
    words = ["The share of images that keep their class within a radius."]
    if kinds & set(PROVEN):
        words.append("Solid: proven.")
    if Kind.UPPER in kinds:
        words.append("Dashed: the share that no attack has changed, which no proof can exceed.")
    if kinds & {Kind.UNPROVEN, Kind.ESTIMATE}:
        words.append("Dotted: not certified.")
    if len({own.asked for own in curves}) > 1:
        words.append("Not every method answered for every image: curves over different images can't be compared.")
    return " ".join(words)


def _timing(curves: Sequence[Series], questions: Sequence[Sandwich]) -> Markup | None:
    points = [
        charts.Point(own.name, place, own.seconds, share)
        for place, own in enumerate(curves)
        if own.kind is not Kind.UPPER and own.seconds and (share := tightness(own.name, questions)) is not None
    ]
    if len(points) < 2:
        return None
    words = "Time against tightness: the higher, the more of the way is bounded; the farther left, the faster."
    above = " An estimate beyond 100% is drawn there." if any(own.tightness > 1 for own in points) else ""
    return tag("figure", charts.timing(points), tag("figcaption", words, above))


def _bar_key(questions: Sequence[Sandwich]) -> Markup:
    """What the bars' colours mean."""
    given = {own.kind for question in questions for own in question.results}
    keys = [("proven", "proven")] if given & set(PROVEN) else []
    keys += [("open", "unknown, up to the nearest example")] if given & {Kind.UPPER, Kind.EXACT} else []
    keys += [("mark-key", "a line for each method")]
    return tag("ul", *(tag("li", tag("span", text, class_=f"swatch {name}")) for name, text in keys), class_="keys")


def _pictures(questions: Sequence[Sandwich]) -> Markup | None:
    """The nearest adversarial examples: original, perturbation, adversarial."""
    known = [
        (own, own.picture, question)
        for question in questions
        for own in question.results
        if own.picture is not None and own.upper
    ]
    known.sort(key=lambda item: item[0].upper or 0.0)
    drawn: list[Markup] = []
    for own, picture, question in known[:PICTURES]:
        if sum(map(len, drawn)) < PICTURE_BYTES:
            drawn.append(_triple(own, picture, question.lower))
    if not drawn:
        return None
    words = f"The {len(drawn)} nearest of {len(known)} adversarial examples, nearest first."
    return _block("Adversarial examples", tag("p", words), tag("div", *drawn, class_="gallery"))


def _triple(own: Result, picture: Picture, lower: Result | None) -> Markup:
    """Three pictures, how far apart the outer two are, and how near nothing of the kind can be."""
    changes = [new - old for old, new in zip(picture.original, picture.adversarial, strict=True)]
    factor = png.magnification(max(map(abs, changes)) / 255)
    shown = bytes(min(255, max(0, round(127.5 + factor * change))) for change in changes)
    taken = "another class" if own.predicted is None else f"class {own.predicted}"
    panels = (
        (picture.original, f"image {own.image}, class {own.label}", f"class {own.label}"),
        (shown, f"its perturbation, magnified {factor} times", f"\N{MULTIPLICATION SIGN}{factor}"),
        (picture.adversarial, f"adversarial example for image {own.image}, taken for {taken}", taken),
    )
    pictures = [
        tag("figure", tag("img", src=png.address(picture.shape, pixels), alt=alt), tag("figcaption", words))
        for pixels, alt, words in panels
    ]
    distance = f"image {own.image}: distance {rounded_up(own.upper or 0.0, 4)}"
    proven = "" if lower is None or not lower.lower else f", none within {rounded_down(lower.lower, 4)} ({lower.name})"
    return tag("article", tag("h4", distance), tag("div", *pictures), tag("small", own.name, proven), class_="triple")


def _neurons(results: Sequence[Result]) -> Markup | None:
    """Mean counts over the answers, for each method that has any."""
    names = list(dict.fromkeys(own.name for own in results if own.neurons))
    blocks = []
    for name in names:
        rows = [own.neurons for own in results if own.name == name and own.neurons]
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
    """How to do it again: everything the run file says of the run."""
    rows = [
        tag("div", tag("dt", name), tag("dd", value))
        for key, content in head.items()
        for name, value in _entries(key, content)
    ]
    return tag("section", tag("h2", "For reproduction"), tag("dl", *rows, class_="record"))


def _entries(name: str, content: Any) -> list[tuple[str, str]]:
    """Names and values, one level after another."""
    if isinstance(content, dict):
        return [pair for key, own in content.items() for pair in _entries(f"{name} \N{MIDDLE DOT} {key}", own)]
    if isinstance(content, bool):
        return [(name, "yes" if content else "no")]
    if isinstance(content, list):
        return [(name, ", ".join(map(str, content)))]
    return [] if content is None else [(name, str(content))]
