"""Proofs, in exact integers, that the 2-norm of a matrix is at most 1.

For integers B over a power of two, and E that they may be off by in the norm of Frobenius, it suffices that
`M = (1 - E)^2 I - B B'` is positive semidefinite. A Cholesky factor of M in float64 is only a proposal: rounded to
integers it is L, and what counts is that the remainder `M - L L'` is diagonally dominant, and so semidefinite, as
L L' is. Matrices of windows of images are block tridiagonal, once their rows are ordered by position.

Integers are products of float64 libraries, and exact: with `B = high + low`, high in units of 2**-26, a row of which is
no longer than 1, no sum of products of two rows reaches 2**53 units, whatever the order of summation. The products of
two low parts are not computed: their norm is at most the sum of squares of them, which is charged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

BITS = 42  # of a matrix's integers, behind the point
HIGH_BITS = 26  # of its high parts
LOW = BITS - HIGH_BITS  # bits of its low parts
SPARSE_BITS = 30  # of a sparse matrix's integers: sums of products of two of its rows stay below 2**61
UNIT_BITS = 60  # of products
LONGEST = 1.5 * 2.0 ** (2 * HIGH_BITS)  # of sums of squares of high parts, as computed: below 2**53 exactly
MOST_TERMS = 2**20  # of products of high and low parts, whose sums then stay below 2**53
LARGEST = 2.0  # entry of a factor, whose rows are no longer than 1
UP = 1 + 1e-6  # more than sums of a few billion numbers >= 0 round by
LEAST_BLOCK = 256  # rows of a block of a banded matrix, at least
FEW = 3  # blocks of the bandwidth below which a banded matrix is taken for a dense one
STRIPE = 512  # rows that are multiplied at once

Whole = NDArray[np.int64]
Floats = NDArray[np.float64]
Matrix: TypeAlias = Whole | sparse.csr_array


@dataclass(frozen=True, eq=False)
class Tridiagonal:
    """A symmetric matrix of integers over 2**UNIT_BITS: its diagonal blocks, whose lower halves count, and those below.

    max_error: how far it may be off in the 2-norm.
    """

    diagonal: list[Whole]
    below: list[Whole]
    max_error: float


def is_contraction(matrix: Matrix, error: float) -> bool:
    """Whether it is proven that a matrix is no longer than 1 in the 2-norm.

    Args:
        matrix: Integers over 2**BITS, of which none exceeds 1; of a sparse one, rows that are near each other should be
            neighbours.
        error: How far they may be off, in the norm of Frobenius.
    """
    if not matrix.shape[0] or not matrix.shape[1]:
        return error <= 1
    if isinstance(matrix, sparse.csr_array):
        gram, lost = _sparse_gram(matrix)
        return _is_at_most(gram, error + lost, False) or _is_at_most(gram, error + lost, True)
    high, low = _split(matrix)
    if not _is_short(high):
        return False
    length = math.sqrt(float(np.square(low.ravel()).sum())) * 2.0**-BITS * UP
    if _is_at_most(Tridiagonal([_symmetric(high, None)], [], 0.0), error + length, False):
        return True
    max_error = length * length * UP + 2 * len(matrix) * 2.0**-UNIT_BITS
    return _is_at_most(Tridiagonal([_symmetric(high, low)], [], max_error), error, True)


def _split(matrix: Whole) -> tuple[Floats, Floats]:
    """High parts in units of 2**-HIGH_BITS and low ones in units of 2**-BITS, whose sum is the matrix."""
    high = (matrix + (1 << (LOW - 1))) >> LOW
    return high.astype(np.float64), (matrix - (high << LOW)).astype(np.float64)


def _is_short(high: Floats) -> bool:
    return high.shape[1] < MOST_TERMS and bool((np.square(high).sum(1) < LONGEST).all())


def _symmetric(high: Floats, low: Floats | None, leading: int | None = None) -> Whole:
    """The lower half of `B B'`, but for the products of low parts; rounded down, by at most a unit.

    leading: where B has this number of columns before a lower triangle.
    """
    size = len(high)
    product = np.zeros((size, size), dtype=np.int64)
    for first in range(0, size, STRIPE):
        last = min(size, first + STRIPE)
        width = high.shape[1] if leading is None else leading + last
        above, beside = high[first:last, :width], high[:last, :width]
        product[first:last, :last] = _products(above, beside)
        if low is not None:
            product[first:last, :last] += _mixed(above, low[first:last, :width], beside, low[:last, :width])
    return product


def _products(rows: Floats, columns: Floats) -> Whole:
    """`rows columns'` of high parts."""
    whole: Whole = (rows @ columns.T).astype(np.int64)
    return whole << (UNIT_BITS - 2 * HIGH_BITS)


def _mixed(high: Floats, low: Floats, right_high: Floats, right_low: Floats) -> Whole:
    """`high right_low' + low right_high'`, rounded down."""
    total: Whole = (high @ right_low.T).astype(np.int64) + (low @ right_high.T).astype(np.int64)
    return total >> (HIGH_BITS + BITS - UNIT_BITS)


def _sparse_gram(matrix: sparse.csr_array) -> tuple[Tridiagonal, float]:
    """`B B'` of a matrix B that is rounded to SPARSE_BITS, and the rounding error of B in the norm of Frobenius."""
    shift = BITS - SPARSE_BITS
    rounded = (matrix.data + (1 << (shift - 1))) >> shift
    remainders = (matrix.data - (rounded << shift)).astype(np.float64)
    lost = math.sqrt(float(np.square(remainders).sum())) * 2.0**-BITS * UP
    rows = sparse.csr_array((rounded, matrix.indices, matrix.indptr), shape=matrix.shape)
    lengths = sparse.csr_array(
        (np.square(rounded.astype(np.float64)), matrix.indices, matrix.indptr), shape=matrix.shape
    )
    if not bool((np.asarray(lengths.sum(1)) < 1.5 * 2.0 ** (2 * SPARSE_BITS)).all()):
        return Tridiagonal([], [], math.inf), math.inf
    product = (rows @ rows.T).tocoo()
    size = matrix.shape[0]
    step = max(int(np.abs(product.row - product.col).max(initial=0)) + 1, LEAST_BLOCK)
    if size < FEW * step:
        return Tridiagonal([product.toarray()], [], 0.0), lost
    banded = product.tocsr()
    ends = list(pairwise([*range(0, size, step), size]))
    diagonal = [banded[first:last, first:last].toarray() for first, last in ends]
    below = [banded[slice(*rows), slice(*columns)].toarray() for columns, rows in pairwise(ends)]
    return Tridiagonal(diagonal, below, 0.0), lost


def _is_at_most(gram: Tridiagonal, error: float, precise: bool) -> bool:
    """Whether it is proven that `(1 - error)^2` is at least all eigenvalues of a Gram matrix.

    precise: whether the factor has all bits or only the high ones.
    """
    if not error + gram.max_error < 0.5:
        return False
    limit = math.floor(((1 - error * UP) ** 2 - gram.max_error * UP - 2.0**-50) * 2.0**UNIT_BITS)
    diagonal = [np.diag(np.full(len(block), limit)) - np.tril(block) for block in gram.diagonal]
    below = [-block for block in gram.below]
    width = max(map(len, diagonal)) * min(3, len(diagonal))
    shift = width * 2.0 ** -(BITS - 2 if precise else HIGH_BITS) + 2.0**-38
    factors = _cholesky(diagonal, below, shift)
    return factors is not None and _is_dominant(diagonal, below, factors, precise)


Factor = list[tuple[Floats, Floats | None]]


def _cholesky(diagonal: list[Whole], below: list[Whole], shift: float) -> Factor | None:
    """Proposes a Cholesky factor: per block the triangle on the diagonal and the block below; None where it fails."""
    unit, factor = 2.0**-UNIT_BITS, Factor()
    carried = None
    for number, block in enumerate(diagonal):
        remainder = block * unit - shift * np.eye(len(block))
        if carried is not None:
            remainder -= carried @ carried.T
        try:
            triangle = np.tril(linalg.cholesky(remainder, lower=True, overwrite_a=True, check_finite=True))
        except (linalg.LinAlgError, ValueError):
            return None
        carried = None
        if number < len(below):
            carried = linalg.solve_triangular(triangle, (below[number] * unit).T, lower=True).T
        if not all(bool((np.abs(matrix) <= LARGEST).all()) for matrix in (triangle, carried) if matrix is not None):
            return None
        factor.append((triangle, carried))
    return factor


def _is_dominant(diagonal: list[Whole], below: list[Whole], factor: Factor, precise: bool) -> bool:
    """Whether the matrix less that of a factor is proven to be diagonally dominant, wherever the factor is from."""
    size = sum(map(len, diagonal))
    least, off_diagonal = [], [np.zeros(len(block), dtype=np.int64) for block in diagonal]
    squares = 0.0  # of low parts
    carried = _SplitBlock.none(len(diagonal[0]))
    for number, (block, (triangle, next_block)) in enumerate(zip(diagonal, factor, strict=True)):
        factors = _SplitBlock.of(triangle, precise)
        rows = carried.beside(factors)
        squares += rows.low_squares
        if not _is_short(rows.high):
            return False
        remainder = np.tril(block - _symmetric(rows.high, rows.low, carried.high.shape[1]))
        sizes = np.abs(remainder)
        if int(sizes.max()) >= (1 << 61) // size:
            return False
        least.append(np.diag(remainder))
        off_diagonal[number] += sizes.sum(0) + sizes.sum(1) - 2 * np.diag(sizes)
        if next_block is not None:
            carried = _SplitBlock.of(next_block, precise)
            if not _is_short(carried.high):
                return False
            product = _products(carried.high, factors.high)
            if carried.low is not None and factors.low is not None:
                product += _mixed(carried.high, carried.low, factors.high, factors.low)
            sizes = np.abs(below[number] - product)
            if int(sizes.max()) >= (1 << 61) // size:
                return False
            off_diagonal[number] += sizes.sum(0)
            off_diagonal[number + 1] += sizes.sum(1)
    room = math.ceil(squares * 2.0 ** (UNIT_BITS - 2 * BITS) * UP) + 2 * size + 2
    return all(bool((entries - room >= total).all()) for entries, total in zip(least, off_diagonal, strict=True))


@dataclass(frozen=True, eq=False)
class _SplitBlock:
    """A block of a factor in high and low parts, whole numbers; None: no low ones."""

    high: Floats
    low: Floats | None

    @classmethod
    def of(cls, block: Floats, precise: bool) -> _SplitBlock:
        if not precise:
            return cls(np.rint(block * 2.0**HIGH_BITS), None)
        return cls(*_split(np.rint(block * 2.0**BITS).astype(np.int64)))

    @classmethod
    def none(cls, size: int) -> _SplitBlock:
        return cls(np.zeros((size, 0)), np.zeros((size, 0)))

    @property
    def low_squares(self) -> float:
        return 0.0 if self.low is None else float(np.square(self.low).sum())

    def beside(self, neighbour: _SplitBlock) -> _SplitBlock:
        lows = None if self.low is None or neighbour.low is None else np.concatenate([self.low, neighbour.low], 1)
        return _SplitBlock(np.concatenate([self.high, neighbour.high], 1), lows)
