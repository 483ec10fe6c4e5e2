"""Products with matrices of which most numbers are zero, as sums of weighted rows, and their gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

FEWEST_NUMBERS = 2**14  # of a matrix, for a sparse copy to be worth it


class SparseRows:
    """The numbers of a matrix (outputs, inputs) that are not zero, row after row.

    A product sums weighted rows of a batch, as bags of embeddings are summed: for this PyTorch has kernels that keep a
    row's sum in registers, with two to three times the operations a second of products with its sparse tensors.
    """

    def __init__(self, matrix: Tensor) -> None:
        rows, self.columns = matrix.nonzero().T.contiguous()
        self.numbers = matrix[rows, self.columns]
        self.ends = torch.zeros(len(matrix) + 1, dtype=torch.int64)
        self.ends[1:] = torch.bincount(rows, minlength=len(matrix)).cumsum(0)

    def __matmul__(self, batch: Tensor) -> Tensor:
        """The product with a batch (inputs, count)."""
        return embedding_bag(
            self.columns, batch, self.ends, mode="sum", per_sample_weights=self.numbers, include_last_offset=True
        )


class SparseMatrix:
    """A matrix (outputs, inputs) and its transpose, both by their rows, for products that have gradients."""

    def __init__(self, matrix: Tensor) -> None:
        self.rows, self.columns = SparseRows(matrix), SparseRows(matrix.T)

    def images(self, vectors: Tensor) -> Tensor:
        """The matrix times each vector (..., inputs): (..., outputs)."""
        return self._of_vectors(vectors, self.rows, self.columns)

    def forms_before(self, forms: Tensor) -> Tensor:
        """Forms on the outputs (..., outputs) as forms on the inputs: (..., inputs)."""
        return self._of_vectors(forms, self.columns, self.rows)

    @staticmethod
    def _of_vectors(vectors: Tensor, matrix: SparseRows, transpose: SparseRows) -> Tensor:
        product: Tensor = _Product.apply(vectors.reshape(-1, vectors.shape[-1]).T.contiguous(), matrix, transpose)  # type: ignore[no-untyped-call]
        return product.T.reshape(*vectors.shape[:-1], len(product))  # also of no vectors


def sparse_matrix(matrix: Tensor, most_dense: float) -> SparseMatrix | None:
    """The sparse copy of a matrix, None where it is small or more than a share of its numbers is not zero."""
    dense = matrix.numel() < FEWEST_NUMBERS or int(matrix.count_nonzero()) > most_dense * matrix.numel()
    return None if dense else SparseMatrix(matrix)


class _Product(torch.autograd.Function):
    """A product with a batch (inputs, count), whose gradient is a product with the transpose."""

    @staticmethod
    def forward(ctx: Any, batch: Tensor, matrix: SparseRows, transpose: SparseRows) -> Tensor:
        ctx.matrices = transpose, matrix
        return matrix @ batch

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _Product.apply(gradients[0].contiguous(), *ctx.matrices), None, None  # type: ignore[no-untyped-call]
