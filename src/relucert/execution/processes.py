"""Worker processes of one thread each; one that dies costs its questions a retry, and one that kills gets a reason."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relucert.errors import RelucertError
from relucert.execution import serve
from relucert.execution.job import Item, Work
from relucert.execution.sharing import SharedFile

if TYPE_CHECKING:
    from relucert.execution.execution import Worked

DIED = "died"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
COMMAND = (sys.executable, "-m", "relucert.execution.serve")


class _Process:
    """One process, and a thread that passes on what it sends.

    It is started like any program, so that it neither runs the caller's script again nor has threads of it.
    """

    def __init__(self, events: queue.SimpleQueue[tuple[_Process, str, Any]]) -> None:
        path = os.pathsep.join(part for part in sys.path if part)
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": path}
        self.popen = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.ready, self.left, self.tried = False, deque[int](), False
        threading.Thread(target=self._listen, args=(events,), name="relucert-worker", daemon=True).start()

    def ask(self, path: str, item: Item, tried: bool) -> None:
        self.left, self.tried = deque(item), tried
        assert self.popen.stdin is not None
        with suppress(OSError):  # where it has died, its listener tells
            self.popen.stdin.write(pickle.dumps((path, item)))
            self.popen.stdin.flush()

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _listen(self, events: queue.SimpleQueue[tuple[_Process, str, Any]]) -> None:
        assert self.popen.stdout is not None
        while True:
            try:
                what, content = pickle.load(self.popen.stdout)
            except (EOFError, OSError, ValueError, pickle.UnpicklingError):
                events.put((self, DIED, self.popen.wait()))
                return
            events.put((self, what, content))


@dataclass(frozen=True)
class _Waiting:
    item: Item
    tried: bool = False  # whether a process has died of it


def _first(again: deque[_Waiting], coming: Iterator[_Waiting]) -> _Waiting | None:
    """What is to be started next: what a process died of before what nobody tried; None where nothing is left."""
    return again.popleft() if again else next(coming, None)


class Processes:
    """Processes that serve one job after the other."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[tuple[_Process, str, Any]] = queue.SimpleQueue()
        self._idle: list[_Process] = []
        self._busy: list[_Process] = []

    def run(self, job: Work[Any], items: Iterable[Item], count: int) -> Worked:
        """The answers to all items, as they come, by so many processes."""
        shared, coming = SharedFile(job), map(_Waiting, items)
        again: deque[_Waiting] = deque()
        try:
            while True:
                while len(self._busy) < count and (following := _first(again, coming)) is not None:
                    self._start(str(shared.path), following)
                if not self._busy:
                    return
                process, what, content = self._events.get()
                if process not in self._busy:
                    self._idle = [other for other in self._idle if other is not process or what != DIED]
                elif what == serve.READY:
                    process.ready = True
                elif what == serve.ANSWERS:
                    yield [(process.left.popleft(), answer) for answer in content]
                elif what == serve.ERROR:
                    raise content
                else:
                    self._busy.remove(process)
                    if what == serve.DONE:
                        self._idle.append(process)
                        continue
                    retried = self._bury(process, content)
                    again.extend(retried)
                    if not retried:
                        yield [(number, job.lost(number, _told(content))) for number in process.left]
        finally:
            for process in self._busy:  # what they work on is no longer wanted
                process.end()
            self._busy = []
            shared.close()

    def close(self) -> None:
        for process in (*self._idle, *self._busy):
            process.end()
        self._idle, self._busy = [], []

    def _start(self, path: str, following: _Waiting) -> None:
        process = self._idle.pop() if self._idle else _Process(self._events)
        self._busy.append(process)
        process.ask(path, following.item, following.tried)

    def _bury(self, process: _Process, code: int) -> list[_Waiting]:
        """What is to be tried again of what a process left: all of it together, so that the answers are the same as
        ever; after a second death each question by itself, unless it was by itself."""
        process.end()
        if not process.ready and code >= 0:  # by itself, before it had any question
            raise RelucertError(f"a worker process could not start (it ended with {code}): use --workers 1")
        if process.left and not process.tried:
            return [_Waiting(tuple(process.left), tried=True)]
        return [_Waiting((number,), tried=True) for number in process.left] if len(process.left) > 1 else []


def _told(code: int) -> str:
    how = f"was killed by signal {-code}; memory may have run out" if code < 0 else f"ended with code {code}"
    return f"the worker processes that tried it died (the last {how})"
