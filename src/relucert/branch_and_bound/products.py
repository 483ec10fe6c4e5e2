"""Products of batches of nodes with the matrices between stages, dense, or sparse where most of a matrix is zero.

Behind convolutions a neuron depends on a window of the input: between stages there are few numbers that are not zero.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

FEWEST_NUMBERS = 2**14  # of a matrix, for a sparse copy to be worth it
MOST_DENSE = 0.12  # share of numbers that are not zero: sparse products do a fifth of the operations a second


class Product:
    """A matrix (outputs, inputs) that many batches are multiplied with."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix
        dense = matrix.numel() < FEWEST_NUMBERS or int(matrix.count_nonzero()) > MOST_DENSE * matrix.numel()
        self._sparse = None if dense else (_compressed(matrix), _compressed(matrix.T.contiguous()))

    def __reduce__(self) -> tuple[type[Product], tuple[Tensor]]:
        """Other processes get the matrix and compress it again: sparse tensors can't be shared."""
        return Product, (self.matrix,)

    def add_pulled(self, total: Tensor | None, forms: Tensor) -> Tensor:
        """Forms on the outputs, (outputs, count), as forms on the inputs, added in place to a total (inputs, count)."""
        matrix = self.matrix.T if self._sparse is None else self._sparse[1]
        return matrix @ forms if total is None else torch.addmm(total, matrix, forms, out=total)

    def add_values(self, total: Tensor, values: Tensor) -> Tensor:
        """The outputs of values of the inputs, (inputs, count), added in place to a total (outputs, count)."""
        matrix = self.matrix if self._sparse is None else self._sparse[0]
        return torch.addmm(total, matrix, values, out=total)


def _compressed(matrix: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that sparse matrices are in beta
        return matrix.to_sparse_csr()
