"""What is called semidefinite is so, in rational arithmetic."""

import random
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from relucert.methods.quadratic.semidefinite import BLOCK, is_semidefinite


def truly_semidefinite(matrix: Tensor) -> bool:
    """By elimination in rational arithmetic."""
    rows = [[Fraction(float(entry)) for entry in row] for row in matrix]
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


def gram(size: int, seed: int, ridge: float = 0.01) -> Tensor:
    factor = torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return factor @ factor.T / size + ridge * torch.eye(size, dtype=torch.float64)


@pytest.mark.parametrize("size", [1, 2, 7, BLOCK - 1, BLOCK, BLOCK + 3, 2 * BLOCK + 50])
def test_positive_definite_matrices_pass_in_any_units(size: int) -> None:
    matrix = gram(size, size)
    assert is_semidefinite(matrix)
    units = torch.logspace(-60, 60, size, dtype=torch.float64)
    assert is_semidefinite(matrix * units * units[:, None])


@pytest.mark.parametrize("size", [5, BLOCK + 3])
@pytest.mark.parametrize("below", [1.0, 1e-4, 1e-8, 1e-11])
def test_slightly_indefinite_matrices_are_refused(size: int, below: float) -> None:
    vectors = torch.linalg.qr(gram(size, 0)).Q
    values = torch.linspace(1, 2, size, dtype=torch.float64)
    values[size // 2] = -below
    matrix = (vectors * values) @ vectors.T
    assert not is_semidefinite(matrix.tril() + matrix.tril(-1).T)


def test_small_matrices_against_rational_elimination() -> None:
    """Integers in awkward units, half of them Gram matrices, singular ones among them."""
    draw, passed, semidefinite = random.Random(0), 0, 0
    for _ in range(600):
        size = draw.randint(1, 4)
        numbers = torch.tensor([[draw.randint(-3, 3) for _ in range(size)] for _ in range(size)], dtype=torch.float64)
        matrix = numbers @ numbers.T if draw.random() < 0.5 else numbers + numbers.T
        matrix = matrix + draw.choice([0.0, 1e-13, 1e-9, 0.1, -1e-9]) * torch.eye(size, dtype=torch.float64)
        units = torch.tensor([draw.choice([1.0, 2.0**-200, 1e30]) for _ in range(size)], dtype=torch.float64)
        matrix = (matrix * units * units[:, None]).tril()
        matrix = matrix + matrix.tril(-1).T
        truth = truly_semidefinite(matrix)
        semidefinite += truth
        if is_semidefinite(matrix):
            passed += 1
            assert truth
    assert passed > 0.5 * semidefinite > 0


@pytest.mark.parametrize("spoilt", [torch.nan, torch.inf, -torch.inf, -1.0, 0.0])
@pytest.mark.parametrize("place", [(0, 0), (3, 3)])
def test_a_diagonal_that_is_no_positive_number_is_refused(spoilt: float, place: tuple[int, int]) -> None:
    matrix = gram(5, 1)
    matrix[place] = spoilt
    assert not is_semidefinite(matrix)


@pytest.mark.parametrize("spoilt", [torch.nan, torch.inf, 1e300])
def test_entries_that_are_no_numbers_are_refused(spoilt: float) -> None:
    matrix = gram(5, 1)
    matrix[3, 1] = matrix[1, 3] = spoilt
    assert not is_semidefinite(matrix)


@pytest.mark.parametrize("liar", ["zeros", "identity", "nan", "random"])
def test_no_factorisation_is_believed(liar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a factorisation returns, an indefinite matrix is refused."""
    matrix = gram(6, 2) - 0.5 * torch.eye(6, dtype=torch.float64)
    assert not truly_semidefinite(matrix)
    matrix += torch.diag(0.5 - matrix.diagonal().clamp(max=0.5))  # a diagonal that looks well
    assert not truly_semidefinite(matrix)
    lies = {
        "zeros": torch.zeros(6, 6), "identity": torch.eye(6), "nan": torch.full((6, 6), torch.nan),
        "random": torch.randn(6, 6, generator=torch.Generator().manual_seed(0)),
    }  # fmt: skip
    answer = torch.return_types.linalg_cholesky_ex((lies[liar].double(), torch.tensor(0)))  # type: ignore[attr-defined]
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda _: answer)
    assert not is_semidefinite(matrix)
