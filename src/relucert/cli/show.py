"""The output of commands: progress on standard error, tables and figures on standard output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from rich.console import Console
from rich.filesize import decimal
from rich.progress import DownloadColumn, MofNCompleteColumn, TaskID, TimeRemainingColumn

from relucert.answers.certificates import Certificate, Estimate, Exact, UpperBound
from relucert.answers.verdicts import RobustnessVerdict
from relucert.cli.layout import REMARK, Grid, Line, fold, lay_out
from relucert.common.progress import Progress, Report
from relucert.common.terminal import Bar, bars, console, counting_bars
from relucert.common.words import counted
from relucert.report.summary import Summary, against, rounded_down

NAME_WIDTH = 20  # characters of the first column of lines below a table
MOST_ROWS = 20  # of answers on a terminal; of more, the first and the last few are shown
FIRST_ROWS, LAST_ROWS = 10, 5

AnyAnswer = TypeVar("AnyAnswer", Certificate, Estimate, Exact, UpperBound, RobustnessVerdict)


class Screen:
    """Colours, rules and lines that fit on a terminal; plain whole lines in a file or a pipe.

    every: whether a terminal shows every answer, however many there are.
    """

    def __init__(self, quiet: bool, every: bool = False) -> None:
        self._quiet, self._every = quiet, every
        self._out = console(stderr=False)
        self._err = console(stderr=True)

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Bar]:
        """A bar that vanishes at the end: what is done, the rate, the time so far and the time left."""
        with counting_bars(self._err, self._quiet) as bar:
            yield Bar(bar, title, total)

    @contextmanager
    def loading(self) -> Iterator[Report]:
        """A bar that vanishes at the end; yields a function that is told how far the check of a loaded network is."""
        with ExitStack() as stack:
            shown: list[Bar] = []

            def show(state: Progress) -> None:
                done, total = state.done or 0, state.total or 0
                if not shown and done < total:  # small networks are done at once
                    shown.append(stack.enter_context(self.progress("loading", total)))
                for bar in shown:
                    bar.tell(state)

            yield show

    @contextmanager
    def training(self, epochs: int) -> Iterator[Callable[[str, int], None]]:
        """A bar that vanishes at the end; yields a function of what is trained and how many of its epochs are done."""
        with bars(self._err, MofNCompleteColumn(), TimeRemainingColumn(), quiet=self._quiet) as bar:
            task = bar.add_task("training", total=epochs)
            yield lambda title, done: bar.update(task, description=title, completed=done)

    @contextmanager
    def downloads(self) -> Iterator[Callable[[str, int, int], None]]:
        """One bar per file, in bytes; yields a function of a file's name, the bytes that are here and its size."""
        tasks: dict[str, TaskID] = {}
        with bars(self._err, DownloadColumn(), TimeRemainingColumn(), amount=decimal, quiet=self._quiet) as bar:

            def show(name: str, done: int, total: int) -> None:
                if name not in tasks:
                    tasks[name] = bar.add_task(f"downloading {name}", total=total)
                bar.update(tasks[name], completed=done)

            yield show

    def answers(
        self, title: str, rows: Sequence[tuple[AnyAnswer, str]],
        remark: Callable[[AnyAnswer], str] = lambda answer: answer.reason or "",
    ) -> None:  # fmt: skip
        """One row per answer about an image, unless quiet: image, label, rival, the answer as it is given here, and a
        remark."""
        cells = [
            (str(answer.image), _class(answer.label), _class(answer.target, getattr(answer, "row", None)), shown,
             remark(answer)) for answer, shown in rows
        ]  # fmt: skip
        self.each(("image", "label", "rival", title, REMARK), cells, keys=3, right=3)

    def each(self, titles: Sequence[str], rows: Sequence[Sequence[str]], keys: int, right: int = 0) -> None:
        """One row per answer, unless quiet; of many answers a terminal shows the first and the last."""
        if self._quiet:
            return
        hidden = 0
        if self._out.is_terminal and not self._every and len(rows) > MOST_ROWS:
            hidden = len(rows) - FIRST_ROWS - LAST_ROWS
            rows = [*rows[:FIRST_ROWS], ("...", *[""] * (len(titles) - 1)), *rows[-LAST_ROWS:]]
        note = f"... {hidden:,} more; --all shows every one" if hidden else ""
        _print_table(self._out, Grid(titles, rows, keys, right), note=note)

    def columns(
        self, titles: Sequence[str], rows: Sequence[Sequence[str]], keys: int = 1, right: int = 0, heading: str = ""
    ) -> None:
        """Any table: the first `keys` columns say what a row is about, the first `right` are set to the right."""
        _print_table(self._out, Grid(titles, rows, keys, right), heading)

    def line(self, name: str, text: str) -> None:
        """A name and what there is to say; on a terminal long texts go on below their beginning."""
        lines = fold(text, self._out.width - NAME_WIDTH) if self._out.is_terminal else [text]
        for number, text in enumerate(lines):
            self._out.print(f"{'' if number else name:<{NAME_WIDTH}}{text}", soft_wrap=True)

    def summary(self, summary: Summary, radii: Sequence[float], target: str | int | None) -> None:
        """The counts, the mean radius, and how many images are left at some radii; target: None for no classes."""
        if target is None:
            pass
        elif summary.correct is None:
            self.line("clean accuracy", "unknown: without labels the network's own decisions are certified")
        else:
            self.line("clean accuracy", _share(summary.correct, summary.images))
        ignored = "" if summary.proven else " (not certified: rounding ignored)"
        if summary.mean is not None:
            over = f"over {len(summary.radii):,} of {counted(summary.images, 'image')}"
            self.line("mean radius", f"{rounded_down(summary.mean)} {over}{ignored}")
        name = "holds" if target is None else "certified accuracy" if summary.proven else "accuracy"
        rivals = "" if target is None else against(target)
        for radius in radii:
            share = _share(summary.within(radius), summary.with_rival)
            self.line(name, f"{share} at radius {radius!r}{rivals}{ignored}")

    def remark(self, text: str) -> None:
        """A line beside the results, unless quiet."""
        if not self._quiet:
            self._err.print(text, soft_wrap=True)

    def grid(self, rows: Sequence[tuple[str, str, str, str]]) -> None:
        """The results of all settings of a search: learning rate, weight decay, accuracies."""
        titles = ("learning rate", "weight decay", "validation", "test")
        _print_table(self._err, Grid(titles, rows, keys=2), heading="best validation accuracy first")

    def complain(self, text: str) -> None:
        self._err.print(f"relucert: {text}", soft_wrap=True)


def _print_table(console: Console, grid: Grid, heading: str = "", note: str = "") -> None:
    """A table between what stands above and below it, and an empty line."""
    above, below = ([Line(text)] if text else [] for text in (heading, note))
    for line in [*above, *lay_out(grid, console.width, ruled=console.is_terminal), *below, Line("")]:
        console.out(line.text, style="bold" if line.header else None, highlight=False)


def _class(index: int | None, row: int | None = None) -> str:
    """A class, or in its place the row of a stated property."""
    return f"row {row}" if row is not None else "-" if index is None else str(index)


def _share(count: int, total: int) -> str:
    """Tenths of a percent, rounded down."""
    return f"{1000 * count // total / 10:.1f} % ({count} of {total})" if total else "of no images"
