"""Large tensors in slices of a cache's size, and large products in chunks that take a moment each."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from relucert.common.deadline import check_time

SLICE_BYTES = 2**18  # of a slice, which stays in a core's cache
CHUNK_BYTES = 2**27  # memory of one chunk of a product
CHUNK_WORK = 2**33  # multiplications of one matrix product: less than half a second of one core


def slices(values: Tensor, dim: int) -> Sequence[Tensor]:
    """Slices along a dimension, each small enough to stay in the cache with the results of an operation on it."""
    size = values.numel() * values.element_size()
    if size <= 2 * SLICE_BYTES:
        return (values,)
    chunks: Sequence[Tensor] = values.split(max(1, values.shape[dim] * SLICE_BYTES // size), dim)
    return chunks


def absolute_sum(values: Tensor, dim: int) -> Tensor:
    """The sum of absolute values along a dimension."""
    return torch.stack([piece.abs().sum(dim) for piece in slices(values, dim)]).sum(0)


def in_chunks(function: Callable[[Tensor], Tensor], rows: Tensor, step: int) -> Tensor:
    """Applies a function to rows, at most `step` of them at once; each row's result depends on that row alone.

    Raises TimeUp between two chunks once time is over.
    """
    if len(rows) <= step:
        return function(rows)
    results = []
    for chunk in rows.split(max(1, step)):
        check_time()
        results.append(function(chunk))
    return torch.cat(results)
