"""An end to work that knows no time limit of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

AGAIN = 1.0  # seconds after which the alarm rings once more, should a solver have swallowed it


class OutOfTime(BaseException):  # as KeyboardInterrupt: whoever catches Exception must not take it for a failure
    """The time is up."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises OutOfTime inside once the seconds have passed.

    By an alarm, which only the main thread of a Unix process can set: elsewhere nothing is cut short.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:  # also where it rang within the line above: the next ring is a while away
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
