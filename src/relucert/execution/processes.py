"""Worker processes of one thread each; one that dies costs its questions a retry, and one that kills gets a reason."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from relucert.common.deadline import check_time
from relucert.common.progress import Report
from relucert.errors import RelucertError
from relucert.execution import serve
from relucert.execution.job import Item, Work
from relucert.execution.pending import Pending
from relucert.execution.sharing import SharedFile

if TYPE_CHECKING:
    from relucert.execution.execution import Worked

DIED = "died"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
POLL = 0.1  # seconds between looks, so that whoever waits can be told to stop
GRACE = 0.3  # seconds that workers on one question may take to notice that its time is over
SERVE = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
from relucert.execution.serve import main
main()
"""  # the same modules as here, whatever the current folder has

Events = queue.SimpleQueue[tuple["_Process", str, Any]]


class _Process:
    """One process, and a thread that passes on what it sends.

    It is started like any program, so that it neither runs the caller's script again nor has threads of it.
    """

    def __init__(self, events: Events) -> None:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self.popen = subprocess.Popen(
            (sys.executable, "-c", SERVE),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C in the terminal is for the one who asks
        )
        self.events = events
        self.code: int | None = None  # that it ended with
        self.ready, self.left, self.tried = False, deque[int](), False
        threading.Thread(target=self._listen, name="relucert-worker", daemon=True).start()

    def ask(self, events: Events, path: str, item: Item, tried: bool) -> None:
        """Sends an item to the process; its answers, or the news of its death, come through `events`."""
        self.events, self.left, self.tried = events, deque(item), tried
        if self.code is not None:  # it died before this, and the one it told may be gone
            events.put((self, DIED, self.code))
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

    def _listen(self) -> None:
        assert self.popen.stdout is not None
        while True:
            try:
                what, content = pickle.load(self.popen.stdout)
            except Exception:  # it ended, or what it says makes no sense, and then it is to end
                self.popen.kill()
                self.code = self.popen.wait()
                self.events.put((self, DIED, self.code))
                return
            if what == serve.READY:
                self.ready = True
            else:
                self.events.put((self, what, content))


class Processes:
    """Processes that serve one job after the other."""

    def __init__(self) -> None:
        self._idle: list[_Process] = []
        self._all: list[_Process] = []

    def run(self, job: Work[Any], items: Iterable[Item], count: int, report: Report) -> Worked:
        """The answers to all items, as they come, by so many processes; `items` may have more after answers came.

        What they tell this run, no other one hears: one that was given up may still be on its way out.
        """
        shared, pending = SharedFile(job), Pending(items)
        events: Events = queue.SimpleQueue()
        busy: list[_Process] = []
        try:
            while True:
                while len(busy) < count and (following := pending.next()) is not None:
                    busy.append(self._free(events))
                    busy[-1].ask(events, str(shared.path), following.item, following.tried)
                if not busy:
                    return
                try:
                    process, what, content = events.get(timeout=POLL)
                except queue.Empty:
                    check_time(-GRACE)
                    continue
                if process not in busy:
                    continue
                if what == serve.ANSWERS:
                    yield [(process.left.popleft(), answer) for answer in content]
                elif what == serve.NEWS:
                    report(content)
                elif what == serve.ERROR:
                    raise content
                else:
                    busy.remove(process)
                    if what == serve.DONE:
                        self._idle.append(process)
                        continue
                    self._bury(process, content)
                    if not pending.died(process.left, process.tried):
                        yield [(number, job.lost(number, _told(content))) for number in process.left]
        finally:
            for process in busy:  # what they work on is no longer wanted
                process.end()
            shared.close()

    def is_ready(self, count: int) -> bool:
        """Whether so many processes are idle and have started; those that are missing are started.

        Where one could not start, none will be.
        """
        if any(process.code is not None and not process.ready for process in self._all):
            return False
        self._idle = [process for process in self._idle if process.code is None]
        while len(self._idle) < count:
            self._all.append(_Process(queue.SimpleQueue()))
            self._idle.append(self._all[-1])
        return all(process.ready for process in self._idle)

    def close(self) -> None:
        for process in self._all:
            process.end()
        self._idle, self._all = [], []

    def _free(self, events: Events) -> _Process:
        """An idle process, else a new one."""
        while self._idle:
            process = self._idle.pop()
            if process.code is None:
                return process
        self._all.append(_Process(events))
        return self._all[-1]

    def _bury(self, process: _Process, code: int) -> None:
        process.end()
        if not process.ready and code >= 0:  # by itself, before it had any question
            raise RelucertError(f"a worker process could not start (it ended with {code}): use --workers 1")


def _told(code: int) -> str:
    how = f"was killed by signal {-code}; memory may have run out" if code < 0 else f"ended with code {code}"
    return f"the worker processes that tried it died (the last {how})"
