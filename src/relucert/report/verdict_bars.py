"""Verdicts as bars: how many are of each kind."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.ticker import MaxNLocator

WIDTH = 0.8  # that the bars of one kind share


def plot(counts: Mapping[str, int], axes: Axes | None, label: str) -> Axes:
    """Draws one bar per kind of verdict, beside the bars that the axes have already."""
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.figure(layout="constrained").add_subplot()
    axes.bar(range(len(counts)), list(counts.values()), label=label)
    groups = [group for group in axes.containers if isinstance(group, BarContainer)]
    width = WIDTH / len(groups)
    for number, group in enumerate(groups):
        for position, bar in enumerate(group.patches):
            bar.set_width(width)
            bar.set_x(position - WIDTH / 2 + number * width)
    axes.set_xticks(range(len(counts)), list(counts))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("verdicts")
    axes.autoscale_view()
    axes.legend(frameon=False)
    return axes
