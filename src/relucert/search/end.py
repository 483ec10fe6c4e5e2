"""The end of a radius search."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SearchEnd:
    """Result of the search for one question.

    Attributes:
        radius: The largest that passed; None where none did, infinite where it contains all valid inputs.
        weakest: The row of the least margin there.
        closed: Whether the search reached its tolerance.
        method: The name of the method that proved it: the one asked for, or a weaker one that it started from.
    """

    question: int
    radius: float | None
    weakest: int
    evaluations: int
    closed: bool
    method: str
