"""The linear maps between inputs, sector errors and the deviations of pre-activations, in float32: for finding, not for
proving."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from relucert.methods.quadratic.problem import HiddenLayer, Problem
from relucert.methods.quadratic.products import product

DTYPE = torch.float32


@dataclass(frozen=True, eq=False)
class Maps:
    """A problem in float32. Vectors of the certificate's matrix, (rows,) or (rows, count), hold the moving inputs, then
    the sector errors of the loose neurons of every hidden layer but the last."""

    problem: Problem

    @cached_property
    def layers(self) -> tuple[HiddenLayer, ...]:
        return tuple(layer.cast(DTYPE) for layer in self.problem.layers)

    @cached_property
    def entrance(self) -> Tensor:
        """The first layer's weights per unit of the ball: (size, moving inputs)."""
        moving = self.problem.moving
        return self.layers[0].weight[:, moving] * self.problem.radii[moving].to(DTYPE)

    @cached_property
    def walls(self) -> tuple[Tensor, Tensor] | None:
        """How far moving inputs may go against a form that falls with them, and with it, per unit of the ball."""
        walls = self.problem.region.walls
        if walls is None:
            return None
        return walls.above[0, self.problem.moving].to(DTYPE), walls.below[0, self.problem.moving].to(DTYPE)

    def split(self, vector: Tensor) -> list[Tensor]:
        """Into inputs and the errors of each layer."""
        return list(vector.split(self.problem.sizes))

    def deviations(self, vector: Tensor) -> list[Tensor]:
        """The deviations of every hidden layer's pre-activations: (size,) or (size, count) each."""
        inputs, *errors = self.split(vector)
        deviations = [self.entrance @ inputs]
        for layer, following, error in zip(self.layers, self.layers[1:], errors, strict=False):
            outputs = _times(layer.slope, deviations[-1]).index_add(0, layer.loose, error)
            deviations.append(following.weight @ outputs)
        return deviations

    def transposed(self, forms: list[Tensor]) -> Tensor:
        """The transpose: forms on the deviations of every hidden layer as a form on the certificate's vectors."""
        parts, form = [], forms[-1]
        for number in range(len(self.layers) - 1, 0, -1):
            layer = self.layers[number - 1]
            form = self.layers[number].weight.T @ form
            parts.append(form[layer.loose])
            form = forms[number - 1] + _times(layer.slope, form)
        parts.append(self.entrance.T @ form)
        return torch.cat(parts[::-1])

    def blocks(self) -> list[Tensor]:
        """The matrix of `deviations`, by layers: (size, rows) each."""
        return deviation_matrices(
            self.entrance, [layer.weight for layer in self.layers], [layer.slope for layer in self.layers],
            [layer.loose for layer in self.layers[:-1]],
        )  # fmt: skip


def deviation_matrices(
    entrance: Tensor, weights: list[Tensor], slopes: list[Tensor], loose: list[Tensor]
) -> list[Tensor]:
    """The deviations of every hidden layer as matrices on the moving inputs and on the sector errors before it.

    Only these columns are stored: (size, moving inputs + loose neurons of the layers before).
    """
    matrices = [entrance]
    for number, neurons in enumerate(loose):
        weight = weights[number + 1]
        matrices.append(torch.cat([product(weight * slopes[number], matrices[-1]), weight[:, neurons]], 1))
    return matrices


def _times(factors: Tensor, vectors: Tensor) -> Tensor:
    return factors * vectors if vectors.ndim == 1 else factors[:, None] * vectors
