"""Products of batches of nodes with the matrices between stages, dense, or sparse where most of a matrix is zero.

Behind convolutions a neuron depends on a window of the input: between stages there are few numbers that are not zero.
"""

from __future__ import annotations

import warnings

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
        """Forms on the outputs, (count, outputs), as forms on the inputs, added in place to a total."""
        if self._sparse is None:
            return forms @ self.matrix if total is None else total.addmm_(forms, self.matrix)
        product = (self._sparse[1] @ forms.T.contiguous()).T
        return product.contiguous() if total is None else total.add_(product)

    def add_values(self, total: Tensor, values: Tensor) -> Tensor:
        """The outputs of values of the inputs, (count, inputs), added in place to a total (count, outputs)."""
        if self._sparse is None:
            return total.addmm_(values, self.matrix.T)
        return total.add_((self._sparse[0] @ values.T.contiguous()).T)


def _compressed(matrix: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that sparse matrices are in beta
        return matrix.to_sparse_csr()
