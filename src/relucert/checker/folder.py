"""The check of many proof files, by several processes where it takes long."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

from relucert.checker.check import check, check_property
from relucert.checker.document import QueryProof, Rejected, read
from relucert.errors import RelucertError
from relucert.loading import load
from relucert.network import Network

TRIAL = 2.0  # seconds of work in this process before it is judged whether more processes are worth their start
WORTH = 20.0  # seconds of work left that are


@dataclass(frozen=True)
class Checked:
    """What came of one file.

    Attributes:
        holds: Whether it proves what it claims.
        words: The claim, or why nothing is proven.
        seconds: Of processor time.
    """

    path: Path
    holds: bool
    words: str
    seconds: float


def proof_paths(folder: Path) -> list[Path]:
    """The files of a folder that are named like proofs, by name."""
    return sorted(path for path in folder.iterdir() if path.name.endswith((".json", ".json.gz")))


def check_file(path: Path, network: str | None) -> Checked:
    """What one file proves, whatever it is about; an error is a reason, too.

    network: its name or file; None for the one that the proof names.
    """
    started = time.process_time()
    try:
        proof = read(path)
        known = _loaded(network or proof.name)
        checking = check_property if isinstance(proof, QueryProof) else check
        holds, words = True, str(checking(path, known))
    except Rejected as error:
        holds, words = False, f"rejected: {error}"
    except (RelucertError, ArithmeticError, MemoryError, ValueError) as error:
        holds, words = False, f"not checked: {' '.join(str(error).split()) or type(error).__name__}"
    return Checked(path, holds, words, time.process_time() - started)


def check_all(paths: Sequence[Path], network: str | None, workers: int | None = None) -> Iterator[Checked]:
    """What each file proves, in no order.

    Args:
        network: As for `check_file`.
        workers: How many processes; 1: this one. None: this one at first, and one process per core for what is left
            if that would take long.
    """
    count = workers or 1
    started, place = time.monotonic(), 0
    if count == 1:
        for place, path in enumerate(paths):
            spent, left = time.monotonic() - started, len(paths) - place
            if workers is None and place and left > 1 and spent > TRIAL and left * spent / place > WORTH:
                count = _cores()
                break
            yield check_file(path, network)
        else:
            return
    yield from _by_processes(paths[place:], network, min(count, len(paths) - place))


def _by_processes(paths: Sequence[Path], network: str | None, count: int) -> Iterator[Checked]:
    with ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        waiting: dict[Future[Checked], Path] = {pool.submit(check_file, path, network): path for path in paths}
        while waiting:
            for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                path = waiting.pop(done)
                try:
                    yield done.result()
                except BrokenProcessPool:
                    yield Checked(path, False, "not checked: a process died; memory may have run out", 0.0)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@lru_cache(maxsize=4)
def _loaded(name: str) -> Network:
    return load(name)


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
