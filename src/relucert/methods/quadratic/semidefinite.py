"""Proofs that a matrix is no longer than a number in the 2-norm, by a verified Cholesky factor.

If a symmetric matrix is `L L' + shift I + R`, its least eigenvalue is at least `shift - |R|`, whatever L is. So a
factor of the matrix minus a shift is only a proposal, and what is proven is that R, rounding included, is below the
shift. No factorisation and no eigenvalue routine is believed.

Matrices are block tridiagonal: those of convolutions are banded once neurons are ordered by their positions. A dense
matrix has one block.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relucert.arithmetic.confined import SQUARED_TINY
from relucert.arithmetic.rigor import RIGOROUS, TINY
from relucert.common.deadline import check_time
from relucert.methods.quadratic.matrices import Matrix

SPEED = 1.5e10  # products a second, about, of a core that is not alone
LEAST_BLOCK = 256
STRIPE = 256  # columns of a dense factor that are multiplied at once
FEW = 3  # blocks of the bandwidth below which a banded matrix is taken for a dense one


@dataclass(frozen=True, eq=False)
class BlockTridiagonal:
    """A symmetric matrix in float64: the blocks on its diagonal, of which only the lower halves are read, and those
    below it."""

    diagonal: list[Tensor]
    below: list[Tensor]

    @property
    def size(self) -> int:
        return sum(map(len, self.diagonal))

    def from_identity(self) -> BlockTridiagonal:
        """The identity minus the matrix, with one rounding of every entry on the diagonal."""
        diagonal = [torch.eye(len(block), dtype=block.dtype).sub_(block) for block in self.diagonal]
        return BlockTridiagonal(diagonal, [-block for block in self.below])


def is_contraction(rows: Matrix, order: NDArray[np.intp] | None = None) -> bool:
    """Whether it is proven that the 2-norm of a matrix in float64 is at most 1.

    order: Of the rows, or of the columns where these are fewer, in which nearby ones are neighbours.
    """
    if rows.shape[0] > rows.shape[1]:
        rows = rows.T if isinstance(rows, Tensor) else rows.T.tocsr()
    if not rows.shape[0] or not rows.shape[1]:
        return True
    numbers = rows if isinstance(rows, Tensor) else torch.from_numpy(rows.data)
    if not bool(numbers.isfinite().all()):
        return False
    gram, terms = _gram(rows, order)
    # An entry of the product errs by at most gamma times the product of two rows' lengths: all of them together, in the
    # norm of Frobenius, by gamma times the sum of all squares. Differences on the diagonal err by a unit.
    squares = numbers.square().sum()
    lost = RIGOROUS.above(RIGOROUS.gamma(terms + 2) * squares + RIGOROUS.gamma(2), len(numbers.flatten()) + 4)
    return _exceeds(gram.from_identity(), float(lost) + rows.shape[0] * SQUARED_TINY)


def _gram(rows: Matrix, order: NDArray[np.intp] | None) -> tuple[BlockTridiagonal, int]:
    """`rows rows'`, and the largest number of products that an entry sums."""
    check_time()
    if isinstance(rows, Tensor):
        return BlockTridiagonal([rows @ rows.T], []), rows.shape[1]
    if order is not None:
        rows = rows[order]
    product = (rows @ rows.T).tocoo()
    terms = int(np.diff(rows.indptr).max(initial=1))
    width, size = int(np.abs(product.row - product.col).max(initial=0)) + 1, rows.shape[0]
    step = max(width, LEAST_BLOCK)
    if size < FEW * step:
        return BlockTridiagonal([torch.from_numpy(product.toarray())], []), terms
    check_time()
    banded = product.tocsr()
    starts = [*range(0, size, step), size]
    ends = list(pairwise(starts))
    diagonal = [torch.from_numpy(banded[first:last, first:last].toarray()) for first, last in ends]
    below = [
        torch.from_numpy(banded[second[0] : second[1], first[0] : first[1]].toarray())
        for first, second in pairwise(ends)
    ]
    return BlockTridiagonal(diagonal, below), terms


def _exceeds(matrix: BlockTridiagonal, lost: float) -> bool:
    """Whether it is proven that the least eigenvalue of a matrix, with entries near 1 at most, is at least `lost`."""
    size = matrix.size
    shift = 4 * RIGOROUS.gamma(size + 2) * 2 * size + lost
    if not shift < 0.5:
        return False
    factor = _cholesky(matrix, shift)
    return factor is not None and _distance(matrix, factor, shift) + TINY <= (shift - lost) * (1 - 1e-9)


def _cholesky(matrix: BlockTridiagonal, shift: float) -> BlockTridiagonal | None:
    """A factor of the matrix minus the shift, its blocks on the diagonal lower triangular; None where there is none."""
    factor = BlockTridiagonal([], [])
    for number, block in enumerate(matrix.diagonal):
        check_time(cholesky_seconds(len(block)))
        remainder = block - shift * torch.eye(len(block), dtype=block.dtype)
        if number:
            remainder -= factor.below[-1] @ factor.below[-1].T
        triangle, failed = torch.linalg.cholesky_ex(remainder)
        if int(failed) or not bool(triangle.isfinite().all()):
            return None
        factor.diagonal.append(triangle.tril())
        if number < len(matrix.below):
            factor.below.append(
                torch.linalg.solve_triangular(triangle, matrix.below[number].T, upper=False).T.contiguous()
            )
    return factor


def _distance(matrix: BlockTridiagonal, factor: BlockTridiagonal, shift: float) -> float:
    """An upper bound of the 2-norm of `matrix - factor factor' - shift`; NaN and infinity: none.

    The 2-norm is at most that of Frobenius. A product of rows of the factor errs by at most gamma times the product of
    their lengths, so all of them together by at most gamma times the sum of all squares.
    """
    squares, length = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for number, (block, triangle) in enumerate(zip(matrix.diagonal, factor.diagonal, strict=True)):
        check_time(cholesky_seconds(len(block)))
        carried = block if not number else block - factor.below[number - 1] @ factor.below[number - 1].T
        squares = squares + _rest(carried, triangle, shift)
        length = length + triangle.square().sum()
        if number < len(factor.below):
            lower = factor.below[number]
            squares = squares + 2 * (matrix.below[number] - lower @ triangle.T).square().sum()
            length = length + lower.square().sum()
    size = matrix.size
    # Differences err relatively to themselves and to what they are of, which on the diagonal the shift and 1 exceed.
    rounding = RIGOROUS.gamma(size + 4) * length + RIGOROUS.gamma(3) * (2 * shift + 2) * size**0.5
    return float(RIGOROUS.above(squares.sqrt() + rounding, size * size + 8) + size * SQUARED_TINY)


def _rest(block: Tensor, triangle: Tensor, shift: float) -> Tensor:
    """The squares of a symmetric block minus those of its factor and the shift, whose lower half is read."""
    squares, size = triangle.new_zeros(()), len(block)
    for first in range(0, size, STRIPE):
        last = min(size, first + STRIPE)
        remainder = block[first:, first:last] - triangle[first:, :last] @ triangle[first:last, :last].T
        square = remainder[: last - first]
        square -= shift * torch.eye(last - first, dtype=remainder.dtype)
        squares = squares + square.tril().square().sum() + square.tril(-1).square().sum()
        squares = squares + 2 * remainder[last - first :].square().sum()
    return squares


def cholesky_seconds(size: int) -> float:
    """About how long it takes to factorise a matrix (size, size), which can't be done in parts."""
    return size**3 / 6 / SPEED
