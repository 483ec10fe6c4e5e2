"""The record of a run on disk, kept up to date while the run goes on."""

from __future__ import annotations

import csv
import io
import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from typing_extensions import Self

from relucert.common.closing import Closing
from relucert.errors import InputError
from relucert.inputs.storage import files

INTERVAL = 1.0  # seconds between savings, at least
PAUSE_FACTOR = 20.0  # pause after a saving, over the time that it took: files of long runs are large
MARK = 16  # digits of a question's SHA-256 in every row of a table

Row = Mapping[str, Any]


class RunFile(Closing):
    """Writes a run's answers as JSON, CSV or both, so that whatever stops the run leaves readable files.

    A context manager: a thread saves the rows about once a second, large files less often, and once more on leaving.
    The files say `complete` only after `finish`.

    Files that hold anything but results of the same question, told by the head's `question`, are refused unless
    `overwrite`. The answers are also in a store, from which a run that goes on takes them up at once.
    """

    def __init__(
        self,
        head: Mapping[str, Any],
        json_path: Path | None,
        csv_path: Path | None,
        interval: float = INTERVAL,
        overwrite: bool = False,
    ) -> None:
        self._head, self._began = dict(head), time.monotonic()
        self._json_path, self._csv_path = json_path, csv_path
        self._interval = interval
        self._rows: list[Row] = []
        self._lines: list[str] = []
        self._saved = -1
        self._complete = False
        self._lock = threading.Lock()
        self._leaving = threading.Event()
        self._saver = threading.Thread(target=self._save_now_and_then, name="relucert-runfile", daemon=True)
        mark = self._mark.encode()
        replaced = [
            files.check_replaceable(path, lambda content: _is_same(content, mark), overwrite)
            for path in (json_path, csv_path)
            if path is not None
        ]
        self._goes_on = all(replaced) and not overwrite  # with what the files show until the store's answers are here

    @property
    def _mark(self) -> str:
        """The beginning of the question, by which a table is recognised."""
        return str(self._head.get("question", ""))[:MARK]

    def __enter__(self) -> Self:
        if not self._goes_on:
            self.save()
        self._saver.start()
        return self

    def add(self, row: Row) -> None:
        """Adds an answer; numbers that JSON can't express are refused, except infinities ("inf")."""
        plain = {name: _plain(value) for name, value in row.items()}
        self._lines.append(json.dumps(plain, allow_nan=False))
        self._rows.append(plain)

    def __len__(self) -> int:
        """How many answers are on record."""
        return len(self._rows)

    def finish(self) -> None:
        """Marks the run as complete: every answer is there."""
        self._complete = True

    def save(self) -> None:
        """Writes the answers so far."""
        with self._lock:
            count = len(self._rows)
            if self._json_path is not None:
                files.write(self._json_path, self._json(count).encode())
            if self._csv_path is not None:
                mark = {"question": self._mark} if self._mark else {}
                files.write(self._csv_path, table([{**row, **mark} for row in self._rows[:count]]).encode())
            self._saved = count

    def close(self) -> None:
        self._leaving.set()
        self._saver.join()
        self.save()

    def _save_now_and_then(self) -> None:
        pause = self._interval
        while not self._leaving.wait(pause):
            if len(self._rows) > self._saved:
                started = time.monotonic()
                with suppress(InputError):  # the last saving reports what is wrong
                    self.save()
                pause = max(self._interval, PAUSE_FACTOR * (time.monotonic() - started))

    def _json(self, count: int) -> str:
        """The head, then one line per answer."""
        seconds = round(time.monotonic() - self._began, 3)
        head = json.dumps({**self._head, "seconds": seconds, "complete": self._complete}, indent=2, allow_nan=False)
        lines = ",\n".join("    " + line for line in self._lines[:count])
        results = f"[\n{lines}\n  ]" if count else "[]"
        return f'{head.removesuffix("}").rstrip()},\n  "results": {results}\n}}\n'


def has_answers(path: Path) -> bool:
    """Whether a file holds anything but a run that had no answer yet."""
    content = files.content(path)
    return bool(content.strip()) and not _is_empty(content)


def _is_same(content: bytes, mark: bytes) -> bool:
    """Whether a file's content is about the question of this mark, or a run that had no answer yet."""
    return (bool(mark) and mark in content) or _is_empty(content)


def _is_empty(content: bytes) -> bool:
    record = read_json(content)
    return isinstance(record, dict) and "relucert" in record and record.get("results") == []


def read_json(content: bytes) -> Any:
    """What a file's content says; None where it is no JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def write_json(path: Path, content: Any) -> None:
    files.write(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def check_list(path: Path | None, is_such: Callable[[Any], bool], overwrite: bool) -> None:
    """Refuses a file that can't be written, or that holds something else than a list for programs like this one."""
    if path is not None:
        files.check_writable(path)
        otherwise = "something else than such a list"
        files.check_replaceable(path, lambda there: is_such(read_json(there)), overwrite, otherwise)


def write_table(path: Path, rows: Sequence[Row], overwrite: bool) -> None:
    """Writes rows as CSV; a file is replaced where it holds these answers or the first of them, or with `overwrite`."""
    content = table(rows)
    files.check_replaceable(path, lambda existing: _is_prefix(existing, content), overwrite)
    files.write(path, content.encode())


def _is_prefix(existing: bytes, content: str) -> bool:
    """Whether the existing content is this table or its first rows, whatever the seconds in them."""
    try:
        before, now = _untimed(existing.decode()), _untimed(content)
    except (UnicodeDecodeError, csv.Error):
        return False
    return now[: len(before)] == before


def _untimed(content: str) -> list[list[str]]:
    """The header and the rows of a table, but for the seconds."""
    header, *rows = list(csv.reader(io.StringIO(content))) or [[]]
    timed = header.index("seconds") if "seconds" in header else len(header)
    return [header, *(row[:timed] + row[timed + 1 :] for row in rows)]


def table(rows: Sequence[Row]) -> str:
    """Rows as CSV, with a column for every key of any of them; nested objects, such as pictures, are left out."""
    flat = [{name: _cell(_plain(value)) for name, value in row.items() if not isinstance(value, dict)} for row in rows]
    text = io.StringIO()
    if flat:
        names = list(dict.fromkeys(name for row in flat for name in row))
        writer = csv.DictWriter(text, fieldnames=names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
    return text.getvalue()


def _plain(value: Any) -> Any:
    """The value as JSON can express it: infinities, also in lists such as the ends of a box, become words."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def _cell(value: Any) -> Any:
    """The value as a CSV cell: truth values, numbers and lists as in JSON; absence is empty."""
    return json.dumps(value) if isinstance(value, (bool, float, list)) else value
