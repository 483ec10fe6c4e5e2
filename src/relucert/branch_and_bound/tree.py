"""Branch and bound by ReLU splitting, as in beta-CROWN: a subdomain is where split neurons have certain signs.

A node has the signs of its split neurons, its slopes (alpha) and its multipliers (beta); the root's bounds of hidden
neurons are kept in all subdomains, so that many nodes are bounded a second. Nodes are bounded by batched dual ascents
in float32; a node closes only by a back-substitution in float64 that bounds its rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.answers.verdicts import LATE
from relucert.arithmetic.property import Property
from relucert.arithmetic.rigor import RECORDED, RIGOROUS
from relucert.bounding.interval import Bounds, Interval
from relucert.branch_and_bound import leaf
from relucert.branch_and_bound.confirm import Rows, proven_bounds
from relucert.branch_and_bound.dual_ascent import AscentResult, DualAscent, Nodes, join
from relucert.branch_and_bound.refine import Refining
from relucert.branch_and_bound.root import cheap_bounds, rooted
from relucert.branch_and_bound.search_record import SearchRecord
from relucert.branch_and_bound.stages import Stages
from relucert.common.progress import Progress, Report, silent
from relucert.methods.quadratic.rows import proven_rows, suits_certificates
from relucert.query.problem import Problem

STEPS = 15  # of the ascent of a node
ROOT_STEPS = 40
LAST_STEPS = 200  # where no neuron is left to split
BEFORE_REFINING = 2.0  # seconds of the first tree
LAYER_SECONDS = 5.0  # of the refinement of one layer, the first time
LONGER = 6.0  # times as long are the next tree and the next refinement
CERTIFY_SHARE = 0.4  # of the time that is left, for quadratic certificates
LEAF_SECONDS = 10.0  # of the program of one leaf
SET_BACK = 1 - 2.0**-20  # of the distance from the centre, so that a point of the border is inside
UNSETTLED = "a leaf of the search could not be settled"


class _Ended(Exception):  # noqa: N818
    """The search is over: a violation ended it (no reason), or time or a leaf did."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(eq=False)
class NeuronProver:
    """Proves that the rows of a property stay positive in a region.

    Attributes:
        problem: A batch of one.
        violates: Checks a point (size,) that the search came upon; True ends the search.
        ends: When time is over, on the monotonic clock.
        report: Called now and then with how far the search is.
        record: Keeps what proves the rows, where a proof is to be written: all rows from the last root.
        nodes: How many nodes were bounded.
        stage: What the search is doing or was doing last, in a word.
    """

    problem: Problem
    violates: Callable[[Tensor], bool]
    ends: float
    report: Report = silent
    record: SearchRecord | None = None
    nodes: int = 0
    stage: str = "root"

    def __post_init__(self) -> None:
        self.network, self.prop, self.region = self.problem.exact, self.problem.prop, self.problem.region
        self.bound: float | None = None

    def run(self) -> tuple[bool, str | None]:
        """Whether it is proven, and why the search ended where it is not and no violation ended it."""
        try:
            self._search()
        except _Ended as ended:
            return False, ended.reason
        return True, None

    def _enter(self, stage: str) -> None:
        self.stage, self.bound = stage, None
        self._tell(len(self.left))

    def _tell(self, open_nodes: int) -> None:
        self.report(
            Progress(stage=self.stage, nodes=self.nodes, open=open_nodes, rows=len(self.left), bound=self.bound)
        )

    def _search(self) -> None:
        self._check_time()
        self.left = torch.arange(self.prop.rows.shape[1])
        self._enter("root")
        bounds = cheap_bounds(self.network, self.region, RIGOROUS if self.record is None else RECORDED)
        if self._certified(bounds):
            return
        self._enter("root")
        stages = rooted(self.network, self.region, bounds, self.ends, record=self.record)
        seconds, refining = BEFORE_REFINING, Refining(self.ends, LAYER_SECONDS)
        while True:
            waiting = self._roots(stages)
            if waiting is None:
                return
            self._check_time()
            self._enter("tree")
            layers = sum(bool(stage.unstable_count) for stage in stages.stages[1:])
            worth = layers and refining.fits(layers)
            if self._tree(stages, waiting, min(self.ends, time.monotonic() + seconds) if worth else self.ends):
                return
            self._check_time()
            if not worth:
                continue
            self._enter("refinement")
            if self.record is None:
                bounds = stages.bounds
            stages = rooted(self.network, self.region, bounds, self.ends, refining, self.record)
            self._check_time()
            if self._certified(stages.bounds):
                return
            seconds, refining = seconds * LONGER, refining.longer(LONGER)

    def _certified(self, bounds: Bounds) -> bool:
        """Whether quadratic certificates prove all rows that are left; those that they do prove leave the search.

        Where the search is recorded they are not tried: its trees can't contain them.
        """
        if self.record is not None or not suits_certificates(self.network, bounds):
            return False
        self._enter("certificates")
        prop = Property(self.prop.rows[:, self.left], self.prop.offsets[:, self.left])
        now = time.monotonic()
        proven = proven_rows(self.network, self.region, prop, bounds, now + CERTIFY_SHARE * (self.ends - now))
        self.left = self.left[~proven]
        return not len(self.left)

    def _check_time(self) -> None:
        if time.monotonic() > self.ends:
            raise _Ended(LATE)

    def _dual_ascent(self, stages: Stages) -> tuple[DualAscent, Rows]:
        """The dual ascent of the rows that are left, and these rows."""
        forms, offsets = self.prop.rows[0, self.left], self.prop.offsets[0, self.left]
        maps = stages.pulled(self.network.output, forms, offsets)
        return DualAscent(stages, maps), Rows(self.network.output, forms, offsets)

    def _roots(self, stages: Stages) -> Nodes | None:
        """The root nodes of the rows that a long ascent leaves open; None: there are none."""
        if self.record is not None:
            self.left = torch.arange(self.prop.rows.shape[1])
            self.record.begin()
        dual_ascent, rows = self._dual_ascent(stages)
        result = dual_ascent.run(dual_ascent.roots(), ROOT_STEPS, self.ends)
        self.nodes += len(self.left)
        still = ~(proven_bounds(stages, rows, result.nodes) > 0)
        self._close(stages, result.nodes.pick(~still))
        self.left = self.left[still]
        if not len(self.left):
            return None
        self._offer(dual_ascent, result)
        self.dual_ascent, self.rows = self._dual_ascent(stages)
        nodes = result.nodes.pick(still)
        return nodes._replace(rows=torch.arange(len(self.left)))

    def _tree(self, stages: Stages, roots: Nodes, until: float) -> bool:
        """Searches until all nodes are closed, or until the time `until`; returns whether all are closed.

        Rows that are proven by then leave the search.
        """
        waiting = roots
        while len(waiting.rows):
            if time.monotonic() > until:
                self._drop(waiting)
                return False
            crowd = stages.crowd
            visited, waiting = waiting.pick(slice(-crowd, None)), waiting.pick(slice(None, -crowd))
            halves = self._visit(stages, visited)
            waiting = join([waiting, halves])
            self._tell(len(waiting.rows))
        return True

    def _drop(self, waiting: Nodes) -> None:
        """Drops the rows of which no node is open: they are proven."""
        self.left = self.left[waiting.rows.unique()]

    def _visit(self, stages: Stages, nodes: Nodes) -> Nodes:
        """Bounds nodes and closes what it can; returns the rest, each split in two."""
        result = self.dual_ascent.run(nodes, STEPS, self.ends, enough=0.0)
        self.nodes, self.bound = self.nodes + len(nodes.rows), float(result.lower.min())
        closed = result.lower > 0
        promising = closed.nonzero().flatten()
        if len(promising):
            closed[promising] = proven_bounds(stages, self.rows, result.nodes.pick(promising)) > 0
        self._close(stages, result.nodes.pick(closed))
        rest = (~closed).nonzero().flatten()
        if not len(rest):
            return result.nodes.pick(rest)
        if bool((result.lower[rest] > 0).any()):  # what the proof refused has left the ascent without its scores
            result = self.dual_ascent.run(result.nodes.pick(rest), 0, self.ends)
        else:
            result = result.pick(rest)
        self._offer(self.dual_ascent, result)
        splittable = (result.scores > 0).any(1)
        self._settle(stages, result.nodes.pick((~splittable).nonzero().flatten()))
        indices = splittable.nonzero().flatten()
        neurons = result.scores[indices].argmax(1) if len(indices) else indices
        return result.nodes.pick(indices).split(neurons)

    def _offer(self, dual_ascent: DualAscent, result: AscentResult) -> None:
        """Tries the minimisers of the relaxed rows as counterexamples."""
        margins = dual_ascent.margins(result.points).amin(1)
        least = int(margins.nan_to_num(torch.inf).argmin())
        if bool(margins[least] <= 0) and self.violates(self._inside(result.points[least].double())):
            raise _Ended(None)

    def _inside(self, point: Tensor) -> Tensor:
        """A point (size,) of the region's border, set back by more than its own rounding."""
        centre, box = self.problem.centre, self.region.box
        moved = centre + SET_BACK * (point - centre)
        return moved if box is None else torch.clamp(moved, *box)

    def _settle(self, stages: Stages, nodes: Nodes) -> None:
        """Closes nodes without unstable neurons, or ends the search."""
        if not len(nodes.rows):
            return
        result = self.dual_ascent.run(nodes, LAST_STEPS, self.ends, enough=0.0)
        still = ~(proven_bounds(stages, self.rows, result.nodes) > 0)
        self._close(stages, result.nodes.pick(~still))
        for index in still.nonzero():
            self._check_time()
            self._solve(stages, result.nodes.pick(index))

    def _close(self, stages: Stages, nodes: Nodes) -> None:
        """Records nodes that are proven."""
        if self.record is not None:
            self.record.close(stages, self.left[nodes.rows], nodes)

    def _solve(self, stages: Stages, node: Nodes) -> None:
        """Closes one node without unstable neurons by a program, or ends the search."""
        seconds = max(0.01, min(LEAF_SECONDS, self.ends - time.monotonic()))
        for point, multipliers in leaf.nearest(self.problem, self._leaf(stages, node), seconds):
            if self.violates(point):
                raise _Ended(None)
            tables = [multipliers[stage.value][stage.neurons[: stage.unstable_count]] for stage in stages.stages]
            solved = node._replace(duals=torch.cat(tables)[None].float() if tables else node.duals)
            if bool(proven_bounds(stages, self.rows, solved) > 0):
                self._close(stages, solved)
                return
        raise _Ended(LATE if time.monotonic() > self.ends else UNSETTLED)

    def _leaf(self, stages: Stages, node: Nodes) -> leaf.Leaf:
        """A node with the bounds and signs of all neurons in its subdomain, inactive ones included."""
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
        return leaf.Leaf(int(self.left[node.rows]), bounds, tables)
