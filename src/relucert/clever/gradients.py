"""Gradients of margins at sampled points: one evaluation of the network, then all rivals' forms back through it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from relucert.linear_regions import pattern_at, pull_back
from relucert.network import Network
from relucert.norm import Norm

FORM_BYTES = 2**25  # what the forms of some samples may take at once


def gradients(network: Network, points: Tensor, rows: Tensor) -> Tensor:
    """Of forms on the output, rows (forms, classes), at points (count, size): (count, forms, size)."""
    return pull_back(network, pattern_at(network, points), network.output, rows.expand(len(points), *rows.shape))


def largest_gradients(
    network: Network, draw: Callable[[int], Tensor], rows: Tensor, norm: Norm, samples: int
) -> Tensor:
    """The largest dual norm of every form's gradient over so many drawn points: (forms,)."""
    step = max(1, FORM_BYTES // (rows.element_size() * len(rows) * max(network.sizes)))
    largest = torch.zeros(len(rows), dtype=rows.dtype)
    for first in range(0, samples, step):
        found = gradients(network, draw(min(step, samples - first)), rows)
        largest = torch.maximum(largest, norm.dual_length(found, -1).amax(0))
    return largest
