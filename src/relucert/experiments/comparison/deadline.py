"""A time limit for work that has none of its own: it runs in a thread that can be told to stop.

There is no signal in it, so it works in any thread and on any system.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from typing_extensions import Self

from relucert.common.closing import Closing

POLL = 0.1  # seconds between looks: on some systems an interruption waits for the next one
AGAIN = 1.0  # seconds after which a thread is told to stop once more, should a solver have swallowed it
GRACE = 5.0  # seconds that a thread has to stop before the work goes on without it

T = TypeVar("T")


class OutOfTime(BaseException):  # as KeyboardInterrupt: whoever catches Exception must not take it for a failure
    """The time is up."""


class Worker(Closing):
    """A thread that takes calls, one after the other; a context manager, which stops it at the end.

    A call that is given up has OutOfTime raised in it, at the interpreter's next step. Should it be in a long step of
    a library at that time, it goes on beside the caller until that step is done.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._ends: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._busy = False
        self._thread = threading.Thread(target=self._run, name="relucert-limited")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def call(self, work: Callable[[], T], seconds: float) -> T:
        """Returns or raises what the work does; raises OutOfTime, and takes no more calls, once the seconds passed."""
        ends = time.monotonic() + seconds
        self._busy = True
        self._calls.put(work)
        while True:
            remaining = ends - time.monotonic()
            try:
                result, error = self._ends.get(timeout=max(0.0, min(POLL, remaining)))
            except Empty:
                if remaining <= 0:
                    raise OutOfTime from None
                continue
            self._busy = False
            if error is not None:
                raise error
            return result  # type: ignore[no-any-return]

    def close(self) -> None:
        self._calls.put(None)
        if self._busy:
            threading.Thread(target=self._stop, name="relucert-stopper", daemon=True).start()
        self._thread.join(GRACE)

    def _run(self) -> None:
        try:
            while (work := self._calls.get()) is not None:
                try:
                    self._ends.put((work(), None))
                except BaseException as error:  # the caller's to judge
                    self._ends.put((None, error))
        except OutOfTime:  # rang between two calls
            pass

    def _stop(self) -> None:
        identity = ctypes.c_ulong(self._thread.ident or 0)
        while self._thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, ctypes.py_object(OutOfTime))
            self._thread.join(AGAIN)


def limited(work: Callable[[], T], seconds: float) -> T:
    """Returns or raises what the work does; raises OutOfTime once the seconds have passed."""
    with Worker() as worker:
        return worker.call(work, seconds)
