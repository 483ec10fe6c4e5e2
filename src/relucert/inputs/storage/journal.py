"""A file of records that only grows: each is checksummed, and in the file once `append` returns.

Not SQLite, which was measured beside it: its pages have no checksums, so a damaged byte goes unnoticed (here it costs
one record, and is told), a safe commit per answer takes 6 to 30 ms (here 0.06 ms), and its fast mode keeps two more
files beside the store. The checksums, the codec and the recognition of other questions, most of the code, would stay.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from relucert.common.closing import Closing
from relucert.errors import StoreError

DIGITS = 16  # of the checksum at the beginning of each line
TORN = re.compile(rb"[0-9a-f]{0,16}|[0-9a-f]{16} .*", re.DOTALL)  # the beginning of a line that was cut off
SYNCED = 1.0  # seconds after which appended records are also forced onto the disk

Record = dict[str, Any]
Tell = Callable[[str], None]


class Journal(Closing):
    """The records of a file, one per line, and an open end for more; locked, so that two runs can't share it.

    A last line that was cut off is dropped, a damaged line in the middle is left out; both are told.

    Attributes:
        records: Those that were there, in order.
        damaged: How many lines could not be read.
    """

    def __init__(self, path: Path, tell: Tell) -> None:
        self.path = path
        self._synced = time.monotonic()
        self._end, self._torn = 0, False  # where the next record goes, and whether something is to be cut away there
        try:
            path.touch()
            self._file = path.open("r+b", buffering=0)
            mine = locked(self._file.fileno())
        except OSError as error:
            raise self._refusal(error) from error
        try:
            if not mine:
                raise StoreError(f"{path} is in use by another run: wait for its end, or name another file")
            self.records, self.damaged = self._read(tell)
        except BaseException:
            self._file.close()
            raise

    def append(self, records: Sequence[Record]) -> None:
        """Adds records in one step: after a kill the file has all of them, or all whole ones up to the one cut off."""
        lines = b"".join(_line(record) for record in records)
        try:
            self.mend()
            self._write(lines)
            if time.monotonic() - self._synced > SYNCED:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()
        except BaseException as error:  # also that the time of a method is up
            self._file.truncate(self._end)  # no torn record before those that may still follow
            if isinstance(error, OSError):
                raise self._refusal(error) from error
            raise
        self._end += len(lines)

    def mend(self) -> None:
        """Cuts away a torn record; not at once, since a file may turn out to belong to another run."""
        if self._torn:
            self._file.truncate(self._end)
            self._torn = False

    def restart(self) -> None:
        """Drops everything."""
        self._file.truncate(0)
        self._file.seek(0)
        self._end, self._torn, self.records, self.damaged = 0, False, [], 0

    def close(self) -> None:
        if not self._file.closed:
            with suppress(OSError):  # what can't be synced is in the file all the same
                os.fsync(self._file.fileno())
        self._file.close()

    def _write(self, lines: bytes) -> None:
        self._file.seek(self._end)
        while lines:
            lines = lines[self._file.write(lines) :]

    def _read(self, tell: Tell) -> tuple[list[Record], int]:
        try:
            content = self._file.read()
            whole, ended, tail = content.rpartition(b"\n")
        except OSError as error:
            raise self._refusal(error) from error
        self._end, self._torn = len(whole) + len(ended), bool(tail)
        lines = whole.split(b"\n") if ended else []
        if tail and TORN.fullmatch(tail):
            tell(f"{self.path}: the last record was cut off; that answer is found again")
        elif tail:
            lines.append(tail)
        records = [record for line in lines if (record := _record(line)) is not None]
        damaged = len(lines) - len(records)
        if damaged:
            tell(f"{self.path}: {damaged} damaged {'record is' if damaged == 1 else 'records are'} left out")
        return records, damaged

    def _refusal(self, error: OSError) -> StoreError:
        return StoreError(f"can't keep answers in {self.path}: {error.strerror or error}")


def _line(record: Record) -> bytes:
    text = json.dumps(record, allow_nan=False).encode()
    return _checksum(text) + b" " + text + b"\n"


def _record(line: bytes) -> Record | None:
    """The record of a line; None where its checksum or its form is wrong."""
    checksum, _, text = line.partition(b" ")
    if checksum != _checksum(text):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:DIGITS].encode()


def locked(file: int) -> bool:
    """Locks an open file until it is closed, however the process ends; False where another has it."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        import msvcrt

        try:
            os.lseek(file, 2**62, os.SEEK_SET)  # beyond the end: what is locked there can't be read by others
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        os.lseek(file, 0, os.SEEK_SET)
    else:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
