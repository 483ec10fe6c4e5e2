"""Files that are whole at every moment: written beside their place and moved into it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from relucert.errors import InputError


def write(path: Path, content: bytes) -> None:
    """Replaces a file at once: a reader, or a crash, sees the old content or the new, never a part."""
    place = path.resolve()  # through a symbolic link, not over it
    temporary = _beside(place)
    try:
        temporary.write_bytes(content)
        os.replace(temporary, place)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def check_writable(path: Path) -> None:
    """Raises InputError where `write` would fail, without touching a file that is there."""
    place = path.resolve()
    if not place.parent.is_dir():
        raise InputError(f"can't write {path}: there is no folder {place.parent}")
    if place.exists() and not place.is_file():
        raise InputError(f"can't write {path}: it is not a regular file")
    temporary = _beside(place)
    try:
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise InputError(f"can't write {path}: {error.strerror}") from error


def _beside(place: Path) -> Path:
    return place.with_name(f".{place.name}.{os.getpid()}.tmp")
