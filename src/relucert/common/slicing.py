"""Large tensors in slices of a cache's size, and large products in chunks that take a moment each."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from relucert.common.deadline import check_time

SLICE_BYTES = 2**18  # of a slice, which stays in a core's cache
PART_BYTES = 2**27  # that a step of a product may hold at once
PART_WORK = 2**33  # multiplications of one matrix product: less than half a second of one core


def slices(values: Tensor, dim: int) -> Sequence[Tensor]:
    """Slices along a dimension, each small enough that what is computed of it stays in the cache."""
    size = values.numel() * values.element_size()
    if size <= 2 * SLICE_BYTES:
        return (values,)
    chunks: Sequence[Tensor] = values.split(max(1, values.shape[dim] * SLICE_BYTES // size), dim)
    return chunks


def absolute_sum(values: Tensor, dim: int) -> Tensor:
    """The sum of absolute values along a dimension."""
    return torch.stack([piece.abs().sum(dim) for piece in slices(values, dim)]).sum(0)


def in_parts(function: Callable[[Tensor], Tensor], rows: Tensor, step: int) -> Tensor:
    """Applies a function to rows, at most `step` of them at once; each row's result depends on that row alone.

    Raises TimeUp between two parts once time is over.
    """
    if len(rows) <= step:
        return function(rows)
    parts = []
    for part in rows.split(max(1, step)):
        check_time()
        parts.append(function(part))
    return torch.cat(parts)
