"""The check of many proof files, by several processes where it takes long."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from relucert.checker.check import check, check_property
from relucert.checker.document import QueryProof, Rejected, read
from relucert.errors import FAULTS, RelucertError, in_one_line
from relucert.execution.execution import Execution
from relucert.loading import load
from relucert.network import Network


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
    except RelucertError as error:
        holds, words = False, f"not checked: {error}"
    except FAULTS as error:
        holds, words = False, f"not checked: {in_one_line(error)}"
    return Checked(path, holds, words, time.process_time() - started)


@dataclass(frozen=True)
class _Files:
    """The work of checking files, whichever process does it."""

    paths: Sequence[Path]
    network: str | None
    most_workers: None = None

    def answer(self, numbers: Sequence[int]) -> Iterator[Sequence[Checked]]:
        for number in numbers:
            yield [check_file(self.paths[number], self.network)]

    def lost(self, number: int, reason: str) -> Checked:
        return Checked(self.paths[number], False, f"not checked: {reason}", 0.0)


def check_all(paths: Sequence[Path], network: str | None, workers: int | None = None) -> Iterator[Checked]:
    """What each file proves, in no order.

    Args:
        network: As for `check_file`.
        workers: How many processes; 1: this one. None: this one at first, and one process per core for what is left
            if that would take long.
    """
    with Execution(workers) as execution:
        for came in execution.run(_Files(paths, network), [(number,) for number in range(len(paths))], len(paths)):
            yield from (checked for _, checked in came)


@lru_cache(maxsize=4)
def _loaded(name: str) -> Network:
    return load(name)
