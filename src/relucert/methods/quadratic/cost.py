"""About how long certificates take, from sizes alone: whether to begin one."""

from __future__ import annotations

import math

from relucert.bounding.interval import Bounds
from relucert.methods.quadratic.intervals import MOST_JOINT, STEPS, STEPS_OWN
from relucert.methods.quadratic.joint import VECTORS
from relucert.methods.quadratic.semidefinite import SPEED
from relucert.methods.quadratic.solve import STEPS_OWN as STEPS_OF_ROW
from relucert.network import Affine, Network

PASSES = 4  # over the network, of one step
OVERHEAD = 2e-5  # seconds per operation of the network and pass

EACH = 6e-8  # seconds per form and neuron or input, of one step: the minima
MOST_SECONDS = 60.0  # that intervals may take to be tightened once


def tightening_seconds(network: Network, bounds: Bounds) -> float:
    """For tightened intervals of all layers once, from bounds that they would tighten; infinite where activations are
    not all ReLUs: every neuron would need two certificates of its own.

    About half of the neurons go on with weights of their own, each of which a matrix and its Cholesky factor prove.
    """
    if not network.rectifiers_only:
        return math.inf
    unstable = {value: int(interval.unstable.sum()) for value, interval in bounds.items()}
    seconds = 0.0
    for value, count in unstable.items():
        before = sum(number for earlier, number in unstable.items() if earlier < value)
        nodes = network.nodes[:value]
        work = sum(node.operation.work for node in nodes if isinstance(node.operation, Affine))
        if network.activation_depths[value] and before:
            minima, once = EACH * (before + network.sizes[0]), work / SPEED
            shared = STEPS * (2 * count * (PASSES * once + minima) + OVERHEAD * len(nodes))
            own = STEPS_OWN * count * ((PASSES + 2 * VECTORS) * once + minima)
            matrix = before**2 * (before + network.sizes[0]) + before**3 / 2
            seconds += shared + own + count * matrix / SPEED
    return seconds


def least_seconds(network: Network) -> float:
    """For the first certificate of one row and its proof."""
    work = sum(node.operation.work for node in network.nodes if isinstance(node.operation, Affine))
    neurons = sum(network.sizes[value] for value in network.preactivations)
    passes = STEPS_OF_ROW * (PASSES + 2 * VECTORS)
    joint = neurons <= 2 * MOST_JOINT  # about half of them are unstable
    matrix = (neurons / 2) ** 2 * (network.sizes[0] + neurons) if joint else 0
    return passes * (work / SPEED + OVERHEAD * len(network.nodes)) + matrix / SPEED
