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
    file_path = checked_path(path, "a property")
    try:
        with file_path.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        with gzip.open(file_path, "rb") if packed else file_path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise LoadError(f"can't read the property {file_path}: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > MOST_BYTES:
        raise LoadError(f"the property {file_path} is longer than {MOST_BYTES >> 20} MB")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise LoadError(f"the property {file_path} is no text") from None
    try:
        if TWO.search(text):
            from relucert.verification.specification import version_two

            return version_two.parse(text)
        return version_one.parse(text)
    except (LoadError, InputError) as error:
        raise type(error)(f"{file_path}: {error}") from None
