"""A worker process: takes the numbers of questions from its input and sends the answers to its output."""

from __future__ import annotations

import math
import os
import pickle
import queue
import signal
import sys
import threading
import time
import warnings
from typing import Any, BinaryIO

from relucert.common.progress import Progress
from relucert.execution.sharing import open_shared

READY, ANSWERS, NEWS, DONE, ERROR = "ready", "answers", "news", "done", "error"
EVERY = 0.2  # seconds between news


def main() -> None:
    """Serves until its input ends, which it does when the process that started it has ended, however that came."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who asks is interrupted, and ends this process
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no reply
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    requests: queue.SimpleQueue[tuple[str, tuple[int, ...]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    _reply(replies, READY, None)
    path, job = "", None
    while True:
        wanted, numbers = requests.get()
        try:
            if wanted != path:
                path, job = wanted, open_shared(wanted)
            assert job is not None
            for answers in job.answer(numbers, _News(replies)):
                _reply(replies, ANSWERS, list(answers))
        except Exception as error:
            _reply(replies, ERROR, error)
        else:
            _reply(replies, DONE, None)


def _listen(source: BinaryIO, requests: queue.SimpleQueue[tuple[str, tuple[int, ...]]]) -> None:
    while True:
        try:
            requests.put(pickle.load(source))
        except (EOFError, OSError):
            os._exit(0)


class _News:
    """Sends how far the work on an item is, now and then."""

    def __init__(self, replies: BinaryIO) -> None:
        self._replies, self._sent = replies, -math.inf

    def __call__(self, state: Progress) -> None:
        now = time.monotonic()
        if now - self._sent >= EVERY:
            self._sent = now
            _reply(self._replies, NEWS, state)


def _reply(replies: BinaryIO, what: str, content: Any) -> None:
    try:
        message = pickle.dumps((what, content))
        if what == ERROR:
            pickle.loads(message)
    except Exception as error:  # it holds something of this process alone, or can't be made again
        told = content if what == ERROR else error
        message = pickle.dumps((ERROR, RuntimeError(f"{type(told).__name__}: {told}")))
    replies.write(message)
    replies.flush()
