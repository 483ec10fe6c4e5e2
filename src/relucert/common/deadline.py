"""The deadline of an answer: one around all the work on it, however deep that work goes.

Who has a time limit opens `until`. Loops over costly steps, such as the layers of a pull-back, call `check_time`, which
raises `TimeUp` once time is over. Who opened it catches that and answers with what is proven by then. A deadline ends
work and does nothing else: no number depends on it.
"""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager
from contextvars import ContextVar

from relucert.common.closing import setting

_ENDS: ContextVar[float] = ContextVar("ends", default=math.inf)


class TimeUp(Exception):  # noqa: N818 - no error: what is proven by then is kept
    """The time is over."""


def until(ends: float) -> AbstractContextManager[None]:
    """Sets a deadline, `ends` on the monotonic clock, for the work within this context; an earlier one around it stays.

    Never to be opened around a `yield` of an answer: who takes the answer would work within it.
    """
    return setting(_ENDS, min(ends, _ENDS.get()))


def within(ends: float, share: float) -> float:
    """When a share of the time from now until `ends` is over, on the monotonic clock."""
    now = time.monotonic()
    return now + share * (ends - now)


def check_time(seconds: float = 0.0) -> None:
    """Raises TimeUp after the deadline, or where a next step that takes these seconds would pass it."""
    ends = _ENDS.get()
    if ends < math.inf and time.monotonic() + seconds > ends:
        raise TimeUp


def seconds_left() -> float:
    """The seconds until time is over, at least 0: for solvers with a time limit of their own."""
    return max(0.0, _ENDS.get() - time.monotonic())
