"""About how long certificates take, from sizes alone: whether to begin one."""

from __future__ import annotations

from relucert.methods.quadratic.intervals import MOST_JOINT
from relucert.methods.quadratic.joint import VECTORS
from relucert.methods.quadratic.semidefinite import SPEED
from relucert.methods.quadratic.solve import EFFORT, Effort
from relucert.network import Affine, Network

PASSES = 4  # over the network, of one step
OVERHEAD = 2e-5  # seconds per operation of the network and pass


def least_seconds(network: Network, effort: Effort | None = None) -> float:
    """For the first certificate of one row and its proof."""
    effort = effort or EFFORT
    work = sum(node.operation.work for node in network.nodes if isinstance(node.operation, Affine))
    neurons = sum(network.sizes[value] for value in network.preactivations)
    own = neurons <= 2 * MOST_JOINT  # about half of them are unstable
    steps = effort.own if own else effort.shared
    passes = steps * (PASSES + (2 * VECTORS if own else 0))
    matrix = (neurons / 2) ** 2 * (network.sizes[0] + neurons) if own else 0
    return passes * (work / SPEED + OVERHEAD * len(network.nodes)) + matrix / SPEED
