"""About how long a certificate takes, from sizes alone: whether to begin one."""

from __future__ import annotations

from itertools import pairwise

from relucert.methods.quadratic.products import SPEED
from relucert.methods.quadratic.solve import EFFORT, Effort
from relucert.network import INPUT, Network

RANK = 16


def least_seconds(network: Network, rows: int | None = None, effort: Effort = EFFORT) -> float:
    """For the first certificate of one row and its proof.

    rows: Of the matrix; by default as many as there may be.
    """
    hidden = [network.sizes[value] for value in network.preactivations]
    widths = [network.sizes[INPUT], *hidden]
    size = sum(widths[:-1]) if rows is None else rows
    maps = sum(before * after for before, after in pairwise(widths))
    square, neurons = size * size, sum(hidden)
    power = 2 * effort.power_rounds * 2 * RANK * maps
    factors = 2 * size * square + 2 * square * neurons
    ascent = effort.steps * (3 * square + 4 * maps)
    proof = 2 * (size * square + square * neurons)  # in float64, at half the speed
    return (power + factors + ascent + proof) / SPEED
