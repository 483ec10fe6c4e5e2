"""Who is told how far a call is: the user's own function, a bar below the cell of a notebook, or one in a terminal."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any

from relucert.common.progress import Listener, Progress, ProgressLike, Report, check_progress, pace

PATIENCE = 1.0  # seconds before a bar appears
EVERY = 0.5  # seconds between its changes


class OwnFault(BaseException):
    """An exception that a function of the user's raised: no method may take it for a failure of its own."""

    def __init__(self, caller: Caller, error: Exception) -> None:
        super().__init__(error)
        self.caller, self.error = caller, error


@contextmanager
def listening(progress: ProgressLike) -> Iterator[Listener]:
    """Opens a listener for the time of the work; what a function of the user's raises comes out as it was raised."""
    with closing(listener(progress)) as receiver, faults_of(receiver):
        yield receiver


@contextmanager
def faults_of(receiver: Listener) -> Iterator[None]:
    """Within this context, what the function of this listener raises is raised again as it was."""
    try:
        yield
    except OwnFault as fault:
        if fault.caller is not receiver:
            raise
        raise fault.error from None


class Caller(Listener):
    """Calls a function of the user's with all news."""

    def __init__(self, function: Report) -> None:
        self._function = function

    def tell(self, state: Progress) -> None:
        try:
            self._function(state)
        except Exception as error:
            raise OwnFault(self, error) from error


def listener(progress: ProgressLike) -> Listener:
    """The listener that `progress=` asks for; by default a bar in notebooks, and none elsewhere."""
    check_progress(progress)
    if callable(progress):
        return Caller(progress)
    if progress is not False and is_kernel():
        return NotebookBar()
    if progress:
        from relucert.common.terminal import TerminalBar  # rich takes its time to import

        return TerminalBar()
    return Listener()


class NotebookBar(Listener):
    """A bar below the cell of a notebook, which needs no widgets.

    It appears once a run takes more than a moment, and vanishes with it.
    """

    def __init__(self) -> None:
        self._started = self._shown = time.monotonic()
        self._first: int | None = None  # what was done before, by an earlier run
        self._handle: Any = None

    def tell(self, state: Progress) -> None:
        now, done = time.monotonic(), state.done or 0
        if self._first is None:
            self._first, self._started = done, now
        if now - self._shown < (PATIENCE if self._handle is None else EVERY):
            return
        self._shown = now
        remaining = (state.total or 0) - done
        bar = _Bar(state, pace(done - self._first, remaining, now - self._started))
        if self._handle is None:
            self._handle = import_module("IPython.display").display(bar, display_id=True)
        else:
            self._handle.update(bar)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.update(_Bar(Progress(), ""))
            self._handle = None


class _Bar:
    """The HTML of a bar; empty once the work is done."""

    def __init__(self, state: Progress, pace: str) -> None:
        self._state, self._pace = state, pace

    def __repr__(self) -> str:
        state = self._state
        if not state.total:
            return ""
        doing = f"; {state.doing}" if state.doing else ""
        return f"{state.done or 0:,} of {state.total:,}{self._pace}{doing}"

    def _repr_html_(self) -> str:
        state = self._state
        bar = f'<progress value="{state.done or 0}" max="{state.total}"></progress> ' if state.total else ""
        return f"{bar}{html.escape(repr(self))}"


def is_kernel() -> bool:
    """Whether this process is the kernel of a notebook: nothing is imported to find out."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
