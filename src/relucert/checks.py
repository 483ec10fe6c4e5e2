"""Checks of numbers that users choose."""

from __future__ import annotations

import math

from relucert.errors import InputError


def check_number(name: str, value: object, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise InputError(f"the {name} must be a number from {least:g} to {most:g}, not {value!r}")


def check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise InputError(f"the {name} must be a finite number > 0, not {value!r}")


def check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"the {name} must be a whole number from {least} to {most}, not {value!r}")
