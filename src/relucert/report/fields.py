"""Checked values of JSON objects; each raises ValueError, saying what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from relucert.report.domain import LARGEST

Value = TypeVar("Value")


def number(row: Mapping[str, Any], key: str) -> float | None:
    """A number that is not negative, "inf" included, or None."""
    value = row.get(key)
    if value is None:
        return None
    if value in ("inf", math.inf):
        return math.inf
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError(f"{key} is {value!r}")
    if value > LARGEST:
        raise ValueError(f"{key} is too large")
    return float(value)


def finite(row: Mapping[str, Any], key: str) -> float:
    """A finite number that is not negative."""
    value = number(row, key)
    if value is None or math.isinf(value):
        raise ValueError(f"{key} is {row.get(key)!r}")
    return value


def whole(row: Mapping[str, Any], key: str) -> int:
    """A whole number from 0 on."""
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError(f"{key} is {value!r}")
    return value


def text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}")
    return value


def optional(read: Callable[[Mapping[str, Any], str], Value], row: Mapping[str, Any], key: str) -> Value | None:
    """The value as `read` has it; None where the row has none."""
    return None if row.get(key) is None else read(row, key)


def norm(row: Mapping[str, Any]) -> str:
    """The row's norm in few letters: "inf", "2", "1.5"."""
    value = number(row, "norm")
    if value is None or value < 1:
        raise ValueError(f"norm is {row.get('norm')!r}")
    return repr(value).removesuffix(".0")
