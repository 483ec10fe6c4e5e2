"""Proofs that a matrix is positive semidefinite. No factorisation is believed: its product is compared with the matrix.

If a matrix is `L L' + shift I + R`, its least eigenvalue is at least `shift - |R|`, whatever L is. So a Cholesky factor
of the matrix minus a shift is only a proposal, and what is proven is that R, rounding included, is below the shift.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from relucert.arithmetic.confined import SQUARED_TINY
from relucert.arithmetic.rigor import RIGOROUS, TINY
from relucert.common.deadline import check_time
from relucert.methods.quadratic.products import cholesky_seconds

BLOCK = 256  # columns of a factor that are multiplied at once


def is_semidefinite(matrix: Tensor) -> bool:
    """Whether it is proven that a symmetric matrix in float64 is positive semidefinite; only its lower half is read."""
    diagonal = matrix.diagonal()
    if not bool(((diagonal > 0) & diagonal.isfinite()).all()):
        return False
    # Powers of two on both sides change no digit and no sign of an eigenvalue. The diagonal is then between 1/2 and 2.
    powers = torch.from_numpy(np.ldexp(1.0, -(torch.frexp(diagonal).exponent.numpy() // 2)))
    scaled = matrix * powers * powers[:, None]
    size = len(matrix)
    shift = 4 * RIGOROUS.gamma(size + 2) * 2 * size
    shifted = scaled - shift * torch.eye(size, dtype=torch.float64)
    check_time(2 * cholesky_seconds(size))
    factor, failed = torch.linalg.cholesky_ex(shifted)
    factor = factor.tril()
    if int(failed) or not bool(factor.isfinite().all()):
        return False
    lost = TINY * max(1.0, float(powers.max()))  # by underflow of what was scaled
    return _distance(scaled, factor, shift) + lost <= shift * (1 - 1e-9)


def _distance(scaled: Tensor, factor: Tensor, shift: float) -> float:
    """An upper bound of the 2-norm of `scaled - factor factor' - shift`; NaN and infinity: none.

    The 2-norm is at most that of Frobenius. A product of rows of the factor errs by at most gamma times the product of
    their lengths, so all of them together by at most gamma times the sum of all squares.
    """
    size, squares = len(scaled), factor.new_zeros(())
    for first in range(0, size, BLOCK):
        check_time()
        last = min(size, first + BLOCK)
        rest = scaled[first:, first:last] - factor[first:, :last] @ factor[first:last, :last].T
        square = rest[: last - first]
        square -= shift * torch.eye(last - first, dtype=rest.dtype)
        squares = squares + square.tril().square().sum() + square.tril(-1).square().sum()
        squares = squares + 2 * rest[last - first :].square().sum()
    length = factor.square().sum()
    # The differences err relatively to themselves, and on the diagonal to the shift.
    rounding = RIGOROUS.gamma(size + 2) * length + RIGOROUS.gamma(2) * shift * size
    return float(RIGOROUS.above(squares.sqrt() + rounding, size * size + 8) + size * SQUARED_TINY)
