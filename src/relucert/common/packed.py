"""Files that may be gzipped."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from relucert.errors import LoadError

GZIP = b"\x1f\x8b"  # how a gzipped file begins


def packed_beside(path: Path) -> str:
    """What to say of a missing file that is there gzipped; nothing where it is not."""
    gzipped = path.with_name(f"{path.name}.gz")
    return f"; {gzipped.name} is there, which is read as it is" if gzipped.is_file() else ""


def content(path: Path, most: int) -> bytes:
    """The content of a file, unpacked where it is gzipped; raises OSError where it can't be read, and LoadError where
    it is damaged, or longer than `most` bytes."""
    try:
        with path.open("rb") as plain:
            packed = plain.read(len(GZIP)) == GZIP
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            read = file.read(most + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise LoadError(f"{path} is damaged, it can't be unpacked: {error}") from error
    if len(read) > most:
        raise LoadError(f"{path} is longer than {most >> 20} MB")
    return read
