"""Reads the query of a file, of either version of VNN-LIB."""

from __future__ import annotations

import gzip
import os
import re
import zlib

from relucert.common.checks import checked_path
from relucert.errors import InputError, LoadError
from relucert.verification.specification import version_one
from relucert.verification.specification.query import Query

MOST_BYTES = 2**28  # of the text, also where a file is compressed
TWO = re.compile(r"^\s*\(\s*(vnnlib-version|declare-network)\b", re.MULTILINE)


def read(path: str | os.PathLike[str]) -> Query:
    """The query of a .vnnlib or .vnnlib.gz file."""
    place = checked_path(path, "a property")
    try:
        with place.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        with gzip.open(place, "rb") if packed else place.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise LoadError(f"can't read the property {place}: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > MOST_BYTES:
        raise LoadError(f"the property {place} is longer than {MOST_BYTES >> 20} MB")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise LoadError(f"the property {place} is no text") from None
    try:
        if TWO.search(text):
            from relucert.verification.specification import version_two

            return version_two.parse(text)
        return version_one.parse(text)
    except (LoadError, InputError) as error:
        raise type(error)(f"{place}: {error}") from None
