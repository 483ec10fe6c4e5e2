"""Charts as SVG, coloured by the page's style, so that they follow dark mode and print."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from relucert.report.markup import render
from relucert.report.reading import NEURON_STATES, AnswerKind
from relucert.report.series import PROVEN, Sandwich, Series
from relucert.report.summary import round_above

WIDTH, HEIGHT = 720.0, 350.0  # of a chart, in units of its SVG
LEFT, RIGHT, TOP, BOTTOM = 66.0, 24.0, 14.0, 56.0  # its margins
TICKS = 6  # of a linear axis, at most
LEAST = 1e-300  # the least right end of an axis
SOON = 1e-4  # seconds: shorter durations are drawn there, as a logarithmic axis has no 0
LABEL_HEIGHT, LETTER, DOT = 15.0, 7.5, 6.0  # a line of text, about the width of a letter, the radius of a dot
BAR = 200.0  # the width of a bar
COLOURS = 16  # in the style; more methods use them again


@dataclass(frozen=True)
class Point:
    """A method in the chart of time against tightness; colour: the style of its dot."""

    name: str
    colour: str
    seconds: float
    tightness: float


def accuracy(curves: Sequence[Series], top: float, norm: str) -> Markup:
    """The chart of the share of images that keep their class, from radius 0 to `top`, with a movable line."""
    paths = []
    for number, curve in enumerate(curves):
        radii, shares = curve.steps()
        path = [f"M{_x(0, top):.1f} {_y(shares[0]):.1f}"]
        path += [f"H{_x(radius, top):.1f}V{_y(share):.1f}" for radius, share in zip(radii[1:], shares[1:], strict=True)]
        if len(curve.finite) < len(curve.radii):
            path.append(f"H{_x(top, top):.1f}")
        paths.append(("".join(path), style(number, curve.kind)))
    ticks = [(_x(radius, top), f"{radius:g}") for radius in _round_numbers(top)]
    described = f"Share of images against radius, a step curve for each of {', '.join(curve.name for curve in curves)}."
    across = "distance" if all(curve.kind is AnswerKind.UPPER for curve in curves) else "radius"
    return _chart(described, ticks, f"{across} (p = {norm})", "share of images", curves=paths, guide=True)


def timing(points: Sequence[Point]) -> Markup:
    """One dot per method: seconds per answer, on a logarithmic axis, against tightness."""
    axis = _Logarithmic.around(point.seconds for point in points)
    occupied = [(axis.x(point.seconds) - DOT, axis.x(point.seconds) + DOT, _height(point)) for point in points]
    dots = []
    for point in points:
        x, y, length = axis.x(point.seconds), _height(point), LETTER * len(point.name)
        leftwards = x > WIDTH / 2
        start = x - 2 * DOT - length if leftwards else x + 2 * DOT
        level = _free(occupied, start, start + length, y)
        occupied.append((start, start + length, level))
        dots.append(
            {
                "x": x, "y": y, "radius": DOT, "style": point.colour, "name": point.name,
                "words": f"{point.name}: {point.tightness:.1%}, {point.seconds:.3g} s",
                "label_x": x - 2 * DOT if leftwards else x + 2 * DOT, "label_y": level + 4,
                "anchor": "end" if leftwards else "start",
            }
        )  # fmt: skip
    described = "Tightness against time: " + "; ".join(
        f"{point.name} {point.tightness:.1%} in {point.seconds:.3g} s" for point in points
    )
    return _chart(described, axis.ticks(), "seconds per answer", "tightness", dots=dots)


def decided(times: Mapping[str, Sequence[float]], count: int) -> Markup:
    """One curve per kind of verdict: the share of `count` questions that had it within the seconds on a logarithmic
    axis."""
    axis = _Logarithmic.around(max(seconds, SOON) for durations in times.values() for seconds in durations)
    paths = []
    for number, durations in enumerate(times.values()):
        steps = [
            f"H{axis.x(max(seconds, SOON)):.1f}V{_y(rank / count):.1f}"
            for rank, seconds in enumerate(sorted(durations), start=1)
        ]
        if steps:
            paths.append((f"M{LEFT:.1f} {_y(0):.1f}{''.join(steps)}H{_x(1, 1):.1f}", colour(number)))
    described = "Decided questions against time: " + ", ".join(
        f"{len(durations)} of {count} {verdict}" for verdict, durations in times.items()
    )
    return _chart(described, axis.ticks(), "seconds", "share of questions", curves=paths)


def bar(question: Sandwich, top: float) -> Markup:
    """A bar from 0: what is proven, then what is open, up to the nearest adversarial example; one mark per method."""

    def x(value: float) -> float:
        return BAR * min(1.0, value / top)

    lower = question.lower.lower if question.lower is not None else None
    upper = question.upper.upper if question.upper is not None else None
    rectangles = [(0, BAR, "track", "")]
    rectangles += [(0, x(upper), "open", "")] if upper else []
    rectangles += [(0, x(lower), "proven", "")] if lower else []
    marks = [(x(result.lower), result.kind.value) for result in question.results if result.lower]
    return render("bar.svg", width=BAR, style="bar", rectangles=rectangles, marks=marks)


def stack(counts: Sequence[float]) -> Markup:
    """One layer's neurons as shares of a bar: inactive, unstable, active."""
    whole, x, rectangles = max(1.0, sum(counts)), 0.0, []
    for name, count in zip(NEURON_STATES, counts, strict=True):
        share = count / whole
        rectangles.append((x, BAR * share, name, f"{name}: {share:.1%}"))
        x += BAR * share
    return render("bar.svg", width=BAR, style="bar wide", rectangles=rectangles, marks=())


def style(number: int, answer_kind: AnswerKind) -> str:
    """The style of a method by its number: its colour, and a dash for whatever is not proven."""
    return f"{colour(number)} {'' if answer_kind in PROVEN else answer_kind.value}".strip()


def colour(number: int) -> str:
    return f"series-{number % COLOURS}"


def farthest(values: Iterable[float | None]) -> float:
    """The right end of an axis of radii: a little beyond the largest finite value, 1 where there is none."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return max(1.02 * max(finite), LEAST) if any(finite) else 1.0


@dataclass(frozen=True)
class _Logarithmic:
    """A horizontal axis from one power of ten to another, given by their exponents."""

    low: int
    high: int

    @classmethod
    def around(cls, values: Iterable[float]) -> _Logarithmic:
        """The shortest axis that shows all of these positive values."""
        exponents = [math.log10(value) for value in values]
        low = math.floor(min(exponents))
        return cls(low, max(low + 1, math.ceil(max(exponents))))

    def x(self, value: float) -> float:
        return _x(math.log10(value) - self.low, self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        return [(self.x(10.0**power), f"{10.0**power:g}") for power in range(self.low, self.high + 1)]


def _height(point: Point) -> float:
    return _y(min(point.tightness, 1.0))


def _free(occupied: Sequence[tuple[float, float, float]], start: float, end: float, level: float) -> float:
    """The level nearest to the wanted one where nothing else is written between start and end."""
    for step in range(4 * len(occupied)):
        wanted = level + LABEL_HEIGHT * (-(-step // 2) if step % 2 else -step // 2)
        clear = all(right < start or end < left or abs(y - wanted) >= LABEL_HEIGHT - 1 for left, right, y in occupied)
        if clear and TOP <= wanted <= HEIGHT - BOTTOM:
            return wanted
    return level


def _chart(described: str, ticks: Sequence[tuple[float, str]], across: str, up: str, **drawn: Any) -> Markup:
    """Axes and grid around what is drawn (curves, dots, a guide); the vertical axis is always a share."""
    return render(
        "chart.svg",
        described=described, ticks=ticks, across=across, up=up,
        levels=[(_y(share), f"{share:.0%}") for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        width=WIDTH, height=HEIGHT, left=LEFT, right=WIDTH - RIGHT, top=TOP, base=HEIGHT - BOTTOM,
        **{"curves": (), "dots": (), "guide": False, **drawn},
    )  # fmt: skip


def _round_numbers(top: float) -> list[float]:
    step = round_above(top / TICKS)
    return [step * count for count in range(int(top / step) + 1)]


def _x(value: float, top: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * value / top


def _y(share: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)
