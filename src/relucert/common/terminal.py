"""How far a call is, on standard error: a bar in a terminal, and elsewhere a line now and then."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

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
from typing_extensions import Self

from relucert.common.progress import Progress, pace, rate

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
) -> RichProgress | ProgressLines:
    """Bars that vanish at the end, on a terminal; elsewhere, unless quiet, a line every ten seconds."""
    if not (quiet or output.is_terminal):
        return ProgressLines(output, amount)
    described = _DoingColumn(output, columns)
    return RichProgress(described, BarColumn(), *columns, console=output, transient=True, disable=quiet)


def counting_bars(output: Console, quiet: bool = False) -> RichProgress | ProgressLines:
    """Bars with the steps done, the rate, the elapsed time and the remaining time."""
    columns = (MofNCompleteColumn(), _RateColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return bars(output, *columns, quiet=quiet)


class Bar:
    """How far the work of a whole run is."""

    def __init__(self, bar: RichProgress | ProgressLines, title: str, total: int) -> None:
        self._bar, self._title, self._task = bar, title, bar.add_task(title, total=total)

    def advance(self, done: int, total: int) -> None:
        """Sets how many steps are done, and how many there are."""
        self._bar.update(self._task, completed=done, total=total)

    def tell(self, state: Progress) -> None:
        """Shows how many questions are answered, and what is being done."""
        description = f"{self._title} {state.doing}".strip()
        self._bar.update(self._task, description=description, completed=state.done, total=state.total)


class TerminalBar:
    """For scripts: a bar from the first news to the end of the call."""

    def __init__(self) -> None:
        self._shown: RichProgress | ProgressLines | None = None
        self._bar: Bar | None = None

    def tell(self, state: Progress) -> None:
        if self._shown is None:
            self._shown = counting_bars(console(stderr=True)).__enter__()
            self._bar = Bar(self._shown, "", state.total or 1)
        assert self._bar is not None
        self._bar.tell(state)

    def close(self) -> None:
        if self._shown is not None:
            self._shown.__exit__(None, None, None)
            self._shown = None


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


@dataclass
class _Task:
    description: str
    total: float
    completed: float = 0
    first: float | None = None  # what was done before, by an earlier run

    def pace(self, seconds: float) -> str:
        """The rate and the time left, once there is a rate."""
        return pace(self.completed - (self.first or 0), self.total - self.completed, seconds)


class ProgressLines:
    """Prints how far each task is, every ten seconds, from a thread of its own; with the interface of rich's bars.

    amount: writes a number of steps, such as a count or a size in bytes.
    """

    def __init__(self, console: Console, amount: Callable[[int], str]) -> None:
        self._console, self._amount = console, amount
        self._tasks: list[_Task] = []
        self._started = time.monotonic()
        self._leaving = threading.Event()
        self._printer = threading.Thread(target=self._print_now_and_then, name="relucert-progress", daemon=True)

    def __enter__(self) -> Self:
        self._printer.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        self._printer.join()

    def add_task(self, description: str, total: float) -> TaskID:
        self._tasks.append(_Task(description, total))
        return TaskID(len(self._tasks) - 1)

    def update(
        self,
        task: TaskID,
        *,
        completed: float | None = None,
        total: float | None = None,
        description: str | None = None,
    ) -> None:
        changed = self._tasks[task]
        if changed.first is None and completed is not None:
            changed.first = completed
        changed.completed = changed.completed if completed is None else completed
        changed.total = changed.total if total is None else total
        changed.description = changed.description if description is None else description

    def _print_now_and_then(self) -> None:
        while not self._leaving.wait(EVERY):
            seconds = time.monotonic() - self._started
            for task in self._tasks:
                if task.completed < task.total:
                    done, whole = self._amount(int(task.completed)), self._amount(int(task.total))
                    line = f"{task.description}: {done} of {whole}, {seconds:.0f} s so far{task.pace(seconds)}"
                    self._console.print(line, soft_wrap=True)
