"""The root of a search: proven bounds of all hidden neurons over the whole region, as tight as time allows.

Neurons that cheap bounds leave undecided get slopes of their own, layer after layer; then, where the search stays open,
small trees of their own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.relaxers import CROWN, FAST_LIN
from relucert.branch_and_bound.climb import Climber, join
from relucert.branch_and_bound.confirm import neuron_rows, proven_bounds
from relucert.branch_and_bound.stages import Stages
from relucert.network import Network
from relucert.region import Region
from relucert.rigor import RIGOROUS

HIDDEN_STEPS, HIDDEN_RATE = 20, 0.25
ROWS = 256  # bounded at once
REFINING_STEPS = 5
PATIENCE, LEAST_GAIN = 12, 0.01  # rounds that have to gain this share of all that was gained
MOST_LEAVES = 2**15  # of one layer's trees


def cheap_bounds(network: Network, region: Region) -> Bounds:
    """The bounds of every pre-activation by Fast-Lin and by CROWN, met."""
    known = hidden_bounds(network, region, CROWN, RIGOROUS)
    parallel = hidden_bounds(network, region, FAST_LIN, RIGOROUS)
    return {value: interval.meet(parallel[value]) for value, interval in known.items()}


@dataclass(frozen=True)
class Refining:
    """When the refinement of each layer has to end, on the monotonic clock: by shares of what is left, and at most so
    many seconds each."""

    ends: float
    most: float

    def layer_ends(self, layers_left: int) -> float:
        now = time.monotonic()
        return now + min(self.most, max(0.0, self.ends - now) / max(1, layers_left))


def rooted(network: Network, region: Region, known: Bounds, ends: float, refining: Refining | None = None) -> Stages:
    """The stages of a network, in float64, over a region, a batch of one, each bounded as well as it can be.

    known: Proven bounds of every pre-activation.
    """
    stages = Stages(network, region)
    deep = [value for value in network.rectified if network.relu_depths[value]]
    for value in network.rectified:
        interval = known[value]
        if value in deep and stages.undecided and bool(interval.unstable.any()):
            interval = _optimised(stages, value, interval, ends)
            if refining is not None and bool(interval.unstable.any()):
                until = refining.layer_ends(len(deep) - deep.index(value))
                interval = _Trees(stages, value, interval, until).run()
        stages.add(value, interval)
    return stages


def _sides(interval: Interval) -> tuple[Tensor, Tensor]:
    """Undecided neurons, each twice, and signs: lower bounds of neurons and of their negatives."""
    undecided = interval.unstable[0].nonzero().flatten()
    return undecided.repeat(2), torch.cat([torch.ones(len(undecided)), -torch.ones(len(undecided))])


def _optimised(stages: Stages, value: int, interval: Interval, ends: float) -> Interval:
    """With slopes of its own for either bound of every undecided neuron."""
    neurons, signs = _sides(interval)
    for some, sides in zip(neurons.split(ROWS), signs.split(ROWS), strict=True):
        if time.monotonic() > ends:
            break
        climber = Climber(stages, stages.maps(value, some).pick(torch.arange(len(some)), sides))
        climbed = climber.run(climber.roots(), HIDDEN_STEPS, ends, HIDDEN_RATE)
        rows = neuron_rows(stages, value, some, sides)
        interval = improved(interval, some, sides, proven_bounds(stages, rows, climbed.nodes))
    return interval


def improved(interval: Interval, neurons: Tensor, signs: Tensor, least: Tensor) -> Interval:
    """Bounds, (1, size), met with lower bounds of neurons times signs, (count,)."""
    lower, upper = (side.clone() for side in interval)
    rising, falling = signs > 0, signs < 0
    lower[0, neurons[rising]] = torch.fmax(lower[0, neurons[rising]], least[rising])
    upper[0, neurons[falling]] = torch.fmin(upper[0, neurons[falling]], -least[falling])
    return Interval(lower, upper)


class _Trees:
    """One small tree for either bound of every undecided neuron of a value, grown side by side.

    In every round each row's worst leaf is split in two. A row's bound is the least over its leaves.
    """

    def __init__(self, stages: Stages, value: int, interval: Interval, ends: float) -> None:
        self.stages, self.value, self.interval, self.ends = stages, value, interval, ends
        self.neurons, self.signs = _sides(interval)
        maps = stages.maps(value, self.neurons[: len(self.neurons) // 2])
        both = torch.arange(len(self.neurons)) % (len(self.neurons) // 2)
        self.climber = Climber(stages, maps.pick(both, self.signs))
        self.first = torch.where(self.signs > 0, interval.lower[0, self.neurons], -interval.upper[0, self.neurons])

    def run(self) -> Interval:
        """The interval with what the trees prove."""
        roots = self.climber.roots()
        parts = [
            self.climber.run(roots.pick(some), HIDDEN_STEPS, self.ends, HIDDEN_RATE)
            for some in torch.arange(len(self.neurons)).split(ROWS)
        ]
        self.leaves = join([part.nodes for part in parts])
        self.lower = torch.cat([part.lower for part in parts])
        self.scores = torch.cat([part.scores for part in parts])
        history = [float(self._least().clamp(max=0).sum())]
        while time.monotonic() < self.ends and len(self.lower) < MOST_LEAVES:
            if not self._round():
                break
            history.append(float(self._least().clamp(max=0).sum()))
            recent = history[-1] - history[max(0, len(history) - 1 - PATIENCE)]
            if len(history) > PATIENCE and recent <= LEAST_GAIN * abs(history[0]):
                break
        least = proven_bounds(self.stages, neuron_rows(self.stages, self.value, self.neurons, self.signs), self.leaves)
        rows = torch.full((len(self.neurons),), torch.inf, dtype=torch.float64)
        rows = rows.scatter_reduce(0, self.leaves.rows, torch.where(least.isnan(), -torch.inf, least), "amin")
        return improved(self.interval, self.neurons, self.signs, rows)

    def _least(self) -> Tensor:
        """The least bound of every row, as computed."""
        start = torch.full((len(self.neurons),), torch.inf)
        return start.scatter_reduce(0, self.leaves.rows, self.lower, "amin")

    def _round(self) -> bool:
        """Splits the worst leaf of every row whose neuron's sign is not proven by either side; False: none is left."""
        least = self._least()
        count = len(self.neurons) // 2
        decided = (least[:count] > 0) | (least[count:] > 0)
        order = self.lower.argsort(descending=True)
        worst = torch.zeros(len(self.neurons), dtype=torch.long)
        worst[self.leaves.rows[order]] = order
        rows = (~decided).repeat(2).nonzero().flatten()
        chosen = worst[rows]
        chosen = chosen[self.scores[chosen].amax(1) > 0] if self.climber.undecided else chosen[:0]
        if not len(chosen):
            return False
        for some in chosen.split(ROWS):
            if time.monotonic() > self.ends:
                break
            self._split(some)
        return True

    def _split(self, chosen: Tensor) -> None:
        parents = self.leaves.pick(chosen)
        halves = parents.split(self.scores[chosen].argmax(1))
        climbed = self.climber.run(halves, REFINING_STEPS, self.ends)
        lower = torch.maximum(climbed.lower, self.lower[chosen].repeat(2))
        count = len(chosen)
        for place, part in enumerate((slice(None, count), slice(count, None))):
            nodes = climbed.nodes.pick(part)
            if place == 0:
                self.leaves.signs[chosen], self.leaves.duals[chosen] = nodes.signs, nodes.duals
                self.lower[chosen], self.scores[chosen] = lower[part], climbed.scores[part]
            else:
                self.leaves = join([self.leaves, nodes])
                self.lower = torch.cat([self.lower, lower[part]])
                self.scores = torch.cat([self.scores, climbed.scores[part]])
