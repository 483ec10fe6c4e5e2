"""Products of batches of nodes with the matrices between stages, dense, or sparse where most of a matrix is zero.

Behind convolutions a neuron depends on a window of the input: between stages there are few numbers that are not zero.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from relucert.branch_and_bound.stages import Stage

FEWEST_NUMBERS = 2**14  # of a matrix, for a sparse copy to be worth it
MOST_DENSE = 0.2  # share of numbers that are not zero: sparse products do a fifth of the operations a second
LEAST_INFLUENCE = 0.01  # relative to the mean
TINY = 1e-12


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


class PreparedStage:
    """What all ascents over a stage share.

    Attributes:
        matrix: On the input's deviation, in units of the scale, (neurons, inputs); None: none.
        influence: Of its unstable neurons, (unstable,).
    """

    def __init__(self, stage: Stage, matrix: Tensor | None) -> None:
        self.matrix, self.influence = matrix, _influence(stage, matrix)
        self.entrance = None if matrix is None else Product(matrix)
        self.weights = {earlier: Product(weight) for earlier, weight in stage.maps.weights.items()}
        self.bias = stage.maps.bias

    def values(self, corner: Tensor, activations: list[Tensor]) -> Tensor:
        """The pre-activations, (neurons, count), at a point in units of the scale, (inputs, count).

        activations: Of the earlier stages, (neurons, count) each.
        """
        values = self.bias[:, None].repeat(1, corner.shape[1])
        if self.entrance is not None:
            self.entrance.add_values(values, corner)
        for earlier, product in self.weights.items():
            product.add_values(values, activations[earlier])
        return values


def _influence(stage: Stage, matrix: Tensor | None) -> Tensor:
    """By what share of their widths a stage's unstable neurons move with the inputs of each of them, relative to the
    mean: (unstable,). Neurons that move together with many others are worth more as splits."""
    if matrix is None or stage.unstable_count < 2:
        return torch.ones(stage.unstable_count)
    sizes = matrix[: stage.unstable_count].abs()
    shares = sizes / (stage.upper - stage.lower)[:, None]
    moved = sizes / sizes.sum(1, keepdim=True).clamp(min=TINY) @ shares.T
    total = moved.fill_diagonal_(0).sum(1).nan_to_num(0)
    return total / total.mean().clamp(min=TINY) + LEAST_INFLUENCE
