"""Atomic replacement of files, by a temporary file beside the path, and the location of the user's cache."""

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

UNRELATED = "results of another question, or something else"
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
    target = path.resolve()  # a symbolic link is followed, not replaced
    temporary = _temporary(target)
    try:
        with temporary.open("wb") as file:
            yield file
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def sweep(path: Path) -> None:
    """Removes temporary files that killed processes left beside the path."""
    target = path.resolve()
    for temporary in target.parent.glob(f".{target.name}.*.tmp"):
        with suppress(OSError):
            if time.time() - temporary.stat().st_mtime > ABANDONED:
                temporary.unlink()


def check_writable(path: Path) -> None:
    """Raises InputError where `write` would fail, without touching an existing file."""
    target = path.resolve()
    if not target.parent.is_dir():
        raise InputError(f"can't write {path}: there is no folder {target.parent}")
    if target.exists() and not target.is_file():
        raise InputError(f"can't write {path}: it is not a regular file")
    temporary = _temporary(target)
    try:
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise _unwritable(path, error) from error


def content(path: Path) -> bytes:
    """The content of a file; empty where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InputError(f"can't read {path}, which would be replaced: {error.strerror or error}") from error


def check_replaceable(path: Path, same: Callable[[bytes], bool], overwrite: bool, otherwise: str = UNRELATED) -> bool:
    """Whether a file exists already; raises InputError where it holds something else, unless it may be replaced.

    same: tells by a file's content whether it holds the results that are about to be written again; otherwise: what
    the error calls any other content.
    """
    existing = content(path)
    if not existing.strip():
        return False
    if not overwrite and not same(existing):
        raise InputError(
            f"{path} holds {otherwise}: name another file, or replace it with --overwrite (in Python, overwrite=True)"
        )
    return True


def free_name(path: Path) -> Path:
    """A free name beside a file, for its replacement until that is complete."""
    numbers = itertools.count(2)
    target = path.with_name(f"{path.stem}.partial{path.suffix}")
    while target.exists():
        target = path.with_name(f"{path.stem}.partial-{next(numbers)}{path.suffix}")
    return target


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f"can't write {path}: {error.strerror or error}")


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}.tmp")


VARIABLE = "XDG_CACHE_HOME"


def cache_directory(purpose: str) -> Path:
    """The folder of the user's cache for "data" or "networks"; it may not exist yet."""
    base = Path(os.environ.get(VARIABLE, ""))
    if not base.is_absolute():  # the XDG specification says to ignore relative paths
        try:
            base = Path.home() / ".cache"
        except RuntimeError as error:
            raise InputError(f"there is no home folder to keep a cache in: set {VARIABLE} to a folder") from error
    return base / "relucert" / purpose
