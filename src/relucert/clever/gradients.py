"""Gradients of margins at sampled points: one forward evaluation, then one backward pass for all rivals.

The gradient is the same all over a linear region, so points of one activation pattern are pulled back once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from relucert.linear_regions import Pattern, form_gradients, pattern_at
from relucert.network import Network
from relucert.norm import Norm

FORM_BYTES = 2**25  # memory for the linear forms of the samples handled at once


def largest_gradients(
    network: Network, draw: Callable[[int], Tensor], rows: Tensor, norm: Norm, scale: Tensor | None, samples: int
) -> Tensor:
    """The largest dual norm of every linear form's gradient over randomly drawn points: (forms,).

    draw: gives points, (count, size), for a count; rows: (forms, classes), the linear forms; scale: that of
    the input's coordinates, (size,), or None; samples: how many points.
    """
    step = max(1, FORM_BYTES // (rows.element_size() * len(rows) * max(network.sizes)))
    largest = torch.zeros(len(rows), dtype=rows.dtype)
    for first in range(0, samples, step):
        pattern, count = _distinct(pattern_at(network, draw(min(step, samples - first))))
        gradients = form_gradients(network, pattern, network.output, rows.expand(count, *rows.shape))
        if scale is not None:
            gradients = gradients * scale
        largest = torch.maximum(largest, norm.dual_length(gradients, -1).amax(0))
    return largest


def _distinct(pattern: Pattern) -> tuple[Pattern, int]:
    """Every activation pattern once, and how many there are; without a ReLU there is one."""
    if not pattern:
        return pattern, 1
    packed = np.packbits(torch.cat(list(pattern.values()), 1).numpy(), axis=1)
    _, places = np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_index=True)
    return {value: active[torch.from_numpy(places)] for value, active in pattern.items()}, len(places)
