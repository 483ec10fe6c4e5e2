"""Work that is given up in time: in any thread, without a signal, and without a thread left behind."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from relucert.experiments.comparison import deadline
from relucert.experiments.comparison.deadline import OutOfTime, Worker, limited


def _endless() -> None:
    while True:
        try:
            time.sleep(0.001)
        except Exception:  # as whoever falls back whatever happens
            continue


def _gone() -> bool:
    """Whether all threads that took calls have ended, or do so soon."""
    ends = time.monotonic() + 10
    while any(thread.name == "relucert-limited" for thread in threading.enumerate()):
        if time.monotonic() > ends:
            return False
        time.sleep(0.01)
    return True


def test_what_is_done_in_time_is_returned_or_raised() -> None:
    assert limited(lambda: 3, 60) == 3
    with pytest.raises(ZeroDivisionError):
        limited(lambda: 1 // 0, 60)
    assert _gone()


def test_calls_come_one_after_the_other() -> None:
    with Worker() as worker:
        first, second = (worker.call(threading.get_ident, 60) for _ in range(2))
        with pytest.raises(KeyError):
            worker.call(lambda: {0: 0}[1], 60)
        assert worker.call(threading.get_ident, 60) == first == second != threading.get_ident()
    assert _gone()


def test_what_takes_too_long_is_given_up() -> None:
    started = time.monotonic()
    with pytest.raises(OutOfTime):
        limited(_endless, 0.05)
    assert time.monotonic() - started < deadline.GRACE
    assert _gone()


def test_the_same_outside_the_main_thread_and_where_there_are_no_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SIGALRM", "setitimer", "alarm"):
        monkeypatch.delattr(f"signal.{name}", raising=False)
    with ThreadPoolExecutor(1) as pool:
        assert isinstance(pool.submit(limited, _endless, 0.05).exception(), OutOfTime)
    assert _gone()


def test_who_swallows_it_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "AGAIN", 0.05)
    swallowed = []

    def stubborn() -> None:
        for _ in range(2):
            try:
                _endless()
            except BaseException as error:
                swallowed.append(error)
        _endless()

    with pytest.raises(OutOfTime):
        limited(stubborn, 0.05)
    assert _gone()
    assert [type(error) for error in swallowed] == [OutOfTime] * 2


def test_a_long_step_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work goes on without it, and it ends when the step is done."""
    monkeypatch.setattr(deadline, "GRACE", 0.05)
    done = threading.Event()
    with pytest.raises(OutOfTime):
        limited(lambda: done.wait(30), 0.05)
    assert any(thread.name == "relucert-limited" for thread in threading.enumerate())
    done.set()
    assert _gone()


def _interrupting(work: Callable[[], None]) -> Callable[[], None]:
    """Work during which an interruption reaches the thread that waits for it."""
    waiting = ctypes.c_ulong(threading.get_ident())

    def run() -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(waiting, ctypes.py_object(KeyboardInterrupt))
        work()

    return run


def test_an_interruption_stops_the_work_too() -> None:
    with pytest.raises(KeyboardInterrupt):
        limited(_interrupting(_endless), 60)
    assert _gone()
