"""Large tensors in slices of a cache's size."""

from collections.abc import Sequence

import torch
from torch import Tensor

SLICE_BYTES = 2**18


def slices(values: Tensor, dim: int) -> Sequence[Tensor]:
    """Pieces along a dimension, each small enough for a cache: what is made of them is not made in fresh memory."""
    size = values.numel() * values.element_size()
    if size <= 2 * SLICE_BYTES:
        return (values,)
    pieces: Sequence[Tensor] = values.split(max(1, values.shape[dim] * SLICE_BYTES // size), dim)
    return pieces


def absolute_sum(values: Tensor, dim: int) -> Tensor:
    """The sum of absolute values along a dimension."""
    return torch.stack([part.abs().sum(dim) for part in slices(values, dim)]).sum(0)
