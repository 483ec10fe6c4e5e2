"""The root of a search: proven bounds of all hidden neurons over the whole region, as tight as time allows.

Neurons that cheap bounds leave unstable get slopes of their own (alpha-CROWN), layer after layer; then, where the
search stays open, small trees of their own.
"""

from __future__ import annotations

import time

import torch

from relucert.arithmetic.region import Region
from relucert.bounding.interval import Bounds, Interval
from relucert.branch_and_bound.confirm import neuron_bounds
from relucert.branch_and_bound.dual_ascent import DualAscent
from relucert.branch_and_bound.refine import HIDDEN_RATE, HIDDEN_STEPS, Refining, both_bounds, improved, refine
from relucert.branch_and_bound.search_record import SearchRecord
from relucert.branch_and_bound.stages import Stages, folds
from relucert.network import Network


def rooted(
    network: Network, region: Region, bounds: Bounds, ends: float,
    refining: Refining | None = None, record: SearchRecord | None = None,
) -> Stages:  # fmt: skip
    """The stages of a network, in float64, over one region, each bounded as tightly as time allows.

    bounds: Proven bounds of every pre-activation; with a record the cheap ones.
    """
    stages = Stages(network, region, folds(network, bounds), record=record)
    deep = [value for value in network.preactivations if network.activation_depths[value]]
    for value in network.preactivations:
        interval = bounds[value] if record is None else record.repeated(stages, value, bounds[value], ends)
        if value in deep and stages.unstable_count and bool(interval.unstable.any()):
            interval = _optimised(stages, value, interval, ends)
            if refining is not None and bool(interval.unstable.any()):
                interval = refine(stages, value, interval, refining, len(deep) - deep.index(value))
        if record is not None:
            record.settle(value, bounds[value], interval)
        stages.add(value, interval)
    return stages


def _optimised(stages: Stages, value: int, interval: Interval, ends: float) -> Interval:
    """The interval, improved by optimised slopes for either bound of every unstable neuron (alpha-CROWN)."""
    neurons, signs = both_bounds(interval.unstable[0].nonzero().flatten())
    for some, sign in zip(neurons.split(stages.batch_size), signs.split(stages.batch_size), strict=True):
        if time.monotonic() > ends:
            break
        dual_ascent = DualAscent(stages, stages.maps(value, some).pick(torch.arange(len(some)), sign))
        result = dual_ascent.run(dual_ascent.roots(), HIDDEN_STEPS, ends, HIDDEN_RATE)
        least = neuron_bounds(stages, value, some, sign, result.nodes)
        if stages.record is not None:
            stages.record.offer(stages, value, some, sign, result.nodes, least)
        interval = improved(interval, some, sign, least)
    return interval
