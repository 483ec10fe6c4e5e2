"""A proof file as JSON, within limits that hold while it is read, and its entries, each of the right kind or refused.

A few bytes may unpack to gigabytes.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relucert.errors import LoadError


class Rejected(Exception):  # noqa: N818 - the answer to a question, and no error of the user's
    """A file that proves nothing; the message says why."""


def require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Rejected(otherwise)


def _checked(test: Callable[[Any], bool]) -> Callable[[Any], Any]:
    def take(entry: Any) -> Any:
        if not test(entry):
            raise TypeError
        return entry

    return take


as_list = _checked(lambda entry: isinstance(entry, list))
as_text = _checked(lambda entry: isinstance(entry, str))
as_whole = _checked(lambda entry: type(entry) is int)


def as_number(entry: Any) -> float:
    if type(entry) not in (int, float) or not math.isfinite(entry):
        raise TypeError
    return float(entry)


def as_numbers(entry: Any) -> list[float]:
    return [as_number(number) for number in as_list(entry)]


MOST_BYTES = 2**27  # of a file, once it is unpacked
BYTES_PER_NUMBER = 16  # a file of that size may have this share of its bytes in numbers, and in objects and lists
BYTES_PER_LIST = 128

GZIP = b"\x1f\x8b"
UNREADABLE = (ValueError, EOFError, OSError, zlib.error, RecursionError)  # what content that is no JSON may raise


def read_document(path: Path, most_bytes: int) -> Any:
    """What a file says; raises LoadError where it can't be read, and Rejected where it is no JSON or too large."""
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise LoadError(f"can't read {path}: {error.strerror}") from error
    try:
        return document_of(content, most_bytes)
    except UNREADABLE as error:
        raise Rejected(f"it is no proof file: {' '.join(str(error).split()) or type(error).__name__}") from None


def document_of(content: bytes, most_bytes: int = MOST_BYTES) -> Any:
    """What the bytes of a file say, which may be compressed; raises one of `UNREADABLE`, or Rejected."""
    with gzip.GzipFile(fileobj=io.BytesIO(content)) if content[:2] == GZIP else io.BytesIO(content) as file:
        plain = file.read(most_bytes + 1)
    larger = f"it has more than {most_bytes:,} bytes{' once it is unpacked' if content[:2] == GZIP else ''}"
    require(len(plain) <= most_bytes, f"{larger}: --largest SIZE allows more")
    _check_count("numbers", plain.count(b","), most_bytes // BYTES_PER_NUMBER)
    _check_count("objects and lists", plain.count(b"{") + plain.count(b"["), most_bytes // BYTES_PER_LIST)
    return json.loads(plain.decode(), object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_finite)


def _check_count(subject: str, count: int, most: int) -> None:
    """What is parsed takes far more memory than its text."""
    require(count <= most, f"it has {count:,} {subject}, more than {most:,}: --largest SIZE allows more")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a key stands twice")
    return entries


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large")
    return value
