"""What the check calls semidefinite is so, in rational arithmetic."""

import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from flint import fmpz_mat
from torch import Tensor

from relucert.checker.quadratic_matrix import is_semidefinite
from tests.rational import truly_semidefinite

BITS = 50


def gram(size: int, seed: int, ridge: float = 0.01) -> Tensor:
    factor = torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return factor @ factor.T / size + ridge * torch.eye(size, dtype=torch.float64)


def whole(matrix: torch.Tensor) -> tuple[fmpz_mat, torch.Tensor]:
    """A matrix rounded to integers over 2**(2 * BITS), and the same numbers in float64."""
    rounded = torch.round(matrix * 2.0**30)
    factor = 1 << (2 * BITS - 30)
    return fmpz_mat([[int(entry) * factor for entry in row] for row in rounded.tolist()]), rounded / 2.0**30


@pytest.mark.parametrize("size", [1, 2, 7, 60])
def test_positive_definite_matrices_pass(size: int) -> None:
    assert is_semidefinite(whole(gram(size, size))[0], BITS)


@pytest.mark.parametrize("size", [5, 60])
@pytest.mark.parametrize("below", [1.0, 1e-4, 1e-7, 0.0])
def test_slightly_indefinite_matrices_are_refused(size: int, below: float) -> None:
    vectors = torch.linalg.qr(gram(size, 0)).Q
    values = torch.linspace(1, 2, size, dtype=torch.float64)
    values[size // 2] = -below
    matrix = (vectors * values) @ vectors.T
    assert not is_semidefinite(whole(matrix)[0], BITS)


def test_small_matrices_against_rational_elimination() -> None:
    draw, passed, semidefinite = random.Random(0), 0, 0
    for _ in range(400):
        size = draw.randint(1, 4)
        numbers = torch.tensor([[draw.randint(-3, 3) for _ in range(size)] for _ in range(size)], dtype=torch.float64)
        matrix = numbers @ numbers.T if draw.random() < 0.5 else numbers + numbers.T
        integers, exact = whole(matrix + draw.choice([0.0, 1e-8, 0.1, -1e-8]) * torch.eye(size, dtype=torch.float64))
        truth = truly_semidefinite([[Fraction(float(entry)) for entry in row] for row in exact])
        semidefinite += truth
        if is_semidefinite(integers, BITS):
            passed += 1
            assert truth
    assert passed > 0.4 * semidefinite > 0


@pytest.mark.parametrize("liar", ["zeros", "identity", "nan", "infinite", "large"])
def test_no_factorisation_is_believed(liar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64)
    lies = {
        "zeros": np.zeros((2, 2)), "identity": np.eye(2), "nan": np.full((2, 2), np.nan),
        "infinite": np.full((2, 2), np.inf), "large": np.full((2, 2), 1e280),
    }  # fmt: skip
    monkeypatch.setattr(np.linalg, "cholesky", lambda _: lies[liar])
    assert not is_semidefinite(whole(matrix)[0], BITS)


def test_numbers_too_large_for_float64_are_refused() -> None:
    assert not is_semidefinite(fmpz_mat([[1 << 5000]]), BITS)
