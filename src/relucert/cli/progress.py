"""Progress where there is no terminal to draw a bar on: a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.progress import TaskID
from typing_extensions import Self

from relucert.execution.progress import pace

EVERY = 10.0  # seconds between lines


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

    amount: writes a number of parts, such as a count or a size in bytes.
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
