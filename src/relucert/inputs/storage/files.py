"""Atomic replacement of files: content is written to a temporary file beside the path, which then replaces it."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from relucert.errors import InputError

OTHER = "results of another question, or something else"
ABANDONED = 3600  # seconds without a change, after which a temporary file counts as left behind


def write(path: Path, content: bytes) -> None:
    """Replaces a file atomically: after a crash, or for a reader, it has the old content or the new, never a part."""
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise _unwritable(path, error) from error


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Opens a temporary file that replaces the path at the end; after an error or an interruption it is removed."""
    place = path.resolve()  # a symbolic link is followed, not replaced
    temporary = _temporary(place)
    try:
        with temporary.open("wb") as file:
            yield file
        os.replace(temporary, place)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def sweep(path: Path) -> None:
    """Removes temporary files that killed processes left beside the path."""
    place = path.resolve()
    for temporary in place.parent.glob(f".{place.name}.*.tmp"):
        with suppress(OSError):
            if time.time() - temporary.stat().st_mtime > ABANDONED:
                temporary.unlink()


def check_writable(path: Path) -> None:
    """Raises InputError where `write` would fail, without touching an existing file."""
    place = path.resolve()
    if not place.parent.is_dir():
        raise InputError(f"can't write {path}: there is no folder {place.parent}")
    if place.exists() and not place.is_file():
        raise InputError(f"can't write {path}: it is not a regular file")
    temporary = _temporary(place)
    try:
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise _unwritable(path, error) from error


def content(path: Path) -> bytes:
    """What is there already; nothing where there is no file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InputError(f"can't read {path}, which would be replaced: {error.strerror or error}") from error


def check_replaceable(path: Path, same: Callable[[bytes], bool], overwrite: bool, otherwise: str = OTHER) -> bool:
    """Whether there is something already; raises InputError where that is not the same unless it may be replaced.

    same: tells by a file's content whether it holds what is about to be found once more; otherwise: what it holds else.
    """
    there = content(path)
    if not there.strip():
        return False
    if not overwrite and not same(there):
        raise InputError(
            f"{path} holds {otherwise}: name another file, or replace it with --overwrite (in Python, overwrite=True)"
        )
    return True


def free_name(path: Path) -> Path:
    """A free name beside a file: for what is to replace it once it is complete."""
    numbers = itertools.count(2)
    place = path.with_name(f"{path.stem}.partial{path.suffix}")
    while place.exists():
        place = path.with_name(f"{path.stem}.partial-{next(numbers)}{path.suffix}")
    return place


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f"can't write {path}: {error.strerror or error}")


def _temporary(place: Path) -> Path:
    return place.with_name(f".{place.name}.{os.getpid()}-{threading.get_ident()}.tmp")
