"""Branch and bound by splits of neurons' intervals, for any activation (GenBaB).

The root's bounds of hidden neurons come of optimised lines. A node splits intervals of neurons at points, and bounds
those neurons anew that matter most to it. Nodes are bounded by batched dual ascents in float32; a node closes only by a
back-substitution in float64 that bounds its rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relucert.arithmetic.region import SET_BACK
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.ascent import Effort
from relucert.bounding.backward import bound_forms
from relucert.bounding.hidden import TimedBounds, cheap_bounds
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.optimised import optimised_bounds
from relucert.bounding.reference import ReferencePath
from relucert.branch_and_bound.interval_ascent import IntervalAscent
from relucert.branch_and_bound.interval_nodes import IntervalNodes, NodeBounds
from relucert.branch_and_bound.pool import Pool
from relucert.branch_and_bound.subtrees import Ended, Prover, Visitor, try_points
from relucert.common.deadline import within
from relucert.query.problem import Problem

PATIENT = Effort(60, decay=0.95, least=0.003)  # for hidden layers, where time allows so many steps
FIRST_SHARE, FIRST_SECONDS = 0.05, 10.0  # of the time, and at most, for a tree before hidden layers are optimised
HIDDEN_SHARE = 0.5  # of the time, for hidden layers
FEWEST_STEPS = 3  # for hidden layers: where time allows fewer, it is the tree's
STEP_COST = 2.0  # of one step for all hidden layers, in times of their bounds by Fast-Lin and CROWN
ROOT_STEPS, STEPS, LAST_STEPS = 150, 15, 200  # of the ascents of roots, of nodes, and where nothing is left to split
REBOUND = 32  # neurons of a node that are bounded anew
LARGEST_BATCH = 128  # nodes at once, at most
BATCH_NUMBERS = 2**20  # neurons of all nodes at once
UNSPLITTABLE = "a subdomain that can't be split further could not be proven"


class IntervalProver(Prover):
    """Splits the intervals of neurons."""

    def _prove(self) -> bool:
        tree = IntervalTree(self.problem)
        visitor = tree.visitor(self.ends, self.violates)
        hidden = self.hidden or cheap_bounds(self.problem.exact, self.problem.region, RIGOROUS)
        roots = visitor.bounded(tree.ascent.roots(hidden.bounds), ROOT_STEPS)
        self.nodes, self.waiting = visitor.nodes, Pool(roots)
        if self._ends_soon(tree, visitor):
            return True
        self.waiting = Pool(tree.ascent.roots(self._optimised(hidden)).pick(roots.rows))
        return self._searched(tree, visitor, self.waiting, self.ends)

    def _ends_soon(self, tree: IntervalTree, visitor: IntervalVisitor) -> bool:
        """Whether a first tree, below the bounds of hidden neurons that cheap methods have found, closes all nodes."""
        try:
            stop = min(within(self.ends, FIRST_SHARE), time.monotonic() + FIRST_SECONDS)
            return self._searched(tree, visitor, self.waiting, stop)
        except Ended as ended:
            if ended.reason != UNSPLITTABLE:
                raise
            return False

    def _optimised(self, hidden: TimedBounds) -> Bounds:
        """The bounds of hidden neurons by optimised lines, of as many steps as a share of the time allows, if that is
        more than a few."""
        ends = within(self.ends, HIDDEN_SHARE)
        steps = int(min(PATIENT.steps, (ends - time.monotonic()) / max(STEP_COST * hidden.seconds, 1e-6)))
        if steps < FEWEST_STEPS:
            return hidden.bounds
        return optimised_bounds(
            self.problem.exact, self.problem.region, RIGOROUS, known=hidden.bounds,
            effort=replace(PATIENT, steps=steps), ends=ends, report=self.report, squares=False,
        )  # fmt: skip

    def _open_rows(self) -> int:
        return len(torch.cat([nodes.rows for nodes in self.waiting.in_memory] or [torch.zeros(0)]).unique())

    def _tell(self, open_nodes: int) -> None:
        self.stage = "tree"
        super()._tell(open_nodes)


class IntervalTree:
    """The tree of all rows of a property over one region, a batch of one."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        rows, offsets = problem.prop.rows[0], problem.prop.offsets[0]
        self.ascent = IntervalAscent(problem.exact, problem.region, rows, offsets)
        self.proof = NodeBounds(problem.exact, problem.region, rows, offsets, RIGOROUS)

    def visitor(self, ends: float, violates: Callable[[Tensor], bool]) -> IntervalVisitor:
        return IntervalVisitor(self.problem, violates, self, ends)


@dataclass(eq=False)
class IntervalVisitor(Visitor[IntervalNodes]):
    """Bounds nodes, and splits those that are not proven at a point of a neuron's interval.

    Attributes:
        tree: The tree of the nodes.
        ends: When time is over, on the monotonic clock.
    """

    tree: IntervalTree
    ends: float

    def __post_init__(self) -> None:
        self.network, self.ascent, self.proof = self.problem.exact, self.tree.ascent, self.tree.proof

    @property
    def batch_size(self) -> int:
        return max(1, min(LARGEST_BATCH, BATCH_NUMBERS // max(1, self.ascent.layout.neurons)))

    def visit(self, nodes: IntervalNodes) -> IntervalNodes:
        """Bounds nodes and closes what it can; returns the rest, each split in two."""
        steps = ROOT_STEPS if bool((nodes.last < 0).any()) else STEPS
        rest = self.bounded(nodes, steps)
        if not len(rest.rows):
            return rest
        branching = self.ascent.branching(rest)
        self._offer(branching.minimisers)
        splittable = (branching.scores > 0).any(1)
        if not bool(splittable.all()):
            if len(self.bounded(rest.pick(~splittable), LAST_STEPS).rows):
                raise Ended(UNSPLITTABLE)
            rest, branching = rest.pick(splittable), branching.pick(splittable)
        halves = self.ascent.split(rest, branching)
        halves = self._tightened(halves, branching.scores.repeat(2, 1))
        halves = self.ascent.carried(halves, branching.coefficients.repeat(2, 1))
        return halves.pick(~(halves.lower > halves.upper).any(1))  # NaN stays open

    def bounded(self, nodes: IntervalNodes, steps: int) -> IntervalNodes:
        """The nodes that an ascent leaves open, with the slopes and multipliers that it found."""
        lower, nodes = self.ascent.run(nodes, steps, self.ends, enough=0.0)
        self.nodes, self.bound = self.nodes + nodes.size, float(lower.min())
        closed = lower > 0
        promising = closed.nonzero().flatten()
        if len(promising):
            closed[promising] = self.proof.lower(nodes.pick(promising)) > 0
        return nodes.pick(~closed)

    def _tightened(self, nodes: IntervalNodes, scores: Tensor) -> IntervalNodes:
        """Bounds the neurons that matter most to each node anew, by CROWN; of a node without any inputs, some lower
        bound may be above the upper one.

        scores: How much each neuron matters, (count, neurons).
        """
        layout, path = self.ascent.layout, self.proof.path(nodes, upper=False)
        lower, upper = nodes.lower.clone(), nodes.upper.clone()
        least = scores.topk(min(REBOUND, scores.shape[1]), 1).values[:, -1:]
        path.bounds.clear()
        for value, columns in layout.sources.items():
            matter = (scores[:, columns] >= least) & (scores[:, columns] > 0)
            count = min(REBOUND, int(matter.sum(1).amax())) if len(nodes.rows) else 0
            if count and self.network.activation_depths[value]:
                chosen = scores[:, columns].topk(count, 1).indices
                below, above = _neuron_bounds(path, value, chosen)
                places = chosen + columns.start
                lower.scatter_(1, places, torch.fmax(lower.gather(1, places), below))
                upper.scatter_(1, places, torch.fmin(upper.gather(1, places), above))
            path.bounds[value] = Interval(lower[:, columns], upper[:, columns])
        return nodes._replace(lower=lower, upper=upper)

    def _offer(self, points: Tensor) -> None:
        """Tries the minimisers of the relaxed rows as counterexamples."""
        centre, box = self.problem.centre, self.problem.region.box
        points = centre + SET_BACK * (points - centre)
        try_points(self.problem, points if box is None else torch.clamp(points, *box), self.violates)


def _neuron_bounds(path: ReferencePath, value: int, neurons: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds of neurons of a value, (batch, count) each, by back-substitution."""
    units = torch.nn.functional.one_hot(neurons, path.network.sizes[value]).to(path.arithmetic.dtype)
    below, above = bound_forms(path, value, torch.cat([units, -units], 1)).lower.chunk(2, 1)
    return below, -above
