"""The prover: does a property hold in a region? Proven, a witness against it, or unknown, and why.

A region is proven by proving parts of it. A part that can't be is split in two by the sign of one neuron.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from relucert.attacks.witness import Witness
from relucert.branch_and_bound import leaf
from relucert.branch_and_bound.nodes import BoundedNodes, NodeBounder, Nodes, join
from relucert.branch_and_bound.proof import Tree
from relucert.branch_and_bound.tree import LATE
from relucert.query.property import Property

STEPS = 20  # of the ascent, at a node
LONG = 400  # at a leaf that no program settles
CROWD = 256  # nodes at once
SPELL = 0.4  # seconds that a batch of nodes may take
LEAF_SECONDS = 10.0


class WitnessJudge(Protocol):
    """Who says whether a point is a violation."""

    def beyond(self, centre: Tensor, point: Tensor, prop: Property) -> Witness | None:
        """The point (size,), or one slightly farther from the centre, that violates the property."""


@dataclass(eq=False)
class Attempt:
    """What came of proving one region.

    Attributes:
        closed: The parts that are proven.
        open: The parts that are left; none: the property holds in the region.
        failure: Why the search stopped; None where it is done, or where a witness in the region ended it.
    """

    closed: list[Nodes] = field(default_factory=list)
    open: list[Nodes] = field(default_factory=list)
    failure: str | None = None

    @property
    def proven(self) -> bool:
        return not self.open and self.failure is None


@dataclass(eq=False)
class Prover:
    """Proves regions of growing or shrinking radius for one question.

    Attributes:
        witness: The nearest violation known, whether or not it is within the radius asked about.
        nodes: How many nodes were bounded.
        tree: The record of all splits, where one is kept.
        report: Called now and then with the nodes bounded so far.
    """

    bounder: NodeBounder
    judge: WitnessJudge
    ends: float
    witness: Witness | None = None
    tree: Tree | None = None
    report: Callable[[int], None] = lambda nodes: None
    nodes: int = 0
    _pace: float = SPELL  # seconds for one node

    def run(self, radius: float, parts: list[Nodes]) -> Attempt:
        """Tries to prove that no violation is within the radius, in these parts of the region."""
        attempt = Attempt(open=list(parts))
        waiting = attempt.open
        while waiting and attempt.failure is None and not self._violated(radius):
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
                waiting.append(stack)
                attempt.failure = LATE
                break
            self._visit(stack, radius, attempt)
            self.nodes += len(stack)
            self._pace = max(1e-6, (time.monotonic() - began) / len(stack))
            self.report(self.nodes)
        return attempt

    def _violated(self, radius: float) -> bool:
        return self.witness is not None and self.witness.distance <= radius

    def _visit(self, nodes: Nodes, radius: float, attempt: Attempt) -> None:
        """Bounds nodes, closes those that are proven, and leaves open what the others are split into."""
        bounded = self.bounder.enclosed(nodes, radius)
        self._close(bounded.nodes.pick(bounded.empty), radius, attempt, empty=True)
        bounded = bounded.pick((~bounded.empty).nonzero().flatten())
        if not len(bounded.nodes):
            return
        better, weights = self.bounder.climbed(bounded, radius, STEPS, self.ends)
        free = self.bounder.least(bounded, better, radius) > 0
        self._close(better.pick(free), radius, attempt)
        rest = (~free).nonzero().flatten()
        weights, bounded, better = weights[rest], bounded.pick(rest), better.pick(rest)
        decided = weights.amax(1) <= 0 if weights.shape[1] else torch.ones(len(rest), dtype=torch.bool)
        split = (~decided).nonzero().flatten()
        if len(split):
            chosen, parents = weights[split].argmax(1), better.pick(split)
            names = parents.names.repeat(2) if self.tree is None else self.tree.split(parents.names, chosen)
            attempt.open.append(parents.split(chosen, names))
        for place in decided.nonzero().flatten():
            self._settle(bounded.pick(place[None]), better.pick(place[None]), radius, attempt)

    def _settle(self, bounded: BoundedNodes, best: Nodes, radius: float, attempt: Attempt) -> None:
        """Proves a leaf, or leaves it open where a violation or a failure ends the search."""
        seconds = max(0.01, min(LEAF_SECONDS, self.ends - time.monotonic()))
        for point, nodes in leaf.nearest(self.bounder, bounded, seconds):
            self.offer(point)
            if self._free(bounded, nodes, radius, attempt):
                return
            if self._violated(radius):
                break
        else:
            better, _ = self.bounder.climbed(replace(bounded, nodes=best), radius, LONG, self.ends, torch.float64)
            if self._free(bounded, better, radius, attempt):
                return
            late = time.monotonic() > self.ends
            attempt.failure = LATE if late else "a leaf of the search could not be settled"
        attempt.open.append(best)

    def _free(self, bounded: BoundedNodes, nodes: Nodes, radius: float, attempt: Attempt) -> bool:
        proven = bool(self.bounder.least(bounded, nodes, radius) > 0)
        if proven:
            self._close(nodes, radius, attempt)
        return proven

    def offer(self, point: Tensor) -> None:
        """Takes a point for the witness if it passes and is nearer."""
        candidate = self.judge.beyond(self.bounder.centre, point, self.bounder.prop)
        if candidate is not None and (self.witness is None or candidate.distance < self.witness.distance):
            self.witness = candidate

    def _close(self, nodes: Nodes, radius: float, attempt: Attempt, empty: bool = False) -> None:
        if len(nodes):
            attempt.closed.append(nodes)
            if self.tree is not None:
                self.tree.close(nodes, radius, empty)
