"""Proofs, in exact integers, that a symmetric matrix is positive semidefinite.

A Cholesky factor in float64 is only a proposal: rounded to integers it is L, and what counts is that the remainder
`matrix - L L'`, exact, is diagonally dominant with a diagonal that is not negative, and so semidefinite, as L L' is.
"""

from __future__ import annotations

import numpy as np
from flint import fmpz, fmpz_mat

LARGEST = 1 << 900  # entries below it are numbers in float64
SHIFT = 2.0**-28  # share of the diagonal that is left to the remainder


def is_semidefinite(matrix: fmpz_mat, bits: int) -> bool:
    """Whether it is proven for a symmetric matrix of integers over 2**(2 * bits), whose entries should be near 1."""
    rows = matrix.tolist()
    if not all(0 < row[index] < LARGEST for index, row in enumerate(rows)):
        return False
    if any(abs(entry) >= LARGEST for row in rows for entry in row):
        return False
    unit = 2.0 ** (-2 * bits)
    numbers = np.array([[float(int(entry)) for entry in row] for row in rows]) * unit
    try:
        factor = np.linalg.cholesky(numbers - np.diag(SHIFT * np.diag(numbers)))
    except np.linalg.LinAlgError:
        return False
    if not np.isfinite(factor).all():
        return False
    whole = np.rint(factor * 2.0**bits).tolist()
    proposed = fmpz_mat([[fmpz(int(entry)) for entry in row] for row in whole])
    return _is_dominant(matrix - proposed * proposed.transpose())


def _is_dominant(matrix: fmpz_mat) -> bool:
    """Whether every diagonal entry is at least the sum of the absolute values of the others of its row."""
    return all(2 * row[index] >= sum(map(abs, row), fmpz(0)) for index, row in enumerate(matrix.tolist()))
