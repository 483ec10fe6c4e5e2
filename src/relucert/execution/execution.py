"""Where work is done: in this process, in worker processes of one thread each, or on a Ray cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from relucert.checks import check_whole, shown
from relucert.errors import InputError
from relucert.execution.job import Item, Job

if TYPE_CHECKING:
    from relucert.execution.cluster import Cluster
    from relucert.execution.processes import Processes

TRIAL = 2.0  # seconds of work in this process before it is judged whether more processes are worth their start
WORTH = 20.0  # seconds of work left that are
MOST_WORKERS = 4096

Came = list[tuple[int, Any]]
"""Answers that came together, with the numbers of their questions."""

Worked = Generator[Came, None, None]


class Execution:
    """Runs jobs; a context manager, whose processes serve all of them and end with it.

    Args:
        workers: How many processes; 1: this one. None: this one at first, and one process per core for what is left
            if that would take long.
        ray: The address of a Ray cluster, or "auto"; None: this machine alone.
        tell: Called with how many questions of a job are answered, and how many there are.
    """

    def __init__(
        self, workers: int | None, ray: str | None = None, tell: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        if workers is not None:
            check_whole("number of workers", workers, 1, MOST_WORKERS)
        if ray is not None and not _is_address(ray):
            raise InputError(f"ray is the address of a cluster or 'auto', not {shown(ray)}")
        if ray is not None and workers is not None:
            raise InputError("workers are processes of this machine, and ray is a cluster: give one of them")
        self.workers, self.ray, self.tell = workers, ray, tell
        self._processes: Processes | None = None
        self._cluster: Cluster | None = None
        if ray is not None:
            from relucert.execution.cluster import Cluster

            self._cluster = Cluster(ray)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for part in (self._processes, self._cluster):
            if part is not None:
                part.close()
        self._processes = self._cluster = None

    def run(self, job: Job[Any], items: Sequence[Item]) -> Worked:
        """The answers to all items, as they come."""
        if self._cluster is not None:
            return self._cluster.run(job, items)
        if self.workers is None:
            return self._by_itself(job, items)
        return self._with(job, items, self.workers)

    def _with(self, job: Job[Any], items: Sequence[Item], workers: int) -> Worked:
        count = min(workers, len(items), job.most_workers or workers)
        if count <= 1:
            return _here(job, items)
        if self._processes is None:
            from relucert.execution.processes import Processes

            self._processes = Processes()
        return self._processes.run(job, items, count)

    def _by_itself(self, job: Job[Any], items: Sequence[Item]) -> Worked:
        """In this process until it turns out that the rest would take long."""
        cores, started = _cores(), time.monotonic()
        for place, item in enumerate(items):
            spent, left = time.monotonic() - started, len(items) - place
            if place and cores > 1 and left > 1 and spent > TRIAL and left * spent / place > WORTH:
                yield from self._with(job, items[place:], cores)
                return
            yield from _here(job, [item])


def _here(job: Job[Any], items: Sequence[Item]) -> Worked:
    for item in items:
        numbers = iter(item)
        for answers in job.answer(item):
            yield [(next(numbers), answer) for answer in answers]


def _is_address(given: object) -> bool:
    return isinstance(given, str) and bool(given)


def _cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
