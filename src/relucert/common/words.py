"""Numbers in sentences."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A number of things, as in "1 image" and "2 images"; plural: of a noun that takes more than an s."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
