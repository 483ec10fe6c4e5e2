"""Where work is done: in this process, in worker processes of one thread each, or on a Ray cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

from relucert.common.checks import check_whole, shown
from relucert.common.closing import Closing
from relucert.common.progress import Report, silent
from relucert.errors import InputError
from relucert.execution.job import Item, Work
from relucert.execution.team import offering

if TYPE_CHECKING:
    from relucert.execution.cluster import Cluster
    from relucert.execution.processes import Processes

TRIAL = 2.0  # seconds of work in this process before it is judged whether more processes are worth their start
WORTH = 20.0  # seconds of work left that are
MOST_WORKERS = 4096
FEW = 2  # workers per item at least, for all of them to work on one item after the other

Came = list[tuple[Any, Any]]
"""Answers that came together, each with its question, or the question's number."""

Worked = Generator[Came, None, None]


class Execution(Closing):
    """Runs jobs; a context manager, whose processes serve all of them and end with it.

    Args:
        workers: How many processes; 1: this one. None: this one at first, and one process per core for what is left
            if that would take long.
        ray: The address of a Ray cluster, or "auto"; None: this machine alone.
        tell: Called with how far each job is; None: whoever asks is told, or a notebook shows it.
    """

    def __init__(self, workers: int | None, ray: str | None = None, tell: Report | None = None) -> None:
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

    def close(self) -> None:
        for pool in (self._processes, self._cluster):
            if pool is not None:
                pool.close()
        self._processes = self._cluster = None

    def run(self, job: Work[Any], items: Iterable[Item], count: int, report: Report = silent) -> Worked:
        """The answers to all items, as they come; items are taken when their turn comes, at most `count` of them.

        Where there are few items, this process works on one after the other, and the workers help with each.

        report: Called with how far the work on an item is; a cluster does not tell.
        """
        room = self.room
        if job.divisible and (count * FEW <= room or job.most_workers == 1):
            return here(job, items, report, self, room)
        if self._cluster is None and self.workers is None:
            return self._by_itself(job, items, count, report)
        return self.run_with(job, items, min(room, count), report)

    @property
    def room(self) -> int:
        """How many items may be worked on at once."""
        if self._cluster is not None:
            return self._cluster.room
        return self.workers or _cores()

    def run_with(self, job: Work[Any], items: Iterable[Item], workers: int, report: Report) -> Worked:
        """The answers to all items, as they come, by so many workers at the most."""
        if self._cluster is not None:
            return self._cluster.run(job, items)
        workers = min(workers, job.most_workers or workers)
        if workers <= 1:
            return here(job, items, report)
        return self._pool().run(job, items, workers, report)

    def is_ready(self, workers: int) -> bool:
        """Whether so many workers can begin at once; those that can't are started, and not waited for."""
        return self._cluster is not None or self._pool().is_ready(workers)

    def _pool(self) -> Processes:
        if self._processes is None:
            from relucert.execution.processes import Processes

            self._processes = Processes()
        return self._processes

    def _by_itself(self, job: Work[Any], items: Iterable[Item], count: int, report: Report) -> Worked:
        """Works in this process, and in several once it turns out that the rest would take long."""
        cores, started, coming = _cores(), time.monotonic(), iter(items)
        for number, item in enumerate(coming):
            yield from here(job, [item], report)
            spent, left = time.monotonic() - started, count - number - 1
            if cores > 1 and left > 1 and spent > TRIAL and left * spent / (number + 1) > WORTH:
                yield from self.run_with(job, coming, min(cores, left), report)
                return


def check_proof_place(workers: int | Execution | None, ray: str | None) -> None:
    """Refuses to write proofs on a cluster, whose machines have folders of their own."""
    if ray is not None or (isinstance(workers, Execution) and workers.ray is not None):
        raise InputError("proofs are written on this machine: leave out the proof, or ray")


def here(
    job: Work[Any], items: Iterable[Item], report: Report, execution: Execution | None = None, team: int = 1
) -> Worked:
    """The answers to all items, in this process; a team of an execution's workers may help with each."""
    for item in items:
        numbers, coming = iter(item), iter(job.answer(item, report))
        while True:
            with offering(execution, team):
                answers = next(coming, None)
            if answers is None:
                break
            yield [(next(numbers), answer) for answer in answers]


def _is_address(given: object) -> bool:
    return isinstance(given, str) and bool(given)


def _cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
