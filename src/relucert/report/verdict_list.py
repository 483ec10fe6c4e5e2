"""The verdicts of `relucert.robust_at`: counted, as a table, as bars."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from relucert.report.answer_list import Tabular

if TYPE_CHECKING:
    from matplotlib.axes import Axes
from relucert.answers.verdicts import HOLDS, UNKNOWN, VIOLATED, RobustnessVerdict


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


class Verdicts(Tabular, list[RobustnessVerdict]):
    """The verdicts of `relucert.robust_at`, in the images' order; notebooks show them as a table."""

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> RobustnessVerdict: ...
    @overload
    def __getitem__(self, index: slice, /) -> Verdicts: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> RobustnessVerdict | Verdicts:
        return Verdicts(super().__getitem__(index)) if isinstance(index, slice) else super().__getitem__(index)

    def summary(self) -> RobustnessSummary:
        """The counts: clean, robust, violated, misclassified and unknown."""
        counts = Counter(verdict.status for verdict in self)
        clean = sum(verdict.clean for verdict in self)
        wrong = sum(verdict.status == VIOLATED and not verdict.clean for verdict in self)
        return RobustnessSummary(len(self), clean, counts[HOLDS], counts[VIOLATED] - wrong, wrong, counts[UNKNOWN])

    def rows(self) -> list[dict[str, Any]]:
        """One row of plain values per verdict."""
        return [verdict.to_json() for verdict in self]

    def plot(self, ax: Axes | None = None, *, label: str | None = None) -> Axes:
        """Draws how many verdicts are robust, violated, misclassified and unknown, into `ax` or a new figure.

        Several may share axes: their bars stand side by side, told apart by the labels given, or by the radius.
        """
        from relucert.report import verdict_bars  # matplotlib takes a second to import

        summary = self.summary()
        counts = {name: getattr(summary, name) for name in ("robust", "violated", "misclassified", "unknown")}
        radii = dict.fromkeys(f"radius {verdict.radius:g}" for verdict in self)
        return verdict_bars.plot(counts, ax, ", ".join(radii) if label is None else label)

    def _repr_html_(self) -> str:
        from relucert.report import notebook

        return notebook.verdicts(self.rows(), str(self.summary()))
