"""Adam's steps for tensors of any number; PyTorch's own costs more than a small network's bound, and a slow import."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

MEANS = (0.9, 0.99)  # factors of the running means, for dual ascents


class Adam:
    """Directions of "Adam: A Method for Stochastic Optimization" for gradients that come one after the other.

    decay: The factors of the running means of gradients and of their squares.
    """

    def __init__(self, like: Sequence[Tensor], decay: tuple[float, float] = MEANS, tiny: float = 1e-8) -> None:
        self._means = [torch.zeros_like(tensor) for tensor in like]
        self._squares = [torch.zeros_like(tensor) for tensor in like]
        self._decay, self._tiny, self._steps = decay, tiny, 0

    def directions(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The step along each gradient, about 1 in every coordinate."""
        self._steps += 1
        first, second = (1 - share**self._steps for share in self._decay)
        ways = []
        for mean, square, gradient in zip(self._means, self._squares, gradients, strict=True):
            mean.lerp_(gradient, 1 - self._decay[0])
            square.lerp_(gradient.square(), 1 - self._decay[1])
            ways.append(mean / (square / second).sqrt_().add_(self._tiny).mul_(first))
        return ways

    def select(self, rows: Tensor) -> None:
        """Goes on with some rows of every tensor."""
        self._means = [mean[rows] for mean in self._means]
        self._squares = [square[rows] for square in self._squares]
