"""Entries of a document, each of the right kind or refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


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
