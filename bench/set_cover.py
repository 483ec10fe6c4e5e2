"""The table and the picture of docs/hardness.md: python -m bench.set_cover"""

from __future__ import annotations

import random
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import relucert
from relucert.common.names import MethodName
from relucert.hardness import Reduction, from_set_cover, greedy_cover, minimum_cover
from relucert.report.summary import rounded_down

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "set-cover.svg"
UNIVERSE, SETS = range(1, 7), [[1, 2, 3], [4, 5, 6], [1, 2, 4, 5], [3, 4]]
METHODS: tuple[MethodName, ...] = ("fast-lin", "interval", "fast-lip", "op-norm")
CHOSEN, QUIET = "#c2571a", "#8899aa"


def radii(reduction: Reduction) -> list[float]:
    answers = (
        relucert.certify(reduction.network, reduction.centre, norm="1", method=method)[0].radius for method in METHODS
    )
    return [answer or 0.0 for answer in answers]


def table() -> None:
    for size in (4, 6, 8, 10, 12, 16):
        draw, universe = random.Random(size), range(size)
        sets = [draw.sample(universe, 3) for _ in range(size - 1)]
        missing = [element for element in universe if not any(element in family for family in sets)]
        sets.append(missing or draw.sample(universe, 3))
        reduction, least = from_set_cover(universe, sets), minimum_cover(universe, sets)
        cells = " | ".join(rounded_down(radius, 2) for radius in radii(reduction))
        counts = f"{size} | {len(least)} | {len(greedy_cover(universe, sets))}"
        print(f"| {counts} | {reduction.distance(least):.3f} | {cells} |")


def draw(path: Path) -> None:
    with matplotlib.rc_context({"svg.hashsalt": "relucert", "font.size": 10}):
        figure = Figure(figsize=(9, 4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        _network(left)
        _bars(right)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _network(axes: Axes) -> None:
    """Sets, elements and the worst element, left to right; a minimum cover in colour."""
    least = minimum_cover(UNIVERSE, SETS)
    heights = [4.5 - 1.2 * place for place in range(len(SETS))]
    for place, family in enumerate(SETS):
        colour = CHOSEN if place in least else QUIET
        for element in family:
            axes.plot([0, 2], [heights[place], 6 - element], color=colour, linewidth=1.5, zorder=1)
        label = "{" + ", ".join(map(str, family)) + "}"
        axes.text(-0.3, heights[place], label, ha="right", va="center", color=colour)
        axes.scatter(0, heights[place], s=160, color=colour, zorder=2)
    for element in UNIVERSE:
        axes.plot([2, 4], [6 - element, 2.5], color=QUIET, linewidth=0.8, zorder=1)
        axes.scatter(2, 6 - element, s=240, color="white", edgecolor="black", zorder=2)
        axes.text(2, 6 - element, str(element), ha="center", va="center", zorder=3)
    axes.scatter(4, 2.5, s=240, color="black", zorder=2)
    for x, text in ((0, "a step a set"), (2, "max: best set"), (4, "min: worst element")):
        axes.text(x, -0.9, text, ha="center")
    axes.set_xlim(-1.7, 4.9)
    axes.set_ylim(-1.3, 5.6)
    axes.axis("off")


def _bars(axes: Axes) -> None:
    reduction, least = from_set_cover(UNIVERSE, SETS), minimum_cover(UNIVERSE, SETS)
    names = [*METHODS, "minimum distortion", "minimum cover", "greedy cover"]
    lengths = [*radii(reduction), reduction.distance(least), len(least), len(greedy_cover(UNIVERSE, SETS))]
    texts = [rounded_down(length, 3) for length in lengths]
    bars = axes.barh(names, lengths, color=[QUIET] * len(METHODS) + [CHOSEN] * 3)
    axes.bar_label(bars, texts, padding=3)
    axes.set_xlim(0, 3.5)
    axes.invert_yaxis()
    axes.set_xlabel("p = 1 distance from the centre; sets")
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    table()
    draw(PICTURE)
