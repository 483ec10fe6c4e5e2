"""Products of large matrices, some rows at a time: between them time may be over."""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.common.deadline import check_time

MOST_PRODUCTS = 2**32  # at a time: under a second
SPEED = 1.5e10  # products a second, about, of a core that is not alone


def product(one: Tensor, other: Tensor) -> Tensor:
    """`one @ other`."""
    parts = []
    for rows in one.split(max(1, MOST_PRODUCTS // max(1, other.numel()))):
        check_time()
        parts.append(rows @ other)
    return torch.cat(parts)


def add_squares(total: Tensor, rows: Tensor, factor: float = 1.0) -> None:
    """Adds `factor * rows.T @ rows` to a matrix."""
    for part in rows.split(max(1, MOST_PRODUCTS // max(1, rows.shape[1] ** 2))):
        check_time()
        total.addmm_(part.T, part, alpha=factor)


def cholesky_seconds(size: int) -> float:
    """About how long it takes to factorise a matrix (size, size) in float32, which can't be done in parts."""
    return size**3 / 6 / SPEED
