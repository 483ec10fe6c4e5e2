"""Lists of answers, as the public calls return them: to be drawn, shown in notebooks, summed up and exported."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from typing_extensions import Self

from relucert.answers.certificates import Recordable
from relucert.common.checks import check_number
from relucert.common.numbers import NumberLike, number_above
from relucert.errors import InputError, MissingPackageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from relucert.report.overview import Overview

AnyAnswer = TypeVar("AnyAnswer", bound=Recordable)


class Tabular(ABC):
    """Base of everything that is a table of answers and can be exported as CSV or as a data frame."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """One row of plain values per answer, as run files have them."""

    def to_csv(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes one row per answer, as `--csv` does; absence is an empty cell.

        A file that holds anything but these answers, or the first of them, is replaced with `overwrite` only.
        """
        from relucert.report.runfile import write_table

        write_table(Path(path), self.rows(), overwrite)

    def to_frame(self) -> Any:
        """A pandas DataFrame with one row per answer; raises MissingPackageError where there is no pandas."""
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise MissingPackageError("to_frame needs pandas, which is not installed: pip install pandas") from None
        rows = [{name: math.inf if cell == "inf" else cell for name, cell in row.items()} for row in self.rows()]
        return pandas.DataFrame(rows)


class Presentable(Tabular):
    """Base of lists of answers and of comparisons: they can be drawn, summed up and exported."""

    def plot(self, ax: Axes | None = None, *, label: str | None = None) -> Axes:
        """Draws the share of images that keep their class against the radius, into `ax` or a new figure.

        Several may share axes: the legend tells them apart by method, norm and valid inputs, or by the labels given.
        """
        from relucert.report import curves  # matplotlib takes a second to import

        return curves.plot(self.rows(), ax, label)

    def summary(self) -> Overview:
        """Counts, means and medians by method; printed, one line per method."""
        from relucert.report.overview import overview

        return overview(self.rows())


class TabularList(Tabular, list[AnyAnswer]):
    """A list of answers that is a table of them; a slice of it is one, too."""

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> AnyAnswer: ...
    @overload
    def __getitem__(self, index: slice, /) -> Self: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> AnyAnswer | Self:
        return type(self)(super().__getitem__(index)) if isinstance(index, slice) else super().__getitem__(index)

    def rows(self) -> list[dict[str, Any]]:
        """One row of plain values per answer, as run files have them."""
        return [answer.to_json() for answer in self]


class Answers(Presentable, TabularList[AnyAnswer]):
    """A list of answers that notebooks show as a table and that can be drawn; in all else a list like any other."""

    @property
    def radii(self) -> list[float | None]:
        """The number of every answer: a certified radius, the lower end of an exact answer (infinite where nothing
        adversarial can be reached), an attack's distance or an estimate; None where there is none."""
        from relucert.report.reading import result

        return [answer.amount for answer in map(result, self.rows())]

    def accuracy_at(self, radius: NumberLike) -> float:
        """The share of images that keep their class within a radius: certified, estimated or under attack, as the
        answers are. Images that are misclassified count; those without any question do not.

        Args:
            radius: In the answers' own norm: a number, or a fraction, as in "8/255".
        """
        from relucert.report.reading import result
        from relucert.report.series import series

        within = number_above(radius, "radius")
        check_number("radius", within, 0, math.inf)
        curves = series(map(result, self.rows()), None)
        if len(curves) > 1:
            names = ", ".join(curve.name for curve in curves)
            raise InputError(f"an accuracy is of one method's answers, and these are of {names}")
        return curves[0].accuracy_at(within) if curves else 0.0

    def _repr_html_(self) -> str:
        from relucert.report import notebook

        return notebook.table(self.rows())
