"""Checks of names and numbers that users choose."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from numbers import Integral
from pathlib import Path

from relucert.errors import InputError

LONGEST = 80  # characters of a value in a message


def shown(value: object) -> str:
    """A value in a message: its representation, cut short, or for an array or a tensor what it holds."""
    shape = getattr(value, "shape", None)
    if hasattr(value, "dtype") and shape:
        return f"{type(value).__name__} of {value.dtype}, shape {tuple(shape)}"
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"an object of {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def checked_path(given: object, what: str) -> Path:
    """A path that a user gives for `what`, as in "a proof"."""
    if isinstance(given, str | os.PathLike) and isinstance(name := os.fspath(given), str) and "\0" not in name:
        return Path(name)
    raise InputError(f"{what} needs the path of a file, not {shown(given)}")


def checked_shape(given: object) -> tuple[int, ...]:
    """The shape of one image that a user gives."""
    if isinstance(given, list | tuple) and given:
        sizes = tuple(int(size) for size in given if not isinstance(size, bool) and isinstance(size, Integral))
        if len(sizes) == len(given) and min(sizes) > 0:
            return sizes
    raise InputError(f"input_shape must be a tuple of positive integers, without the batch, not {shown(given)}")


def check_callable(name: str, given: object) -> None:
    if given is not None and not callable(given):
        raise InputError(f"{name} is a function to call, not {shown(given)}")


def check_name(what: str, given: object, known: Iterable[str]) -> None:
    """Refuses what is none of the known names; `what` they are names of, as in "method"."""
    names = list(known)
    if not isinstance(given, str) or given not in names:
        raise InputError(f"unknown {what} {shown(given)}; known are {', '.join(names)}")


def check_number(name: str, value: object, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise InputError(f"the {name} must be a number from {least:g} to {most:g}, not {shown(value)}")


def check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= sys.float_info.max:
        raise InputError(f"the {name} must be a finite number > 0, not {shown(value)}")


def check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"the {name} must be a whole number from {least} to {most}, not {shown(value)}")
