"""Refinement of the root: branch and bound for the bounds of hidden neurons, in small trees of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.rigor import check_subnormals
from relucert.bounding.interval import Interval
from relucert.branch_and_bound.confirm import neuron_bounds
from relucert.branch_and_bound.dual_ascent import AscentResult, DualAscent, Nodes
from relucert.branch_and_bound.stages import Stages
from relucert.common.progress import Report, silent
from relucert.execution.team import current_team, workers_there

HIDDEN_STEPS, HIDDEN_RATE = 20, 0.25
REFINING_STEPS = 3
PATIENCE, LEAST_GAIN = 12, 0.001  # rounds that have to gain this share of all that is missing
LEAVES, MOST_LEAVES = 2**15, 2**18  # of one layer's trees: the first time, and ever
REFINING_SHARE = 0.6  # of the time that is left


@dataclass(frozen=True)
class Refining:
    """The effort of refining each layer.

    Attributes:
        ends: When time is over, on the monotonic clock: layers share REFINING_SHARE of the time that is left.
        most: The most seconds for one layer.
        leaves: The most leaves of one layer's trees.
    """

    ends: float
    most: float
    leaves: int = LEAVES

    def longer(self, times: float) -> Refining:
        """The effort multiplied by `times`."""
        return Refining(self.ends, self.most * times, min(MOST_LEAVES, int(self.leaves * times)))

    def fits(self, layers: int) -> bool:
        """Whether there is time for this number of layers, or this is the first refinement."""
        return self.leaves == LEAVES or time.monotonic() + layers * self.most < self.ends

    def layer_ends(self, layers_left: int) -> float:
        now = time.monotonic()
        return now + min(self.most, REFINING_SHARE * max(0.0, self.ends - now) / max(1, layers_left))


class RefinedNeurons(NamedTuple):
    """Lower bounds of neurons of a value times signs, and the leaves of the trees that prove them.

    Attributes:
        neurons, signs: (count,) each.
        leaves: Of all trees.
        bounds: What each tree proves, rounding included, (count,).
    """

    neurons: Tensor
    signs: Tensor
    leaves: Nodes
    bounds: Tensor


@dataclass(frozen=True, eq=False)
class RefinementWork:
    """The work of a team on the trees of one value's neurons."""

    stages: Stages
    value: int
    leaves: int
    most_workers: int | None = None
    divisible: bool = False

    def answer(self, shares: Sequence[Any], report: Report = silent) -> Iterator[list[RefinedNeurons | None]]:
        """What each share's neurons come to, (count,); it also has the seconds for their trees, and until no more can
        be proven."""
        check_subnormals()  # in the process that proves it
        for neurons, seconds, left in shares:
            now = time.monotonic()
            with torch.inference_mode(False), torch.no_grad():
                yield [self.refined(neurons, now + seconds, now + left)]

    def lost(self, share: Any, reason: str) -> None:
        """These neurons keep the bounds that they have."""

    def refined(self, neurons: Tensor, stop: float, ends: float) -> RefinedNeurons:
        return Refinement(self.stages, self.value, neurons, stop, self.leaves).run(ends)


def refine(stages: Stages, value: int, interval: Interval, refining: Refining, layers_left: int) -> Interval:
    """The interval of a value that is no stage yet with what trees of its unstable neurons prove."""
    neurons, now = interval.unstable[0].nonzero().flatten(), time.monotonic()
    workers, stop = workers_there(), refining.layer_ends(layers_left)
    work = RefinementWork(stages, value, -(-refining.leaves // workers))
    team = current_team()
    if team is None or workers < 2:
        results: list[RefinedNeurons | None] = [work.refined(neurons, stop, refining.ends)]
    else:
        parts = [neurons[number::workers] for number in range(workers)]
        seconds, left = (stop - now) / workers, refining.ends - now
        items = [((part, seconds, left),) for part in parts if len(part)]
        results = [result for came in team.run(work, items) for _, result in came]
    for result in results:
        if result is not None:
            if stages.record is not None:
                stages.record.offer(stages, value, *result)
            interval = improved(interval, result.neurons, result.signs, result.bounds)
    return interval


class Refinement:
    """One small tree for either bound of some unstable neurons of a value, (count,), grown together.

    In every round each row's worst leaf is split in two. A row's bound is the least over its leaves.
    """

    def __init__(self, stages: Stages, value: int, neurons: Tensor, ends: float, most: int) -> None:
        self.stages, self.value, self.ends, self.most = stages, value, ends, most
        self.neurons, self.signs = both_bounds(neurons)
        both = torch.arange(len(self.neurons)) % len(neurons)
        self.dual_ascent = DualAscent(stages, stages.maps(value, neurons).pick(both, self.signs))

    def run(self, ends: float) -> RefinedNeurons:
        """What the trees prove; ends: when no more can be proven."""
        roots = self.dual_ascent.roots()
        results = [
            self.dual_ascent.run(roots.pick(some), HIDDEN_STEPS, self.ends, HIDDEN_RATE)
            for some in torch.arange(len(self.neurons)).split(self.stages.batch_size)
        ]
        self.leaves = _Leaves(results)
        history = [self._missing()]
        while time.monotonic() + self.leaves.count * self.stages.pace < self.ends and self.leaves.count < self.most:
            if not self._round():
                break
            history.append(self._missing())
            recent = history[max(0, len(history) - 1 - PATIENCE)] - history[-1]
            if len(history) > PATIENCE and recent <= LEAST_GAIN * history[0]:
                break
        leaves = self.leaves.nodes
        bounds = neuron_bounds(self.stages, self.value, self.neurons, self.signs, leaves, ends)
        return RefinedNeurons(self.neurons, self.signs, leaves, bounds)

    def _least(self) -> Tensor:
        """The least bound of every row, as computed."""
        start = torch.full((len(self.neurons),), torch.inf)
        return start.scatter_reduce(0, self.leaves.nodes.rows, self.leaves.lower, "amin")

    def _missing(self) -> float:
        """The sum of what all rows are below zero."""
        return -float(self._least().clamp(max=0).sum())

    def _round(self) -> bool:
        """Splits the worst leaf of every row whose neuron is still unstable; False: none is left."""
        least, leaves = self._least(), self.leaves
        count = len(self.neurons) // 2
        stable = (least[:count] > 0) | (least[count:] > 0)
        order = leaves.lower.argsort(descending=True)
        worst = torch.zeros(len(self.neurons), dtype=torch.long)
        worst[leaves.nodes.rows[order]] = order
        rows = (~stable).repeat(2).nonzero().flatten()
        worst = worst[rows]
        worst = worst[leaves.score[worst] > 0] if self.dual_ascent.unstable_count else worst[:0]
        if not len(worst):
            return False
        for some in worst.split(max(1, self.stages.batch_size // 2)):
            if time.monotonic() > self.ends:
                break
            halves = leaves.nodes.pick(some).split(leaves.best[some])
            leaves.replace(some, self.dual_ascent.run(halves, REFINING_STEPS, self.ends))
        return True


class _Leaves:
    """The leaves of all trees, in tables that grow."""

    def __init__(self, results: list[AscentResult]) -> None:
        self._tables = [torch.cat(columns) for columns in zip(*map(_columns, results), strict=True)]
        self.count = len(self._tables[0])

    @property
    def nodes(self) -> Nodes:
        return Nodes(*(table[: self.count] for table in self._tables[:3]))

    @property
    def lower(self) -> Tensor:
        """Bounds as computed, (count,)."""
        return self._tables[3][: self.count]

    @property
    def score(self) -> Tensor:
        """How much the neuron to split matters, (count,)."""
        return self._tables[4][: self.count]

    @property
    def best(self) -> Tensor:
        """The neuron to split, (count,)."""
        return self._tables[5][: self.count]

    def replace(self, indices: Tensor, halves: AscentResult) -> None:
        """Replaces each of some leaves by its two halves; `halves` has those of the sign 1 first, then those of -1."""
        lower = torch.maximum(halves.lower, self.lower[indices].repeat(2))
        after = self.count + len(indices)
        if after > len(self._tables[0]):
            self._tables = [_grown(table, 2 * after) for table in self._tables]
        both = torch.cat([indices, torch.arange(self.count, after)])
        for table, numbers in zip(self._tables, _columns(replace(halves, lower=lower)), strict=True):
            table[both] = numbers
        self.count = after


def _columns(result: AscentResult) -> tuple[Tensor, ...]:
    """The rows, signs and duals of nodes, their bounds, and the scores and numbers of the neurons to split."""
    scores = result.scores
    if scores.shape[1]:
        return *result.nodes, result.lower, *scores.max(1)
    return *result.nodes, result.lower, scores.new_zeros(len(scores)), torch.zeros(len(scores), dtype=torch.long)


def _grown(table: Tensor, size: int) -> Tensor:
    larger = table.new_zeros(size, *table.shape[1:])
    larger[: len(table)] = table
    return larger


def both_bounds(neurons: Tensor) -> tuple[Tensor, Tensor]:
    """Both bounds of neurons, (count,): the index of each, and the sign 1 for its lower bound, -1 for its upper one."""
    return neurons.repeat(2), torch.cat([torch.ones(len(neurons)), -torch.ones(len(neurons))])


def improved(interval: Interval, neurons: Tensor, signs: Tensor, least: Tensor) -> Interval:
    """The intersection of bounds, (1, size), with lower bounds of some neurons times signs, (count,)."""
    lower, upper = (bound.clone() for bound in interval)
    rising, falling = signs > 0, signs < 0
    lower[0, neurons[rising]] = torch.fmax(lower[0, neurons[rising]], least[rising])
    upper[0, neurons[falling]] = torch.fmin(upper[0, neurons[falling]], -least[falling])
    return Interval(lower, upper)
