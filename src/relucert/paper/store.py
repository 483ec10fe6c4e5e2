"""Results on disk, one line per answer, written as they come: a stopped run loses at most the current image."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import relucert
from relucert.comparison.methods import Entry, Kind
from relucert.errors import InputError
from relucert.report.older import upgraded
from relucert.storage.cache import cache_directory

Key = tuple[str, str, str, str, str, float | None, str, int]  # the values of NAMES
# pixels: a checksum of the image; limit: the budget, for methods whose answers depend on it
NAMES = ("network", "digest", "norm", "target", "method", "limit", "pixels", "image")
Course = tuple[str, str, str, str]  # the values of COURSE: what is asked of one method, whatever the image
COURSE = ("network", "digest", "norm", "method")
Tell = Callable[[str], None]


class Store:
    """The answers of one table with one effort, from this run and earlier ones, and which methods were too slow.

    The first line says what the file is. A line that was cut off, or that is not ours, is told and left out; a file
    of another version is told and set aside.
    """

    def __init__(self, table: str, settings: Mapping[str, Any], tell: Tell) -> None:
        self._head = {"relucert": relucert.__version__, "table": table, "settings": dict(settings)}
        mark = hashlib.sha256(json.dumps(self._head["settings"], sort_keys=True).encode()).hexdigest()[:12]
        self.path = cache_directory("paper") / f"{table}-{mark}.jsonl"
        self._entries: dict[Key, Entry] = {}
        self._slow: dict[Course, tuple[float, str]] = {}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._read(tell)
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            if not self.path.stat().st_size:
                self._write(self._head)
        except OSError as error:
            raise InputError(f"can't keep results in {self.path}: {error.strerror or error}") from error

    def get(self, key: Key) -> Entry | None:
        return self._entries.get(key)

    def add(self, key: Key, entry: Entry) -> None:
        """Stores an answer; once this returns it is in the file, even if the process is killed."""
        self._entries[key] = entry
        self._keep(NAMES, key, entry.to_json())

    def too_slow(self, course: Course, budget: float) -> str | None:
        """What was noted where the method was given at least as many seconds, and they were not enough."""
        seconds, reason = self._slow.get(course, (-1.0, ""))
        return reason if seconds >= budget else None

    def note_slow(self, course: Course, budget: float, reason: str) -> None:
        """Stores that a method needs more than this many seconds."""
        self._slow[course] = (budget, reason)
        self._keep(COURSE, course, {"too_slow": budget, "reason": reason})

    def close(self) -> None:
        os.close(self._file)

    def _keep(self, names: Sequence[str], key: Sequence[object], row: Mapping[str, Any]) -> None:
        try:
            self._write({**dict(zip(names, key, strict=True)), "row": row, "sum": _checksum(row)})
        except OSError as error:
            raise InputError(f"can't keep results in {self.path}: {error.strerror or error}") from error

    def _write(self, content: Mapping[str, Any]) -> None:
        line = (json.dumps(content, allow_nan=False) + "\n").encode()
        while line:
            line = line[os.write(self._file, line) :]

    def _read(self, tell: Tell) -> None:
        if not self.path.exists():
            return
        content = self.path.read_bytes()
        whole, ended, rest = content.rpartition(b"\n")
        if rest:
            tell(f"{self.path}: the last line was cut off; that answer is found again")
            os.truncate(self.path, len(whole) + len(ended))
        if not ended:
            return
        first, *others = whole.split(b"\n")
        head = _object(first)
        if head != self._head:
            version = head.get("relucert") if head else None
            whose = f"of relucert {version}" if isinstance(version, str) else "not of ours"
            aside = self.path.with_suffix(".old")
            os.replace(self.path, aside)
            tell(f"the stored results are {whose}: set aside as {aside}, starting anew")
            return
        damaged = sum(not self._take(_object(line)) for line in others)
        if damaged:
            tell(f"{self.path}: {damaged} lines are damaged and left out; those answers are found again")

    def _take(self, line: dict[str, Any] | None) -> bool:
        """Takes over what a line says; whether the line was a sound one."""
        try:
            assert line is not None
            if line["sum"] != _checksum(line["row"]):
                return False
            if "too_slow" in line["row"]:
                network, digest, norm, method = (str(line[name]) for name in COURSE)
                self._slow[network, digest, norm, method] = (float(line["row"]["too_slow"]), str(line["row"]["reason"]))
                return True
            key = tuple(line[name] for name in NAMES)
            entry = Entry(line["method"], Kind(line["row"]["kind"]), SimpleNamespace(**_read(line["row"])))
            amounts = (entry.lower, entry.upper, entry.figure, entry.answer.seconds)
            sound = all(value is None or (isinstance(value, (int, float)) and value >= 0) for value in amounts)
            if not sound or entry.answer.image != line["image"]:
                return False
            self._entries[key] = entry
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError):
            return False
        return True


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _checksum(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:12]


def _read(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row, as this version writes it, with the word for an infinite radius as a number; what failed is not stored."""
    return {"failed": False, **upgraded(row), **({"radius": math.inf} if row.get("radius") == "inf" else {})}
