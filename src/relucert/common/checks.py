"""Checks of names and numbers that users choose."""

from __future__ import annotations

import os
import re
import sys
from numbers import Integral
from pathlib import Path

from relucert.errors import InputError

LONGEST = 80  # characters of a value in a message
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}  # bytes, of a memory budget


def shown(value: object) -> str:
    """A value in a message: its representation, cut short; of an array or a tensor, type, dtype and shape."""
    shape = getattr(value, "shape", None)
    if hasattr(value, "dtype") and shape:
        return f"{type(value).__name__} of {value.dtype}, shape {tuple(shape)}"
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"an object of {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def checked_path(path: object, purpose: str) -> Path:
    """A user's path of a file; purpose: what the file is for, as in "a proof"."""
    if isinstance(path, str | os.PathLike) and isinstance(name := os.fspath(path), str) and "\0" not in name:
        return Path(name)
    raise InputError(f"{purpose} needs the path of a file, not {shown(path)}")


def checked_shape(shape: object) -> tuple[int, ...]:
    """A user's shape of one image."""
    if isinstance(shape, list | tuple) and shape:
        sizes = tuple(int(size) for size in shape if not isinstance(size, bool) and isinstance(size, Integral))
        if len(sizes) == len(shape) and min(sizes) > 0:
            return sizes
    raise InputError(f"input_shape must be a tuple of positive integers, without the batch, not {shown(shape)}")


def check_callable(name: str, function: object) -> None:
    if function is not None and not callable(function):
        raise InputError(f"{name} is a function to call, not {shown(function)}")


def check_number(name: str, value: object, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise InputError(f"the {name} must be a number from {least:g} to {most:g}, not {shown(value)}")


def check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= sys.float_info.max:
        raise InputError(f"the {name} must be a finite number > 0, not {shown(value)}")


def check_seed(seed: object) -> None:
    check_whole("seed", seed, 0, 2**63 - 1)


def check_time_limit(seconds: float | None) -> None:
    """Refuses what is no number of seconds; None: as long as it takes."""
    if seconds is not None:
        check_number("time limit", seconds, 0, 1e9)


def parse_memory(memory: int | str) -> int:
    """A number of bytes, or a text such as "512MB", "2G" or "1.5GiB", whose units are powers of 1024."""
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*(\d{1,20}(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", memory, re.IGNORECASE | re.ASCII)
        size = int(float(match[1]) * UNITS[match[2].upper()]) if match else 0
        if not 1 <= size < 2**63:
            raise InputError(f"a memory budget is a size such as 512M or 1.5G, not {shown(memory)}")
        return size
    check_whole("memory budget", memory, 1, 2**63 - 1)
    return memory


def check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"the {name} must be a whole number from {least} to {most}, not {shown(value)}")
