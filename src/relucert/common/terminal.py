"""How far a call is, on standard error: a bar in a terminal, and elsewhere a line now and then."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TaskID,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as RichProgress,
)
from rich.table import Column
from rich.text import Text

from relucert.common.progress import Listener, Progress, pace, rate

EVERY = 10.0  # seconds between lines
LEAST_BAR = 12  # characters of a bar, before anything is left out beside it
PLAIN_WIDTH = 100_000  # where no terminal says how wide a line may be


def console(stderr: bool) -> Console:
    """Standard error, or standard output, without any markup."""
    output = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not output.is_terminal:
        output.width = PLAIN_WIDTH
    return output


def bars(
    output: Console, *columns: ProgressColumn, amount: Callable[[int], str] = "{:,}".format, quiet: bool = False
) -> RichProgress:
    """Bars that vanish at the end, on a terminal; elsewhere, unless quiet, a line every ten seconds."""
    if not (quiet or output.is_terminal):
        return ProgressLines(output, amount)
    described = _DoingColumn(output, columns)
    return RichProgress(described, BarColumn(), *columns, console=output, transient=True, disable=quiet)


def counting_bars(output: Console, quiet: bool = False) -> RichProgress:
    """Bars with the steps done, the rate, the elapsed time and the remaining time."""
    columns = (MofNCompleteColumn(), _RateColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return bars(output, *columns, quiet=quiet)


class Bar:
    """How far the work of a whole run is."""

    def __init__(self, bar: RichProgress, title: str, total: int) -> None:
        self._bar, self._title, self._task = bar, title, bar.add_task(title, total=total)

    def advance(self, done: int, total: int) -> None:
        """Sets how many steps are done, and how many there are."""
        self._bar.update(self._task, completed=done, total=total)

    def tell(self, state: Progress) -> None:
        """Shows how many questions are answered, and what is being done."""
        description = f"{self._title} {state.doing}".strip()
        self._bar.update(self._task, description=description, completed=state.done, total=state.total)


class TerminalBar(Listener):
    """For scripts: a bar from the first news to the end of the call."""

    def __init__(self) -> None:
        self._shown = ExitStack()
        self._bar: Bar | None = None

    def tell(self, state: Progress) -> None:
        if self._bar is None:
            shown = self._shown.enter_context(counting_bars(console(stderr=True)))
            self._bar = Bar(shown, "", state.total or 1)
        self._bar.tell(state)

    def close(self) -> None:
        self._shown.close()


class _DoingColumn(ProgressColumn):
    """The current activity: as many of its phrases, between commas or colons, as fit beside the other columns."""

    def __init__(self, output: Console, columns: Sequence[ProgressColumn]) -> None:
        super().__init__(Column(no_wrap=True))
        self._output, self._columns = output, columns

    def render(self, task: Task) -> Text:
        widths = [Measurement.get(self._output, self._output.options, column(task)).maximum for column in self._columns]
        room = self._output.width - sum(widths) - len(widths) - LEAST_BAR - 1
        words = task.description
        ends = [len(words), *(separator.start() for separator in reversed([*re.finditer("[,:] ", words)]))]
        return Text(words[: next((end for end in ends if end <= room), ends[-1])])


class _RateColumn(ProgressColumn):
    """How many steps are done in a second or, where it is less than one, in a minute."""

    def render(self, task: Task) -> Text:
        return Text("" if not task.speed else rate(task.speed))


class ProgressLines(RichProgress):
    """Prints how far each task is, every ten seconds, from a thread of its own: in the place of bars.

    amount: writes a number of steps, such as a count or a size in bytes.
    """

    def __init__(self, console: Console, amount: Callable[[int], str]) -> None:
        super().__init__(console=console, disable=True)
        self._amount = amount
        self._before: dict[TaskID, float] = {}  # what was done by an earlier run
        self._started = time.monotonic()
        self._leaving = threading.Event()
        self._printer = threading.Thread(target=self._print_now_and_then, name="relucert-progress", daemon=True)

    def start(self) -> None:
        self._printer.start()

    def stop(self) -> None:
        self._leaving.set()
        self._printer.join()

    def update(self, task_id: TaskID, *, completed: float | None = None, **changes: Any) -> None:
        if completed is not None:
            self._before.setdefault(task_id, completed)
        super().update(task_id, completed=completed, **changes)

    def _print_now_and_then(self) -> None:
        while not self._leaving.wait(EVERY):
            seconds = time.monotonic() - self._started
            for task in self.tasks:
                if (remaining := (task.total or 0) - task.completed) > 0:
                    done, whole = self._amount(int(task.completed)), self._amount(int(task.total or 0))
                    speed = pace(task.completed - self._before.get(task.id, 0), remaining, seconds)
                    line = f"{task.description}: {done} of {whole}, {seconds:.0f} s so far{speed}"
                    self.console.print(line, soft_wrap=True)
