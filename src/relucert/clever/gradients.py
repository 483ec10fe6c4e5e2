"""Gradients of margins at sampled points: one forward evaluation, then one backward pass for all rivals."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from relucert.linear_regions import form_gradients, pattern_at
from relucert.network import Network
from relucert.norm import Norm

FORM_BYTES = 2**25  # memory for the linear forms of the samples handled at once


def gradients(network: Network, points: Tensor, rows: Tensor) -> Tensor:
    """Gradients of linear forms on the network's output: (count, forms, size).

    points: (count, size), where the gradients are taken; rows: (forms, classes), the linear forms.
    """
    return form_gradients(network, pattern_at(network, points), network.output, rows.expand(len(points), *rows.shape))


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
        sampled_gradients = gradients(network, draw(min(step, samples - first)), rows)
        if scale is not None:
            sampled_gradients = sampled_gradients * scale
        largest = torch.maximum(largest, norm.dual_length(sampled_gradients, -1).amax(0))
    return largest
