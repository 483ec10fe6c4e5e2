"""How many questions to work on at once: by memory, not by a flag."""

from __future__ import annotations

import math
import os

from typing_extensions import assert_never

from relucert.errors import BudgetError
from relucert.network import Activation, Affine, Network

INTERVAL = "interval"  # the method that holds few values at once
MAPS = 64  # of every value: bounds, references, costs, and what gathering them for a chunk takes
PASSING = 32  # of the largest value, where intervals go from value to value
EFFICIENT_BYTES = 2**24  # bytes of coefficients beyond which a larger batch no longer speeds up the products
ATTACK_BATCH = 32  # images to attack at once: more would gain little, and lose more to an interruption
PROCESS = 2**28  # bytes of a worker process itself, PyTorch included
USABLE = 0.75  # of the machine's memory
LARGEST_BATCH = 512  # questions beyond which a larger batch no longer saves overhead


def batch_size(network: Network, rows: int, budget: int, method: str) -> int:
    """The most questions of `rows` margins each that fit the budget, or that are worth putting in one batch."""
    need, lean = question_bytes(network, rows, method), question_bytes(network, rows, INTERVAL)
    instead = f"; the method {INTERVAL!r} needs about {_gigabytes(lean)}" if lean < need else ""
    fitting = _fitting(need, "bounds", budget, instead)
    return max(1, min(fitting, EFFICIENT_BYTES // max(1, _bytes_at_once(network, method)), LARGEST_BATCH))


def question_bytes(network: Network, rows: int, method: str) -> int:
    """The bytes that the bounds of one question of `rows` margins take."""
    if method == INTERVAL:  # intervals are dropped on the way; the search has every value at the centre
        return _bytes_at_once(network, method) + 16 * sum(network.sizes) + 32 * rows * network.classes
    return _bytes_at_once(network, method) + 32 * rows * max(network.sizes)


def _bytes_at_once(network: Network, method: str) -> int:
    """The bytes that one product has to do with: intervals go from value to value."""
    if method == INTERVAL:
        return 8 * PASSING * max(network.sizes)
    return coefficient_bytes(network) if network.suits_forward else MAPS * 8 * sum(network.sizes)


def attack_size(network: Network, starts: int, budget: int) -> int:
    """The most questions to attack at once, each from so many starts with a few points, and all values, in float64."""
    return max(1, min(_fitting(attack_bytes(network, starts), "attack", budget), ATTACK_BATCH))


def attack_bytes(network: Network, starts: int) -> int:
    """The bytes that the attack of one question takes."""
    return 8 * starts * (16 * network.sizes[0] + 2 * sum(network.sizes))


def _fitting(need: int, what: str, budget: int, instead: str = "") -> int:
    """How often the bytes needed for one image fit; instead: what else one could do where they do not."""
    if need > budget:
        enough = math.ceil(need / 2**20)  # as the command line has sizes, 1K being 1024
        size = f"{math.ceil(enough / 2**10)}G" if enough > 2**10 else f"{enough}M"
        raise BudgetError(
            f"one image needs about {_gigabytes(need)} for its {what}, and the memory budget is {_gigabytes(budget)}: "
            f"raise it (memory={enough} * 2**20, or --memory {size}){instead}"
        )
    return budget // need


def _gigabytes(amount: int) -> str:
    return f"{amount / 1e9:.2g} GB"


def coefficient_bytes(network: Network) -> int:
    """An estimate of what the forward driver's coefficients take for one question in float64, all neurons unstable."""
    symbols = [0]  # coefficients per neuron, at each value, that differ from image to image
    largest = 0
    needed = network.ancestors(network.preactivations)
    for value, node in network.steps():
        incoming = max(symbols[source] for source in node.inputs)
        if isinstance(node.operation, Affine):
            symbols.append(incoming)
            inside = sum(network.sizes[source] for source in node.inputs) + network.sizes[value]
            largest = max(largest, incoming * inside * (value in needed))
        elif isinstance(node.operation, Activation):
            symbols.append((incoming or network.sizes[0]) + network.sizes[value])
        else:
            assert_never(node.operation)
    return 8 * largest


def fitting_workers(need: int) -> int:
    """How many processes fit into the machine's memory, at least one, given the bytes that each takes."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on every system
        return max(1, os.cpu_count() or 1)
    return max(1, int(USABLE * machine) // (PROCESS + need))
