"""What is called a contraction is one, in rational arithmetic; dense, sparse and banded."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from relucert.methods.quadratic import semidefinite
from relucert.methods.quadratic.semidefinite import is_contraction
from tests.rational import truly_semidefinite


def truly_contracts(matrix: Tensor) -> bool:
    rows = [[Fraction(float(entry)) for entry in row] for row in matrix]
    gram = [[sum((a * b for a, b in zip(one, other, strict=True)), Fraction(0)) for other in rows] for one in rows]
    return truly_semidefinite([[(i == j) - entry for j, entry in enumerate(row)] for i, row in enumerate(gram)])


def of_norm(rows: int, columns: int, norm: float, seed: int = 0) -> Tensor:
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    scaled: Tensor = matrix * (norm / torch.linalg.matrix_norm(matrix, 2))
    return scaled


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (30, 50), (300, 200), (600, 700)])
def test_norms_just_below_one_pass_and_just_above_do_not(shape: tuple[int, int]) -> None:
    assert is_contraction(of_norm(*shape, 1 - 1e-5))
    for excess in (1e-2, 1e-6, 1e-10):
        assert not is_contraction(of_norm(*shape, 1 + excess))


def banded(size: int, width: int, norm: float) -> sparse.csr_array:
    generator = np.random.default_rng(0)
    diagonals = [generator.standard_normal(size) for _ in range(width)]
    matrix = sparse.diags_array(diagonals, offsets=list(range(width)), shape=(size, size + width)).tocsr()
    largest = float(np.linalg.norm(matrix.toarray(), 2))
    return matrix * (norm / largest)


@pytest.mark.parametrize("size", [50, 900])
def test_banded_matrices_are_taken_in_blocks(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(semidefinite, "LEAST_BLOCK", 10)
    order = np.random.default_rng(1).permutation(size)
    for norm, passes in ((1 - 1e-5, True), (1 + 1e-7, False), (1.1, False)):
        matrix = banded(size, 6, norm)
        shuffled = matrix[order]
        assert is_contraction(matrix, np.arange(size)) == passes
        assert is_contraction(shuffled, np.argsort(order)) == passes
        assert is_contraction(torch.from_numpy(matrix.toarray())) == passes


def test_small_matrices_against_rational_elimination() -> None:
    draw, passed, short = random.Random(0), 0, 0
    for _ in range(600):
        rows, columns = draw.randint(1, 4), draw.randint(1, 4)
        whole = torch.tensor([[draw.randint(-3, 3) for _ in range(columns)] for _ in range(rows)], dtype=torch.float64)
        norm = float(torch.linalg.matrix_norm(whole, 2)) or 1.0
        matrix = whole * (draw.choice([0.5, 1 - 1e-9, 1 - 1e-13, 1.0, 1 + 1e-13, 1 + 1e-9, 2.0]) / norm)
        truth = truly_contracts(matrix)
        short += truth
        if is_contraction(matrix):
            passed += 1
            assert truth
    assert passed > 0.4 * short > 0


@pytest.mark.parametrize("spoilt", [torch.nan, torch.inf, -torch.inf, 1e300, 1e200])
def test_entries_that_are_no_numbers_are_refused(spoilt: float) -> None:
    matrix = of_norm(5, 6, 0.5)
    matrix[3, 1] = spoilt
    assert not is_contraction(matrix)
    assert not is_contraction(sparse.csr_array(matrix.numpy()))


@pytest.mark.parametrize("liar", ["zeros", "identity", "nan", "random"])
def test_no_factorisation_is_believed(liar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a factorisation returns, a matrix that is too long is refused."""
    matrix = of_norm(6, 8, 1.05)
    lies = {
        "zeros": torch.zeros(6, 6), "identity": torch.eye(6), "nan": torch.full((6, 6), torch.nan),
        "random": torch.randn(6, 6, generator=torch.Generator().manual_seed(0)),
    }  # fmt: skip
    answer = torch.return_types.linalg_cholesky_ex((lies[liar].double(), torch.tensor(0)))  # type: ignore[attr-defined]
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda _: answer)
    assert not is_contraction(matrix)
