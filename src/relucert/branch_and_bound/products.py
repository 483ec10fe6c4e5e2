"""Products of batches of nodes with the matrices between stages, dense, or sparse where most of a matrix is zero.

Behind convolutions a neuron depends on a window of the input: between stages there are few numbers that are not zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relucert.network.sparse_rows import SparseRows, sparse_matrix

if TYPE_CHECKING:
    from relucert.branch_and_bound.stages import Stage

MOST_DENSE = 0.4  # share of numbers that are not zero: sparse products do about half of the operations a second
LEAST_INFLUENCE = 0.01  # relative to the mean
TINY = 1e-12


class Product:
    """A matrix (outputs, inputs) that many batches are multiplied with."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix
        self._sparse = sparse_matrix(matrix, MOST_DENSE)

    def add_pulled(self, total: Tensor | None, forms: Tensor) -> Tensor:
        """Forms on the outputs, (outputs, count), as forms on the inputs, added in place to a total (inputs, count)."""
        return _added(total, self.matrix.T if self._sparse is None else self._sparse.columns, forms)

    def add_values(self, total: Tensor | None, values: Tensor) -> Tensor:
        """The outputs of values of the inputs, (inputs, count), added in place to a total (outputs, count)."""
        return _added(total, self.matrix if self._sparse is None else self._sparse.rows, values)


def _added(total: Tensor | None, matrix: Tensor | SparseRows, batch: Tensor) -> Tensor:
    """The product of a matrix and a batch, added in place to a total."""
    if total is None:
        return matrix @ batch
    if isinstance(matrix, Tensor):
        return torch.addmm(total, matrix, batch, out=total)
    return total.add_(matrix @ batch)


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
        values = None if self.entrance is None else self.entrance.add_values(None, corner)
        for earlier, product in self.weights.items():
            values = product.add_values(values, activations[earlier])
        bias = self.bias[:, None]
        return bias.repeat(1, corner.shape[1]) if values is None else values.add_(bias)


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
