"""The nodes below one root, and what is done with each: an ascent, a proof, a split, and at last a program."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from relucert.answers.verdicts import LATE
from relucert.bounding.interval import Bounds, Interval
from relucert.branch_and_bound import leaf
from relucert.branch_and_bound.confirm import OutputRows, proven_bounds
from relucert.branch_and_bound.descent import Descent, inside
from relucert.branch_and_bound.dual_ascent import AscentResult, DualAscent, Nodes, join
from relucert.branch_and_bound.implied import Propagation, refutations, with_implied
from relucert.branch_and_bound.propagation import Implied
from relucert.branch_and_bound.stages import Stages
from relucert.branch_and_bound.subtrees import Ended, Visitor
from relucert.query.problem import Problem

STEPS = 15  # of the ascent of a node
LONG_STEPS = 60  # of the second ascent of nodes that it leaves open, where that is worth it
LONG_TRIAL = 32  # nodes of a visit that are tried with it, at most, before it is known to be
LONG_VISITS = 16  # before it is tried: small trees end without it
LONG_SHARE = 0.1  # of the nodes that it has to prove; tuned on WK17a next to minimum distortions and on oval21
ROOT_STEPS = 40
LAST_STEPS = 200  # where no neuron is left to split
DESCENTS = 16  # from the points of one visit, at most
DESCENT_VISITS = 4  # of so many visits one has descents, which take about a tenth of the time then
LEAF_SECONDS = 10.0  # of the program of one leaf
UNSETTLED = "a leaf of the search could not be settled"


class NodeTree:
    """The tree of some rows of a property over the stages of one root.

    Attributes:
        problem: A batch of one.
        stages: The root.
        open_rows: The rows, by their numbers in the property, (rows,); nodes number them in this order.
        dual_ascent: Bounds nodes.
        descent: Looks for violations from where relaxed rows are least.
        rows: The rows for proofs.
    """

    def __init__(self, problem: Problem, stages: Stages, open_rows: Tensor) -> None:
        self.problem, self.stages, self.open_rows = problem, stages, open_rows
        output = problem.exact.output
        forms, offsets = problem.prop.rows[0, open_rows], problem.prop.offsets[0, open_rows]
        self.dual_ascent = DualAscent(stages, stages.pulled(output, forms, offsets))
        self.descent = Descent(self.dual_ascent)
        self.rows = OutputRows(output, forms, offsets)

    @cached_property
    def propagation(self) -> Propagation:
        """Proposes signs that nodes imply."""
        return Propagation(self.dual_ascent, self.problem.region)

    def visitor(self, ends: float, violates: Callable[[Tensor], bool]) -> NodeVisitor:
        """A visitor that keeps what it closed."""
        return NodeVisitor(self.problem, violates, self, ends)


@dataclass(eq=False)
class NodeVisitor(Visitor[Nodes]):
    """Bounds nodes, and splits those that are not proven by the sign of a neuron.

    Attributes:
        tree: The tree of the nodes.
        ends: When time is over, on the monotonic clock.
        visits: How many batches of nodes were visited.
        long: Whether second, longer ascents proved enough nodes of the last visit that had some.
        closed: Proven nodes, where the search is recorded.
    """

    tree: NodeTree
    ends: float
    visits: int = 0
    long: bool = False
    closed: list[Nodes] = field(default_factory=list)

    @property
    def batch_size(self) -> int:
        return self.tree.stages.batch_size

    def roots(self) -> tuple[Nodes, Tensor]:
        """The root nodes of all rows after a long ascent, and which of them are proven, (rows,)."""
        dual_ascent = self.tree.dual_ascent
        result = dual_ascent.run(dual_ascent.roots(), ROOT_STEPS, self.ends)
        self.nodes += result.nodes.size
        proven = self._proven(result.nodes)
        self._close(result.nodes.pick(proven))
        if not bool(proven.all()):
            self._descend(result.pick(~proven))
        return result.nodes, proven

    def visit(self, nodes: Nodes) -> Nodes:
        """Bounds nodes and closes what it can; returns the rest, each split in two."""
        before, self.visits = len(self.closed), self.visits + 1
        try:
            return self._visit(nodes)
        except BaseException:
            del self.closed[before:]  # all nodes of a visit that breaks off stay open
            raise

    def recorded(self) -> list[Nodes]:
        return self.closed

    def merge_record(self, nodes: Nodes, recorded: list[Nodes] | None) -> Nodes:
        self.closed += recorded or []
        return nodes

    def _visit(self, nodes: Nodes) -> Nodes:
        result, propagation = self._bounded(nodes), self.tree.propagation
        if not result.nodes.size or not propagation.worthwhile:
            return _halves(result)
        implied = propagation.propose(result.nodes)
        stuck = implied.empty & ~implied.signs.any(1)
        contradictory = propagation.start(result.nodes.pick(stuck))
        stubborn = self._bounded(contradictory, LAST_STEPS)  # to find what the contradiction is
        left, signs = result.pick(~stuck), implied.pick(~stuck)
        others = self._bounded(refutations(left.nodes, signs))
        propagation.judge(implied, others.nodes.size)
        if left.nodes.size and propagation.dives():
            self._offer(propagation.dive(left.nodes))
        return join([_halves(left, signs), _halves(others), _halves(stubborn)])

    def _bounded(self, nodes: Nodes, steps: int = STEPS) -> AscentResult:
        """Bounds nodes and closes what it can; returns the rest, in which neurons can be split."""
        dual_ascent = self.tree.dual_ascent
        if not nodes.size:
            return AscentResult(torch.zeros(0), nodes, nodes.duals, torch.zeros(0, len(self.tree.problem.centre)))
        result = dual_ascent.run(nodes, steps, self.ends, enough=0.0)
        if self.long or (self.visits >= LONG_VISITS and not self.visits & (self.visits - 1)):  # 16, 32, 64, ...
            result = self._prolonged(result)
        self.nodes, self.bound = self.nodes + nodes.size, float(result.lower.min())
        closed = result.lower > 0
        promising = closed.nonzero().flatten()
        if len(promising):
            closed[promising] = self._proven(result.nodes.pick(promising))
        self._close(result.nodes.pick(closed))
        rest = (~closed).nonzero().flatten()
        if not len(rest):
            return result.pick(rest)
        if bool((result.lower[rest] > 0).any()):  # what the proof refused has left the ascent without its scores
            result = dual_ascent.run(result.nodes.pick(rest), 0, self.ends)
        else:
            result = result.pick(rest)
        if self.visits % DESCENT_VISITS:
            self._offer(result.points)
        else:
            self._descend(result)
        splittable = (result.scores > 0).any(1)
        self._settle(result.nodes.pick((~splittable).nonzero().flatten()))
        return result.pick(splittable.nonzero().flatten())

    def _prolonged(self, result: AscentResult) -> AscentResult:
        """The result of an ascent, with second ones for nodes that it leaves open."""
        rest = (~(result.lower > 0)).nonzero().flatten()
        rest = rest if self.long else rest[:LONG_TRIAL]
        if not len(rest):
            return result
        second = self.tree.dual_ascent.run(result.nodes.pick(rest), LONG_STEPS, self.ends, enough=0.0)
        self.long = float((second.lower > 0).float().mean()) >= LONG_SHARE
        return result.replaced(rest, second)

    def _proven(self, nodes: Nodes) -> Tensor:
        """Which nodes are proven, (count,)."""
        return proven_bounds(self.tree.stages, self.tree.rows, nodes) > 0

    def _descend(self, result: AscentResult) -> None:
        """Tries the minimisers of the relaxed rows, and where descents from the best of them end."""
        margins = self._offer(result.points)
        best = margins.argsort()[:DESCENTS]
        self._offer(self.tree.descent.run(result.nodes.rows[best], result.points[best]))

    def _offer(self, points: Tensor) -> Tensor:
        """Tries points (count, inputs) as counterexamples; returns their least margins, (count,)."""
        margins = self.tree.descent.margins(points).amin(1).nan_to_num(torch.inf)
        least = int(margins.argmin())
        if bool(margins[least] <= 0) and any(map(self.violates, inside(self.tree.problem, points[least].double()))):
            raise Ended(None)
        return margins

    def _settle(self, nodes: Nodes) -> None:
        """Closes nodes without unstable neurons, or ends the search."""
        if not nodes.size:
            return
        result = self.tree.dual_ascent.run(nodes, LAST_STEPS, self.ends, enough=0.0)
        proven = self._proven(result.nodes)
        self._close(result.nodes.pick(proven))
        for index in (~proven).nonzero():
            if time.monotonic() > self.ends:
                raise Ended(LATE)
            self._solve(result.nodes.pick(index))

    def _close(self, nodes: Nodes) -> None:
        """Keeps nodes that are proven, where the search is recorded."""
        if self.tree.stages.record is not None and nodes.size:
            self.closed.append(nodes)

    def _solve(self, node: Nodes) -> None:
        """Closes one node without unstable neurons by a program, or ends the search."""
        stages, problem = self.tree.stages, self.tree.problem
        seconds = max(0.01, min(LEAF_SECONDS, self.ends - time.monotonic()))
        for point, multipliers in leaf.nearest(problem, self._leaf(node), seconds):
            if self.violates(point):
                raise Ended(None)
            tables = [multipliers[stage.value][stage.neurons[: stage.unstable_count]] for stage in stages.stages]
            solved = node._replace(duals=torch.cat(tables)[None].float() if tables else node.duals)
            if bool(self._proven(solved)):
                self._close(solved)
                return
        raise Ended(LATE if time.monotonic() > self.ends else UNSETTLED)

    def _leaf(self, node: Nodes) -> leaf.Leaf:
        """A node with the bounds and signs of all neurons in its subdomain, inactive ones included."""
        stages = self.tree.stages
        bounds: Bounds = {}
        tables: dict[int, Tensor] = {}
        for stage in stages.stages:
            neurons, signs = stage.neurons[: stage.unstable_count], node.signs[0, stage.columns]
            lower, upper = (bound.clone() for bound in stages.bounds[stage.value])
            lower[0, neurons] = torch.where(signs > 0, lower[0, neurons].clamp(min=0), lower[0, neurons])
            upper[0, neurons] = torch.where(signs < 0, upper[0, neurons].clamp(max=0), upper[0, neurons])
            bounds[stage.value] = Interval(lower, upper)
            tables[stage.value] = torch.zeros(lower.shape[1], dtype=torch.int8)
            tables[stage.value][neurons] = signs
        return leaf.Leaf(int(self.tree.open_rows[node.rows]), bounds, tables)


def _halves(result: AscentResult, implied: Implied | None = None) -> Nodes:
    """Splits each node in two by the neuron with the highest score; one that implies signs gets these instead."""
    nodes = result.nodes
    if not nodes.size:
        return nodes
    if implied is None:
        return nodes.split(result.scores.argmax(1))
    helped = implied.signs.any(1)
    splits = nodes.pick(~helped).split(implied.choice(result.scores)[~helped])
    return join([with_implied(nodes.pick(helped), implied.pick(helped)), splits])
