"""What the values of options may look like; argparse turns the errors raised here into one line."""

from __future__ import annotations

import argparse
import math
import re

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

MOST_THREADS = 1024


def count(text: str) -> int:
    """A whole number >= 1."""
    if (value := whole(text)) is None or value < 1:
        raise argparse.ArgumentTypeError(f"a whole number >= 1 is needed, not {text!r}")
    return value


def threads(text: str) -> int:
    if (value := count(text)) > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"at most {MOST_THREADS} threads, not {text}")
    return value


def seed(text: str) -> int:
    """A whole number of 63 bits."""
    if (value := whole(text)) is None or value >= 2**63:
        raise argparse.ArgumentTypeError(f"a whole number from 0 to 2^63 - 1 is needed, not {text!r}")
    return value


def memory(text: str) -> int:
    """Bytes, as in 512M, 1.5G or 1000000."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text, re.IGNORECASE | re.ASCII)
    size = int(float(match[1]) * UNITS[match[2].upper()]) if match else 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"a size such as 512M or 1.5G is needed, not {text!r}")
    return size


def radius(text: str) -> float:
    """A finite number >= 0."""
    value = number(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"a radius is a finite number >= 0, not {text!r}")
    return value


def seconds(text: str) -> float:
    """A finite number >= 0."""
    value = number(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"a time is a finite number of seconds >= 0, not {text!r}")
    return value


def names(text: str) -> list[str]:
    """Names with commas between them."""
    listed = [name.strip() for name in text.split(",")]
    if not all(listed):
        raise argparse.ArgumentTypeError(f"names with commas between them are needed, not {text!r}")
    return listed


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number is needed, not {text!r}") from None


def whole(text: str) -> int | None:
    """The number that ASCII digits spell."""
    return int(text) if text.isascii() and text.isdecimal() else None
