"""How far a run is, in words, and as a bar below the cell of a notebook, which needs no widgets."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import Any

PATIENCE = 1.0  # seconds before a bar appears
EVERY = 0.5  # seconds between its changes


def rate(speed: float) -> str:
    """So many per second or, where they are slow, per minute."""
    return f"{speed:.3g}/s" if speed >= 1 else f"{60 * speed:.3g}/min"


def pace(done: float, left: float, seconds: float) -> str:
    """The rate and the time left, where so many were done in so many seconds; empty where there is no rate."""
    if done <= 0 or seconds <= 0:
        return ""
    return f", {rate(done / seconds)}, about {left * seconds / done:.0f} s left"


class NotebookBar:
    """A bar in the notebook whose kernel this process is; elsewhere nothing at all.

    It appears once a run takes more than a moment, and vanishes with it.
    """

    def __init__(self) -> None:
        self._is_kernel = _is_kernel()
        self._started = self._shown = time.monotonic()
        self._first: int | None = None  # what was done before, by an earlier run
        self._handle: Any = None

    def tell(self, done: int, total: int) -> None:
        """So many questions are answered, of so many."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._started = done, now
        if not self._is_kernel or now - self._shown < (PATIENCE if self._handle is None else EVERY):
            return
        self._shown = now
        bar = _Bar(done, total, pace(done - self._first, total - done, now - self._started))
        if self._handle is None:
            self._handle = import_module("IPython.display").display(bar, display_id=True)
        else:
            self._handle.update(bar)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.update(_Bar(0, 0, ""))
            self._handle = None


class _Bar:
    """What the notebook shows: nothing, once there is nothing to do."""

    def __init__(self, done: int, total: int, pace: str) -> None:
        self._done, self._total, self._pace = done, total, pace

    def __repr__(self) -> str:
        return f"{self._done:,} of {self._total:,}{self._pace}" if self._total else ""

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self._done}" max="{self._total}"></progress> ' if self._total else ""
        return f"{bar}{self!r}"


def _is_kernel() -> bool:
    """Whether this process is the kernel of a notebook: nothing is imported to find out."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
