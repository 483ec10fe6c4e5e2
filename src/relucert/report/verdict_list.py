"""The verdicts of `relucert.robust_at`: counted, as a table, as bars."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relucert.answers.verdicts import HOLDS, UNKNOWN, VIOLATED, RobustnessVerdict
from relucert.report.answer_list import TabularList

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUTCOMES = ("robust", "violated", "misclassified", "unknown")  # of a plot
WIDTH = 0.8  # that the bars of one outcome share


@dataclass(frozen=True)
class RobustnessSummary:
    """Counts of verdicts by their outcome.

    Attributes:
        verdicts: The number of all verdicts.
        clean: Verdicts about images that the network classifies rightly.
        robust: Verdicts that are proven to hold, all of them about clean images.
        violated: Verdicts about clean images that have a witness.
        misclassified: Verdicts about images that are their own witness, as the network gives them another class.
        unknown: All other verdicts.
    """

    verdicts: int
    clean: int
    robust: int
    violated: int
    misclassified: int
    unknown: int

    def __str__(self) -> str:
        return (
            f"{self.clean} of {self.verdicts} clean, {self.robust} robust, {self.violated} violated, "
            f"{self.misclassified} misclassified, {self.unknown} unknown"
        )


class Verdicts(TabularList[RobustnessVerdict]):
    """The verdicts of `relucert.robust_at`, in the images' order; notebooks show them as a table."""

    def summary(self) -> RobustnessSummary:
        """The counts: clean, robust, violated, misclassified and unknown."""
        counts = Counter(verdict.status for verdict in self)
        clean = sum(verdict.clean for verdict in self)
        wrong = sum(verdict.status == VIOLATED and not verdict.clean for verdict in self)
        return RobustnessSummary(len(self), clean, counts[HOLDS], counts[VIOLATED] - wrong, wrong, counts[UNKNOWN])

    def plot(self, ax: Axes | None = None, *, label: str | None = None) -> Axes:
        """Draws how many verdicts are robust, violated, misclassified and unknown, into `ax` or a new figure.

        Several may share axes: their bars stand side by side, told apart by the labels given, or by the radius.
        """
        from matplotlib.container import BarContainer  # matplotlib takes a second to import
        from matplotlib.ticker import MaxNLocator

        from relucert.report.accuracy import new_axes

        summary, axes = self.summary(), new_axes() if ax is None else ax
        radii = dict.fromkeys(f"radius {verdict.radius:g}" for verdict in self)
        counts = [getattr(summary, name) for name in OUTCOMES]
        axes.bar(range(len(counts)), counts, label=", ".join(radii) if label is None else label)
        groups = [group for group in axes.containers if isinstance(group, BarContainer)]
        width = WIDTH / len(groups)
        for number, group in enumerate(groups):
            for position, bar in enumerate(group.patches):
                bar.set_width(width)
                bar.set_x(position - WIDTH / 2 + number * width)
        axes.set_xticks(range(len(counts)), OUTCOMES)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel("verdicts")
        axes.autoscale_view()
        axes.legend(frameon=False)
        return axes

    def _repr_html_(self) -> str:
        from relucert.report import notebook

        return notebook.verdicts(self.rows(), str(self.summary()))
