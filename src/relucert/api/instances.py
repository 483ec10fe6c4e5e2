"""Lists of instances, as the field's benchmarks come: network, property and seconds, and their verdicts."""

from __future__ import annotations

import csv
import hashlib
import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

from relucert.answers.verdicts import UNKNOWN, Verdict
from relucert.api.verify import verify_alone
from relucert.branch_and_bound.stages import search_bytes
from relucert.common.names import InferenceName
from relucert.common.progress import Report, silent
from relucert.errors import FAULTS, InputError, LoadError, RelucertError, in_one_line
from relucert.execution.execution import Execution
from relucert.execution.job import Item, Job
from relucert.execution.run import start
from relucert.inputs.loading.paths import file_digest
from relucert.inputs.storage.store import About, Store, StoreLike
from relucert.network import find_inference
from relucert.network.batching import fitting_workers
from relucert.verification.results import word

ERROR = "error"  # the result where a file is missing, or a network can't be read


@dataclass(frozen=True)
class Instance:
    """A line of a list of instances: the names of network and property, their folder, and the seconds allowed."""

    onnx: str
    vnnlib: str
    limit: float
    folder: Path

    @property
    def network(self) -> Path:
        return _plain_or_packed(self.folder / self.onnx)

    @property
    def query(self) -> Path:
        return _plain_or_packed(self.folder / self.vnnlib)

    def digest(self) -> str:
        """A SHA-256 of both files, the same for the same question; of their names where they can't be read."""
        digest = hashlib.sha256()
        for path in (self.network, self.query):
            try:
                digest.update(bytes.fromhex(file_digest(path)))
            except (OSError, LoadError):
                digest.update(str(path).encode())
        return digest.hexdigest()


def _plain_or_packed(plain: Path) -> Path:
    """A file, or its compressed copy where only that is there."""
    packed = plain.with_name(f"{plain.name}.gz")
    return packed if packed.exists() and not plain.exists() else plain


def read_instances(path: Path) -> list[Instance]:
    """The instances of a list, whose names count from its own folder."""
    try:
        lines = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"can't read the instances {path}: {getattr(error, 'strerror', None) or error}") from None
    instances = []
    for number, line in enumerate(lines, start=1):
        cells = [cell.strip() for cell in line]
        if not any(cells) or (number == 1 and cells[:1] == ["onnx"]):
            continue
        limit = _seconds(cells[2]) if len(cells) == 3 else None
        if limit is None or not cells[0] or not cells[1]:
            raise InputError(
                f"{path}, line {number}: an instance is network,property,seconds, not {','.join(cells)[:60]!r}"
            )
        instances.append(Instance(cells[0], cells[1], limit, path.parent.resolve()))
    if not instances:
        raise InputError(f"{path} has no instances: one per line, network,property,seconds")
    return instances


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1e9 else None


@dataclass(frozen=True, eq=False)
class Decided:
    """An instance and its verdict: one row of a table."""

    instance: Instance
    digest: str
    inference: InferenceName
    verdict: Verdict

    @property
    def result(self) -> str:
        """The verdict as one of the competition's words."""
        return ERROR if self.failed else word(self.verdict)

    @property
    def reason(self) -> str | None:
        return self.verdict.reason

    @property
    def failed(self) -> bool:
        return self.verdict.failed

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON: the instance, and the verdict without its witness."""
        instance, verdict = self.instance, self.verdict
        return {
            "onnx": instance.onnx, "vnnlib": instance.vnnlib, "limit": instance.limit, "result": self.result,
            "seconds": round(verdict.seconds, 3), "nodes": verdict.nodes, "method": verdict.method,
            "stage": verdict.stage,
            "reason": verdict.reason, "failed": verdict.failed, "sha256": self.digest,
            "inference": self.inference,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class InstancesJob(Job[Verdict]):
    """The instances of a list as a job, each answered by itself.

    Attributes:
        instances: The list.
        time_limit: The most seconds for each instance, besides its own limit; None: its own limit alone.
        seed: Of the attack's random starts.
        inference: What the networks are evaluated in.
    """

    instances: Sequence[Instance]
    time_limit: float | None
    seed: int
    inference: InferenceName = "real"
    divisible: ClassVar[bool] = True

    def __post_init__(self) -> None:
        find_inference(self.inference)

    @cached_property
    def digests(self) -> list[str]:
        return [instance.digest() for instance in self.instances]

    @property
    def items(self) -> Sequence[Item]:
        return [(number,) for number in range(len(self.instances))]

    @property
    def asked(self) -> dict[str, Any]:
        effort = {"time_limit": self.time_limit, "seed": self.seed, "inference": self.inference}
        return {"command": "verify --instances", **effort}

    @property
    def most_workers(self) -> int:
        return fitting_workers(search_bytes())

    def about(self) -> list[About]:
        numbered = zip(self.instances, self.digests, strict=True)
        return [{"limit": instance.limit, "sha256": digest} for instance, digest in numbered]

    def check(self, store: Store) -> None:
        """Accepts any store: answers about other files are told apart by their checksums."""

    def answer(self, numbers: Sequence[int], report: Report = silent) -> Iterator[Sequence[Verdict]]:
        for number in numbers:
            instance, started = self.instances[number], time.monotonic()
            limit = instance.limit if self.time_limit is None else min(instance.limit, self.time_limit)
            try:
                verdict = verify_alone(
                    instance.network, instance.query, time_limit=limit, inference=self.inference, seed=self.seed,
                    progress=report,
                )  # fmt: skip
                if instance.digest() != self.digests[number]:
                    verdict = _failed("the files were changed during the run", time.monotonic() - started)
            except RelucertError as error:
                verdict = _failed(str(error), time.monotonic() - started)
            except (OSError, *FAULTS) as error:
                verdict = _failed(in_one_line(error), time.monotonic() - started)
            yield [verdict]

    def lost(self, number: int, reason: str) -> Verdict:
        return _failed(reason, 0.0)


def run(job: InstancesJob, workers: int | Execution | None, store: StoreLike | None) -> Iterator[Decided]:
    """Yields every instance with its verdict, in order: from the store, or computed now."""
    verdicts = start(job, workers, None, store)
    return map(Decided, job.instances, job.digests, repeat(job.inference), verdicts)


def _failed(reason: str, seconds: float) -> Verdict:
    return Verdict(UNKNOWN, None, None, reason, seconds, 0, None, failed=True)
