"""Branch and bound for one question: how near is the nearest adversarial point?

A ball is proven free of adversarial points by proving parts of it free. A part that can't be is split in two by the
sign of one neuron. The balls proven grow, from what is certified at once to just below the nearest point known; the
parts found for one ball are where the next one starts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from relucert.attacks.polish import Polisher
from relucert.attacks.witness import Judge, Witness
from relucert.branch_and_bound import leaf
from relucert.branch_and_bound.nodes import Bounded, Nodes, Region, join
from relucert.branch_and_bound.proof import Tree

STEPS = 20  # of the ascent, at a node
LONG = 400  # at a leaf that no program settles
GROWTH = 1.5  # of the radius, from one ball to the next
FIRST = 64  # share of the goal to start with where nothing is certified
INSIDE = 0.9  # share of the tolerance by which the last ball stays below the nearest point
CROWD = 256  # nodes at once
SPELL = 0.4  # seconds that a batch of nodes may take
ENDLESS = 1e6  # how many times the image's size a ball may have where nothing adversarial is known
LEAF_SECONDS = 10.0

Report = Callable[[int, float, "float | None"], None]


@dataclass(eq=False)
class Search:
    """lower: the largest radius proven; witness: the nearest adversarial point known; nodes: how many were bounded.

    certified: a radius that is proven without a search. Where the search is recorded it is proven once more.
    """

    region: Region
    judge: Judge
    label: int
    rivals: list[int]
    tolerance: float
    ends: float
    certified: float
    witness: Witness | None
    report: Report
    tree: Tree | None = None
    lower: float = 0.0
    nodes: int = 0
    failure: str | None = None
    _proven: list[Nodes] = field(default_factory=list)
    _least: float = math.inf  # of the radii at which the nodes in `_proven` are
    _pace: float = SPELL  # seconds a node

    @property
    def whole(self) -> float:
        """A radius that no valid point is beyond."""
        region = self.region
        if region.box is None:
            return math.inf
        low, high = (torch.full_like(region.centre, end) for end in region.box)
        farthest = torch.where(region.centre - low > high - region.centre, low, high)
        return float(self.judge.farthest(farthest, region.centre))

    @property
    def goal(self) -> float:
        """The radius whose proof ends the search."""
        if self.witness is None:
            return self.whole
        return max(self.certified, self.witness.distance * (1 - INSIDE * self.tolerance))

    def run(self) -> None:
        limit = ENDLESS * (1 + float(self.region.centre.abs().max()))
        self.lower = self.certified if self.tree is None else 0.0
        self._proven = [self.region.roots()]
        while self.lower < self.goal and self.lower < limit:
            step = self.lower * GROWTH or self.certified or min(self.goal, limit) / FIRST
            proven = self._prove(min(self.goal, step))
            if proven is None:
                return
            self.lower = max(self.lower, proven)

    def _prove(self, radius: float) -> float | None:
        """Proves the ball of a radius, or of the goal's where that falls below it; None where it can't be done."""
        waiting, self._proven, self._least = self._proven, [], math.inf
        while waiting:
            radius = min(radius, self.goal)
            if radius <= self.lower:
                return self.lower
            count = max(1, min(CROWD, int(SPELL / self._pace)))
            stack = waiting.pop()
            if len(stack) < count and waiting:
                waiting.append(join([waiting.pop(), stack]))
                continue
            if len(stack) > count:
                waiting.append(stack.pick(slice(None, -count)))
                stack = stack.pick(slice(-count, None))
            began = time.monotonic()
            if began > self.ends:
                self.failure = "the time limit ended the search"
                return None
            waiting += self._visit(stack, radius)
            if self.failure is not None:
                return None
            self.nodes += len(stack)
            self._pace = max(1e-6, (time.monotonic() - began) / len(stack))
            self.report(self.nodes, self.lower, None if self.witness is None else self.witness.distance)
        return self._least

    def _visit(self, nodes: Nodes, radius: float) -> list[Nodes]:
        """Bounds nodes, keeps those that are proven, and returns what the others are split into."""
        held = self.region.enclosed(nodes, radius)
        self._close(held.nodes.pick(held.empty), radius, empty=True)
        held = held.pick((~held.empty).nonzero().flatten())
        if not len(held.nodes):
            return []
        better, weights = self.region.climbed(held, radius, STEPS, self.ends)
        free = self.region.least(held, better, radius) > 0
        self._close(better.pick(free), radius)
        rest = (~free).nonzero().flatten()
        weights, held, better = weights[rest], held.pick(rest), better.pick(rest)
        decided = weights.amax(1) <= 0 if weights.shape[1] else torch.ones(len(rest), dtype=torch.bool)
        for place in decided.nonzero().flatten():
            self._settle(held.pick(place[None]), better.pick(place[None]), radius)
            if self.failure is not None:
                return []
        split = (~decided).nonzero().flatten()
        if not len(split):
            return []
        chosen, parents = weights[split].argmax(1), better.pick(split)
        names = parents.names.repeat(2) if self.tree is None else self.tree.split(parents.names, chosen)
        return [parents.split(chosen, names)]

    def _settle(self, held: Bounded, best: Nodes, radius: float) -> None:
        """Proves a leaf at the radius, or at the goal's that a nearer adversarial point in it leads to."""
        seconds = max(0.01, min(LEAF_SECONDS, self.ends - time.monotonic()))
        for point, nodes in leaf.nearest(self.region, held, seconds):
            self.offer(point)
            if self._free(held, nodes, min(radius, self.goal)):
                return
        better, _ = self.region.climbed(replace(held, nodes=best), radius, LONG, self.ends, torch.float64)
        if self._free(held, better, min(radius, self.goal)):
            return
        late = time.monotonic() > self.ends
        self.failure = "the time limit ended the search" if late else "a leaf of the search could not be settled"

    def _free(self, held: Bounded, nodes: Nodes, radius: float) -> bool:
        proven = bool(self.region.least(held, nodes, radius) > 0)
        if proven:
            self._close(nodes, radius)
        return proven

    def offer(self, point: Tensor) -> None:
        """Takes a point for the witness, and what the polish makes of it, if it passes and is nearer."""
        region = self.region
        found = self.judge.beyond(region.centre, point, self.label, self.rivals)
        if found is not None and (self.witness is None or found.distance < self.witness.distance):
            ends = min(self.ends, time.monotonic() + LEAF_SECONDS)
            self.witness = Polisher(self.judge, region.centre, self.label, self.rivals, found, ends).run()

    def _close(self, nodes: Nodes, radius: float, empty: bool = False) -> None:
        if len(nodes):
            self._proven.append(nodes)
            self._least = min(self._least, radius)
            if self.tree is not None:
                self.tree.close(nodes, radius, empty)
