"""Bounds of the hidden layers, by whichever driver has less to multiply."""

from __future__ import annotations

from relucert.bounding.backward import backward
from relucert.bounding.forward import forward
from relucert.bounding.interval import Bounds
from relucert.bounding.relaxers import Relaxer
from relucert.network import Network
from relucert.region import Region
from relucert.rigor import Arithmetic


def hidden_bounds(network: Network, region: Region, relaxer: Relaxer, arithmetic: Arithmetic) -> Bounds:
    """Bounds of every pre-activation by a relaxer: forward or backward, of unstable neurons only."""
    if not network.rectified:
        return {}
    if relaxer.parallel and network.suits_forward:
        return forward(network, region, relaxer, arithmetic, network.rectified)
    return backward(network, region, relaxer, arithmetic, network.rectified[-1:], unstable_only=True)
