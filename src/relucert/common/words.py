"""Numbers and lists in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """A number of things, as in "1 image" and "2 images"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence, as in "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
