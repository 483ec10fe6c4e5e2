"""A Ray cluster, which others set up and schedule: the same work items, on any of its machines."""

from __future__ import annotations

import logging
import math
import platform
import time
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import torch

from relucert.common.deadline import check_time
from relucert.errors import InputError, MissingPackageError, in_one_line
from relucert.execution.identity import program_mark
from relucert.execution.job import Item, Work
from relucert.execution.pending import Pending, Waiting
from relucert.execution.sharing import dump, load

if TYPE_CHECKING:
    from relucert.execution.execution import Worked

AHEAD = 2  # items per core that are with the cluster at any time; the others wait here
ASKED = 1.0  # seconds after which the cluster is asked for its size again
POLL = 0.2  # seconds between looks, so that whoever waits can be told to stop
GRACE = 0.5  # seconds that workers on one question may take to notice that its time is over

_jobs: dict[str, Work[Any]] = {}  # in a worker of the cluster: the one job that it works on, by its name


class Cluster:
    """A connection to a cluster; one that was there before is left as it is.

    Args:
        address: Of a cluster, or "auto": the one of this machine.
    """

    def __init__(self, address: str) -> None:
        try:
            self._ray = import_module("ray")
        except ImportError:
            raise MissingPackageError(
                "working on a cluster needs Ray, which is not installed: pip install relucert[ray]"
            ) from None
        self._known_room, self._asked_again = 1, -math.inf
        self._connected = not self._ray.is_initialized()
        if self._connected:
            try:
                self._ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise InputError(f"there is no Ray cluster at {address!r}: {in_one_line(error)}") from error

    def run(self, job: Work[Any], items: Iterable[Item]) -> Worked:
        """The answers to all items, as they come."""
        ray = self._ray
        stream, buffers = dump(job)
        arrays = [np.frombuffer(buffer, dtype=np.uint8) for buffer in buffers]  # which Ray's workers share
        shared = ray.put((uuid4().hex, program_mark(), stream, arrays))
        ask = ray.remote(num_cpus=1, max_retries=0)(_answered)  # Ray itself would retry for ever where memory runs out
        pending, running = Pending(items), dict[Any, Waiting]()
        try:
            while True:
                room = AHEAD * self.room
                while len(running) < room and (following := pending.next()) is not None:
                    running[ask.remote(shared, following.item)] = following
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1, timeout=POLL)
                if not ready:
                    check_time(-GRACE)
                    continue
                (done,) = ready
                asked = running.pop(done)
                try:
                    answers = ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    cause = getattr(error, "cause", None)
                    raise (cause if isinstance(cause, BaseException) else error) from None
                except ray.exceptions.RayError as error:
                    if not pending.died(asked.item, asked.tried):
                        yield [(number, job.lost(number, _told(error))) for number in asked.item]
                else:
                    yield list(zip(asked.item, answers, strict=True))
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

    def close(self) -> None:
        if self._connected:
            self._ray.shutdown()

    @property
    def room(self) -> int:
        """How many cores the cluster has; it may grow and shrink meanwhile, and is asked now and then."""
        now = time.monotonic()
        if now >= self._asked_again:
            self._known_room = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
            self._asked_again = now + ASKED
        return self._known_room


def _answered(shared: tuple[str, str, bytes, list[Any]], item: Item) -> list[Any]:
    """An item's answers, in a worker of the cluster; what many items share is made once.

    A machine with another program than that which asks is refused: its answers would be that program's claims.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # also the one that shared numbers can't be written to, which nobody does
    name, program, stream, buffers = shared
    if name not in _jobs:
        if program != program_mark():
            raise InputError(
                f"the machine {platform.node()} of the cluster has another version of relucert than this one: install "
                "the same on all of them"
            )
        _jobs.clear()
        _jobs[name] = load(stream, buffers)
    return [answer for answers in _jobs[name].answer(item) for answer in answers]


def _told(error: BaseException) -> str:
    return f"the workers of the cluster that tried it were lost (the last: {in_one_line(error)[:200]})"
