"""Lists of instances, as the field's benchmarks come: network, property and seconds, and a table of their verdicts."""

from __future__ import annotations

import csv
import hashlib
import io
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relucert.errors import InputError, RelucertError
from relucert.network import find_inference
from relucert.storage import files
from relucert.verification.results import word
from relucert.verification.verify import verify

OLDER = ("onnx", "vnnlib", "limit", "result", "seconds", "nodes", "method", "reason", "sha256")
COLUMNS = (*OLDER, "inference")
ERROR = "error"
OTHER_TABLE = "something else than a table of verdicts"


@dataclass(frozen=True)
class Instance:
    """A line of a list: names as they stand there, the files they mean, and the seconds allowed."""

    onnx: str
    vnnlib: str
    limit: float
    folder: Path

    @property
    def network(self) -> Path:
        return self.folder / self.onnx

    @property
    def query(self) -> Path:
        """The property's file, which may be there compressed only."""
        plain = self.folder / self.vnnlib
        packed = plain.with_name(f"{plain.name}.gz")
        return packed if packed.exists() and not plain.exists() else plain

    def digest(self) -> str:
        """A SHA-256 of both files, the same for the same question; of their names where they can't be read."""
        digest = hashlib.sha256()
        for path in (self.network, self.query):
            try:
                digest.update(hashlib.sha256(path.read_bytes()).digest())
            except OSError:
                digest.update(str(path).encode())
        return digest.hexdigest()


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
        instances.append(Instance(cells[0], cells[1], limit, path.parent))
    if not instances:
        raise InputError(f"{path} has no instances: one per line, network,property,seconds")
    return instances


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1e9 else None


class Table:
    """The verdicts on disk, one row per instance, written after every one; what is there already is not done again."""

    def __init__(self, path: Path, overwrite: bool) -> None:
        self.path = path
        files.check_writable(path)
        known = files.check_replaceable(path, lambda there: _is_table(there), overwrite, OTHER_TABLE)
        there = files.content(path).decode("utf-8", "replace") if known else ""
        rows = list(csv.DictReader(io.StringIO(there))) if _is_table(there.encode()) else []
        self.rows: list[dict[str, Any]] = [{"inference": "real", **row} for row in rows]

    def find(self, instance: Instance, inference: str) -> dict[str, Any] | None:
        """The row of an instance that has a verdict already."""
        digest = instance.digest()
        for row in self.rows:
            same = row["sha256"] == digest and row["limit"] == repr(instance.limit) and row["inference"] == inference
            if same and (row["onnx"], row["vnnlib"]) == (instance.onnx, instance.vnnlib) and row["result"] != ERROR:
                return row
        return None

    def add(self, row: dict[str, Any]) -> None:
        """Takes the place of an earlier row about the same instance."""
        same = ("onnx", "vnnlib", "limit", "inference")
        self.rows = [other for other in self.rows if any(other[name] != row[name] for name in same)]
        self.rows.append(row)
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        files.write(self.path, text.getvalue().encode())


def _is_table(content: bytes) -> bool:
    return content.splitlines()[:1] in ([",".join(columns).encode()] for columns in (COLUMNS, OLDER))


def run(
    instances: list[Instance], table: Table, time_limit: float | None, seed: int, inference: str = "real"
) -> Iterator[dict[str, Any]]:
    """The row of every instance, from the table or found now, in order; time_limit: at most so many seconds each."""
    find_inference(inference)
    for instance in instances:
        row = table.find(instance, inference)
        if row is None:
            row = _row(instance, time_limit, seed, inference)
            table.add(row)
        yield row


def _row(instance: Instance, time_limit: float | None, seed: int, inference: str) -> dict[str, Any]:
    started = time.monotonic()
    row = dict.fromkeys(COLUMNS, "") | {
        "onnx": instance.onnx, "vnnlib": instance.vnnlib, "limit": repr(instance.limit), "sha256": instance.digest(),
        "inference": inference,
    }  # fmt: skip
    limit = instance.limit if time_limit is None else min(instance.limit, time_limit)
    try:
        verdict = verify(instance.network, instance.query, time_limit=limit, inference=inference, seed=seed)
    except RelucertError as error:
        return row | {"result": ERROR, "reason": str(error), "seconds": f"{time.monotonic() - started:.3f}"}
    return row | {
        "result": word(verdict),
        "seconds": f"{verdict.seconds:.3f}",
        "nodes": str(verdict.nodes),
        "method": verdict.method or "",
        "reason": verdict.reason or "",
    }
