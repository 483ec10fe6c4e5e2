"""What the check calls no longer than 1 is so, and what is a little shorter passes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import linalg, sparse

from relucert.checker import contraction
from relucert.checker.contraction import BITS, is_contraction

Floats = NDArray[np.float64]
SHAPES = ((1, 1), (2, 5), (60, 40), (300, 500), (700, 600))


def rows(height: int, width: int, length: float, band: int | None = None) -> Floats:
    """A matrix of this 2-norm, as computed; band: how far from the diagonal it reaches."""
    drawn = np.random.default_rng(height + width).standard_normal((height, width))
    if band is not None:
        places = np.arange(height)[:, None] * width // height - np.arange(width)
        drawn = drawn * (np.abs(places) <= band)
    return np.asarray(drawn * (length / np.linalg.norm(drawn, 2)))


def whole(matrix: Floats) -> NDArray[np.int64]:
    return np.rint(matrix * 2.0**BITS).astype(np.int64)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("spare", [0.5, 1e-3, 1e-5, 1e-7])
def test_short_matrices_pass(shape: tuple[int, int], spare: float) -> None:
    assert is_contraction(whole(rows(*shape, 1 - spare)), 0.0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("excess", [1e-9, 1e-6, 1e-3, 0.3])
def test_long_matrices_are_refused(shape: tuple[int, int], excess: float) -> None:
    matrix = whole(rows(*shape, 1 + excess))
    assert not is_contraction(matrix, 0.0)
    assert not is_contraction(sparse.csr_array(matrix), 0.0)


@pytest.mark.parametrize("height", [256, 900, 1500])
@pytest.mark.parametrize("spare", [1e-3, 1e-5])
def test_banded_matrices_pass_in_blocks(height: int, spare: float) -> None:
    banded = sparse.csr_array(whole(rows(height, 1200, 1 - spare, band=30)))
    assert is_contraction(banded, 0.0)
    assert not is_contraction(banded, 2 * spare)


@pytest.mark.parametrize("excess", [1e-6, 1e-3])
def test_long_banded_matrices_are_refused(excess: float) -> None:
    assert not is_contraction(sparse.csr_array(whole(rows(1500, 1200, 1 + excess, band=30))), 0.0)


@pytest.mark.parametrize("error", [0.01, 0.1, 0.49, 2.0, np.inf, np.nan])
def test_errors_count(error: float) -> None:
    matrix = whole(rows(40, 60, 0.95))
    assert is_contraction(matrix, 0.0)
    assert is_contraction(matrix, error) == (error < 0.05)


def test_no_rows_and_no_columns_are_short() -> None:
    assert is_contraction(whole(np.zeros((0, 5))), 0.0)
    assert is_contraction(whole(np.zeros((5, 0))), 0.0)


def test_a_matrix_of_one_row_against_rational_numbers() -> None:
    """Its norm is that of the row, whose square is known exactly."""
    draw, passed, short = np.random.default_rng(0), 0, 0
    for _ in range(300):
        numbers = draw.standard_normal(4)
        length = 1 + draw.choice([0.0, 1e-12, -1e-12, 1e-9, -1e-9, -1e-7, -1e-4])
        matrix = whole(numbers[None] * (length / np.linalg.norm(numbers)))
        truth = sum(Fraction(int(one)) ** 2 for one in matrix[0]) <= Fraction(2) ** (2 * BITS)
        short += truth
        if is_contraction(matrix, 0.0):
            passed += 1
            assert truth
    assert passed > 0.4 * short > 0


@pytest.mark.parametrize("liar", ["zeros", "identity", "nan", "infinite", "large", "half"])
@pytest.mark.parametrize("blocks", [False, True])
def test_no_factorisation_is_believed(liar: str, blocks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = whole(rows(900, 1200, 1.001, band=30) if blocks else rows(20, 30, 1.001))
    lies = {"zeros": 0.0, "identity": 1.0, "nan": np.nan, "infinite": np.inf, "large": 1e280, "half": 0.5}

    def lie(given: Floats, **_: object) -> Floats:
        return lies[liar] * np.eye(len(given)) if np.isfinite(lies[liar]) else np.full_like(given, lies[liar])

    monkeypatch.setattr(linalg, "cholesky", lie)
    monkeypatch.setattr(linalg, "solve_triangular", lambda one, other, **_: 0.1 * np.ones_like(other))
    assert not is_contraction(sparse.csr_array(matrix) if blocks else matrix, 0.0)


@pytest.mark.parametrize("precise", [False, True])
def test_remainders_are_those_of_rational_arithmetic(precise: bool) -> None:
    """A remainder that is dominant by a little passes, one that is not by as little does not."""
    size = 6
    triangle = np.tril(rows(size, size, 0.9))
    factor = contraction._SplitBlock.of(triangle, precise)
    exact = factor.high * 2.0**-contraction.HIGH_BITS
    if factor.low is not None:
        exact = exact + factor.low * 2.0**-BITS
    gram = [[sum(Fraction(one) * Fraction(two) for one, two in zip(a, b, strict=True)) for b in exact] for a in exact]
    unit = 1 << contraction.UNIT_BITS
    product = np.array([[int(entry * unit) for entry in row] for row in gram], dtype=np.int64)
    for room, passes in ((1 << 30, True), (-(1 << 30), False)):
        matrix = np.tril(product + room * np.eye(size, dtype=np.int64))
        assert contraction._is_dominant([matrix], [], [(triangle, None)], precise) == passes
