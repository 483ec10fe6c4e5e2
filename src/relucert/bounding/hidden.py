"""Bounds of the hidden layers (intermediate bounds), by whichever driver takes fewer multiplications."""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.backward import backward
from relucert.bounding.forward import forward
from relucert.bounding.interval import Bounds, propagate
from relucert.bounding.relaxers import Relaxer
from relucert.network import Network


def hidden_bounds(network: Network, region: Region, relaxer: Relaxer, arithmetic: Arithmetic) -> Bounds:
    """Bounds of every pre-activation by a relaxer: forward or backward, of unstable neurons only."""
    if not network.preactivations:
        return {}
    if relaxer.parallel and network.suits_forward:
        return forward(network, region, relaxer, arithmetic, network.preactivations)
    return backward(network, region, relaxer, arithmetic, network.preactivations, unstable_only=True)


def bounded_by_relaxation(
    network: Network, region: Region, bounds: Bounds, arithmetic: Arithmetic
) -> dict[int, Tensor]:
    """Which neurons the backward driver bounds more tightly than intervals do, (batch, size) for every pre-activation:
    those that intervals leave unstable."""
    tight = {}
    for value, interval in bounds.items():
        if network.activation_depths[value]:
            by_intervals = propagate(network, region, bounds, value, arithmetic)
            tight[value] = ~(network.stable(value, *by_intervals) & network.stable(value, *interval))
        else:
            tight[value] = torch.ones_like(interval.lower, dtype=torch.bool)
    return tight
