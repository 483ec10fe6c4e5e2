"""Truths about matrices in rational arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def truly_semidefinite(matrix: Sequence[Sequence[Fraction]]) -> bool:
    """Whether a symmetric matrix is positive semidefinite, by elimination."""
    rows = list(matrix)
    while rows:
        pivot = rows[0]
        if pivot[0] < 0 or (pivot[0] == 0 and any(pivot)):
            return False
        rows = [
            [
                entry - (row[0] * other / pivot[0] if pivot[0] else 0)
                for entry, other in zip(row[1:], pivot[1:], strict=True)
            ]
            for row in rows[1:]
        ]
    return True
