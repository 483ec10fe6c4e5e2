"""Gradients of margins at sampled points: one forward evaluation, then one backward pass for all rivals.

The gradient is the same all over a linear region, so points of one activation pattern are pulled back once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from relucert.arithmetic.norm import Norm
from relucert.network import Network
from relucert.network.linear_regions import derivatives_at, pulled_gradients

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
        derivatives, count = _distinct(network, draw(min(step, samples - first)))
        gradients = pulled_gradients(network, derivatives, network.output, rows.expand(count, *rows.shape))
        if scale is not None:
            gradients = gradients * scale
        largest = torch.maximum(largest, norm.dual_length(gradients, -1).amax(0))
    return largest


def _distinct(network: Network, points: Tensor) -> tuple[dict[int, Tensor], int]:
    """The derivatives of all activations at distinct points, and the number of these points: of a ReLU network's points
    one per activation pattern, and a single point where it has no ReLU."""
    derivatives = derivatives_at(network, points)
    if not network.rectifiers_only:
        return derivatives, len(points)
    if not derivatives:
        return derivatives, 1
    packed = np.packbits(torch.cat([table > 0 for table in derivatives.values()], 1).numpy(), axis=1)
    _, first = np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_index=True)
    return {value: table[torch.from_numpy(first)] for value, table in derivatives.items()}, len(first)
