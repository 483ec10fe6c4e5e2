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


def _kind(test: Callable[[Any], bool]) -> Callable[[Any], Any]:
    def take(given: Any) -> Any:
        if not test(given):
            raise TypeError
        return given

    return take


as_list = _kind(lambda given: isinstance(given, list))
as_text = _kind(lambda given: isinstance(given, str))
as_whole = _kind(lambda given: type(given) is int)


def as_number(given: Any) -> float:
    if type(given) not in (int, float) or not math.isfinite(given):
        raise TypeError
    return float(given)


def as_numbers(given: Any) -> list[float]:
    return [as_number(number) for number in as_list(given)]
