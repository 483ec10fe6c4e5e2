"""Charts as SVG, coloured by the page's style, so that they follow dark mode and print."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from relucert.report.markup import Markup, join, tag
from relucert.report.reading import PARTS, Kind
from relucert.report.series import PROVEN, Sandwich, Series
from relucert.report.summary import ROUND_STEPS

WIDTH, HEIGHT = 720.0, 350.0
LEFT, RIGHT, TOP, BOTTOM = 66.0, 24.0, 14.0, 56.0
TICKS = 6
LEAST = 1e-300  # an axis ends there at least
SOON = 1e-4  # seconds; sooner is drawn there
LABEL_HEIGHT, LETTER, DOT = 15.0, 7.5, 6.0
BAR = 200.0
COLOURS = 16  # in the style; more methods use them again


@dataclass(frozen=True)
class Point:
    """A method in the chart of time against tightness."""

    name: str
    place: int
    seconds: float
    tightness: float


def accuracy(curves: Sequence[Series], top: float, norm: str) -> Markup:
    """The share of images that keep their class, from radius 0 to `top`, and a line where they are read."""
    paths = []
    for place, curve in enumerate(curves):
        radii, shares = curve.steps()
        path = [f"M{_x(0, top):.1f} {_y(shares[0]):.1f}"]
        path += [f"H{_x(radius, top):.1f}V{_y(share):.1f}" for radius, share in zip(radii[1:], shares[1:], strict=True)]
        if len(curve.finite) < len(curve.radii):
            path.append(f"H{_x(top, top):.1f}")
        paths.append(tag("path", d="".join(path), class_=f"curve {style(place, curve.kind)}"))
    guide = tag("line", x1=LEFT, x2=LEFT, y1=TOP, y2=HEIGHT - BOTTOM, class_="guide")
    ticks = [(_x(radius, top), f"{radius:g}") for radius in _round_numbers(top)]
    described = f"Share of images against radius, a step curve for each of {', '.join(curve.name for curve in curves)}."
    across = "distance" if all(curve.kind is Kind.UPPER for curve in curves) else "radius"
    return _frame(described, ticks, f"{across} (p = {norm})", "share of images", *paths, guide)


def timing(points: Sequence[Point]) -> Markup:
    """One dot per method: seconds per answer, on a logarithmic axis, against tightness."""
    low = math.floor(math.log10(min(point.seconds for point in points)))
    high = max(low + 1, math.ceil(math.log10(max(point.seconds for point in points))))
    places = [(_x(math.log10(point.seconds) - low, high - low), _y(min(point.tightness, 1.0))) for point in points]
    taken = [(x - DOT, x + DOT, y) for x, y in places]
    drawn = []
    for point, (x, y) in zip(points, places, strict=True):
        left = x > WIDTH / 2
        far = LETTER * len(point.name)
        start = x - 2 * DOT - far if left else x + 2 * DOT
        level = _free(taken, start, start + far, y)
        taken.append((start, start + far, level))
        words, side = f"{point.name}: {point.tightness:.1%}, {point.seconds:.3g} s", "end" if left else "start"
        away = -2 * DOT if left else 2 * DOT
        drawn += [
            tag("circle", tag("title", words), cx=x, cy=y, r=DOT, class_=f"dot {colour(point.place)}"),
            tag("text", point.name, x=x + away, y=level + 4, text_anchor=side, class_=f"label {colour(point.place)}"),
        ]
    ticks = [(_x(power - low, high - low), f"{10.0**power:g}") for power in range(low, high + 1)]
    described = "Tightness against time: " + "; ".join(
        f"{point.name} {point.tightness:.1%} in {point.seconds:.3g} s" for point in points
    )
    return _frame(described, ticks, "seconds per answer", "tightness", *drawn)


def decided(times: Mapping[str, Sequence[float]], count: int) -> Markup:
    """A curve for each kind of verdict: the share of `count` questions that had it after so many seconds each, on a
    logarithmic axis."""
    exponents = {kind: sorted(math.log10(max(one, SOON)) for one in seconds) for kind, seconds in times.items()}
    low = math.floor(min(one for kind in exponents.values() for one in kind))
    high = max(low + 1, math.ceil(max(one for kind in exponents.values() for one in kind)))
    paths = []
    for place, kind in enumerate(exponents.values()):
        if not kind:
            continue
        steps = "".join(
            f"H{_x(one - low, high - low):.1f}V{_y(number / count):.1f}" for number, one in enumerate(kind, start=1)
        )
        path = f"M{LEFT:.1f} {_y(0):.1f}{steps}H{_x(1, 1):.1f}"
        paths.append(tag("path", d=path, class_=f"curve {colour(place)}"))
    ticks = [(_x(power - low, high - low), f"{10.0**power:g}") for power in range(low, high + 1)]
    described = "Decided questions against time: " + ", ".join(
        f"{len(seconds)} of {count} {kind}" for kind, seconds in times.items()
    )
    return _frame(described, ticks, "seconds", "share of questions", *paths)


def bar(question: Sandwich, top: float) -> Markup:
    """From 0: what is proven, then what is not known, up to the nearest adversarial example; one line per method."""

    def place(value: float) -> float:
        return BAR * min(1.0, value / top)

    lower = question.lower.lower if question.lower is not None else None
    upper = question.upper.upper if question.upper is not None else None
    parts = [tag("rect", width=BAR, height=14, class_="track")]
    if upper:
        parts.append(tag("rect", width=place(upper), height=14, class_="open"))
    if lower:
        parts.append(tag("rect", width=place(lower), height=14, class_="proven"))
    for result in question.results:
        if result.lower:
            x = place(result.lower)
            parts.append(tag("line", x1=x, x2=x, y1=0, y2=14, class_=f"mark {result.kind.value}"))
    return _strip("bar", parts)


def stack(counts: Sequence[float]) -> Markup:
    """One layer's neurons: dead, undecided, active, as shares of a bar."""
    whole, x, parts = max(1.0, sum(counts)), 0.0, []
    for name, count in zip(PARTS, counts, strict=True):
        width = BAR * count / whole
        parts.append(
            tag("rect", tag("title", f"{name}: {count / whole:.1%}"), x=x, width=width, height=14, class_=name)
        )
        x += width
    return _strip("bar wide", parts)


def style(place: int, answer_kind: Kind) -> str:
    """The style of a method: its colour, and a dash for whatever is not proven."""
    return f"{colour(place)} {'' if answer_kind in PROVEN else answer_kind.value}".strip()


def colour(place: int) -> str:
    return f"series-{place % COLOURS}"


def farthest(values: Iterable[float | None]) -> float:
    """Where an axis of radii ends."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return max(1.02 * max(known), LEAST) if any(known) else 1.0


def _free(taken: Sequence[tuple[float, float, float]], start: float, end: float, level: float) -> float:
    """The level nearest to the wanted one where nothing else is written between start and end."""
    for step in range(4 * len(taken)):
        wanted = level + LABEL_HEIGHT * (-(-step // 2) if step % 2 else -step // 2)
        clear = all(right < start or end < left or abs(y - wanted) >= LABEL_HEIGHT - 1 for left, right, y in taken)
        if clear and TOP <= wanted <= HEIGHT - BOTTOM:
            return wanted
    return level


def _strip(style_class: str, parts: Sequence[Markup]) -> Markup:
    """A bar in a cell; the numbers are in the cells beside it."""
    return tag(
        "svg", *parts, viewBox=f"0 0 {BAR:g} 14", class_=style_class, preserveAspectRatio="none", aria_hidden="true"
    )


def _frame(described: str, ticks: Sequence[tuple[float, str]], across: str, up: str, *drawn: Markup) -> Markup:
    """Axes and grid around what is drawn; the vertical one is always a share."""
    grid = [
        join(
            tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=_y(share), y2=_y(share), class_="grid"),
            tag("text", f"{share:.0%}", x=LEFT - 8, y=_y(share) + 4, text_anchor="end", class_="tick"),
        )
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    base = HEIGHT - BOTTOM
    grid += [
        join(
            tag("line", x1=x, x2=x, y1=base, y2=base + 5, class_="axis"),
            tag("text", text, x=x, y=base + 22, text_anchor="middle", class_="tick"),
        )
        for x, text in ticks
    ]
    names = [
        tag("text", across, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, text_anchor="middle", class_="name"),
        tag(
            "text",
            up,
            transform=f"translate(12 {(TOP + base) / 2:g}) rotate(-90)",
            text_anchor="middle",
            class_="name up",
        ),
    ]
    return tag(
        "svg", *grid, *names, *drawn, viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", class_="chart", role="img",
        aria_label=described, data_left=LEFT, data_right=WIDTH - RIGHT,
    )  # fmt: skip


def _round_numbers(top: float) -> list[float]:
    scale = 10.0 ** math.floor(math.log10(top / TICKS))
    step = next((round_step * scale for round_step in ROUND_STEPS if round_step * scale * TICKS >= top), 10 * scale)
    return [step * count for count in range(int(top / step) + 1)]


def _x(value: float, top: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * value / top


def _y(share: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)
