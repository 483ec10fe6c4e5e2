"""Branch and bound on quadratic certificates: the rows of a property over subdomains with signs of some neurons.

A sign shortens the interval over which a neuron's term of the dual bound is minimised; the rest of the certificate is
about the whole region and stays feasible. A node goes on from its parent's dual point and weights, and ascends on both.
A node takes a hundred times as long as one of linear relaxations, and its bound is so much higher on networks with many
unstable neurons that a few hundred nodes prove what a million of the others do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from relucert.branch_and_bound.descent import inside
from relucert.branch_and_bound.pool import join
from relucert.branch_and_bound.subtrees import Visitor, try_points
from relucert.methods.quadratic.ascent import CertificateAscent, VariableLayout
from relucert.methods.quadratic.dual import DualPoint, Evaluated, Weights
from relucert.methods.quadratic.feasible import deviation_map, feasible_joint
from relucert.methods.quadratic.joint import PowerIteration
from relucert.methods.quadratic.proof import RigorousLinearisation, prove_margins
from relucert.methods.quadratic.rows import RegionRows
from relucert.query.problem import Problem

STEPS = 80  # of the ascent of a node; 60 to 90 are best on Salman's MLP-B and mnist-5x256
AVERAGED = 40  # last steps over which minimisers are averaged
SPEED = 0.3  # share of the rates at a root, since a node begins near its end; tuned with the steps
BATCH = 32  # nodes at once, at most
BATCH_NUMBERS = 2**22  # of the vectors of all nodes at once
LEAST_SCORE = 1e-30  # of a neuron that may be split


class CertificateNodes(NamedTuple):
    """Nodes of the search trees.

    Attributes:
        rows: Which row each is about, (count,).
        signs: 1, -1 or, where it is not split, 0, of every neuron unstable at the root: (count, unstable), int8.
        table: The dual point and the logarithms of weights, as a `VariableLayout` has them, (count, variables).
        vectors: Those of the power iteration that keeps the weights feasible, (count, vectors, width).
    """

    rows: Tensor
    signs: Tensor
    table: Tensor
    vectors: Tensor

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.rows)

    def pick(self, indices: Tensor | slice) -> CertificateNodes:
        return CertificateNodes(*(table[indices] for table in self))

    def split(self, neurons: Tensor) -> CertificateNodes:
        """Splits each node by the sign of one neuron, (count,)."""
        return join([self._replace(signs=self.signs.scatter(1, neurons[:, None], sign)) for sign in (1, -1)])

    @property
    def volume(self) -> float:
        """The share of complete trees that is below these nodes, summed over rows: 1 for a root, and for each half of a
        node half of the node's."""
        return float(torch.exp2(-self.signs.abs().sum(1).double()).sum())


class Ascended(NamedTuple):
    """Nodes after an ascent.

    Attributes:
        nodes: With what the ascent found.
        bounds: As computed, (count,).
        weights: Of every node's certificate, about feasible, (count, ...) each.
        scores: How much each neuron matters to the bound, (count, unstable); 0 where it is split.
        points: Where the relaxed rows are least, (count, inputs).
    """

    nodes: CertificateNodes
    bounds: Tensor
    weights: Weights
    scores: Tensor
    points: Tensor


class CertificateTree:
    """The tree of some rows of a property, from the certificates of a region's rows.

    Attributes:
        problem: A batch of one.
        rows: After their ascents at the root.
    """

    def __init__(self, problem: Problem, rows: RegionRows) -> None:
        self.problem, self.rows = problem, rows
        self.quick = rows.solver.quick
        self.layout = VariableLayout(self.quick, own=True)

    def __getstate__(self) -> dict[str, Any]:
        """All but what is quickly made anew, for another process."""
        return {name: value for name, value in self.__dict__.items() if name not in ("rigorous", "deviations")}

    @cached_property
    def rigorous(self) -> RigorousLinearisation:
        return RigorousLinearisation.of(self.rows.linearised, self.rows.bounds)

    @cached_property
    def deviations(self) -> Tensor:
        return deviation_map(self.rows.linearised)

    def roots(self, rows: Tensor) -> CertificateNodes:
        """The root nodes of some rows, (count,)."""
        solver = self.rows.solver
        solutions = [solver.solutions[row] for row in rows]
        memories = [None if solution is None else solution.memory for solution in solutions]
        ascent = solver.own_ascent(rows, memories, warm=True)
        assert ascent.power is not None
        signs = torch.zeros(len(rows), self.quick.unstable, dtype=torch.int8)
        return CertificateNodes(rows, signs, ascent.table, ascent.power.vectors)

    def visitor(self, ends: float, violates: Callable[[Tensor], bool]) -> CertificateVisitor:
        """A visitor with no unsettled rows; no visit lasts long enough to ask when time ends."""
        return CertificateVisitor(self.problem, violates, self)

    def ascend(self, nodes: CertificateNodes) -> Ascended:
        """Ascents of nodes on dual points and weights, in float32."""
        ascent = self._ascent(nodes)
        last = [evaluated for _, evaluated in islice(ascent.steps(STEPS, SPEED), STEPS - AVERAGED, None)]
        bounds, weights = ascent.settled()
        assert ascent.power is not None
        scores = self._scores(nodes, last)
        points = self.quick.reference + self.quick.radii * _mean([evaluated.farthest for evaluated in last])
        ascended = nodes._replace(table=ascent.table, vectors=ascent.power.vectors)
        return Ascended(ascended, bounds, weights, scores, points)

    def _ascent(self, nodes: CertificateNodes) -> CertificateAscent:
        solver = self.rows.solver
        layout = VariableLayout(self.quick.split(nodes.signs), own=True)
        power = PowerIteration(self.quick, nodes.size)
        power.vectors = nodes.vectors
        forms, heights = solver.forms[nodes.rows], solver.heights[nodes.rows]
        return CertificateAscent(layout, forms, heights, nodes.table, solver.base, power)

    def _scores(self, nodes: CertificateNodes, last: list[Evaluated]) -> Tensor:
        """By how much the mean activation of each neuron is above the activation of its mean pre-activation, times its
        coefficient: means over the last steps, in which minimisers change from one side of the kink to the other."""
        scores = []
        for value, neurons in self.quick.neurons.items():
            deviation = _mean([evaluated.minima[value].deviation for evaluated in last])
            output = _mean([evaluated.minima[value].output for evaluated in last])
            exact = (neurons.centre + deviation).clamp(min=0) - neurons.centre.clamp(min=0)
            coefficients = last[-1].pulled.coefficients[value].abs()
            scores.append((output - exact).clamp(min=0) * coefficients + LEAST_SCORE)
        return torch.cat(scores, 1).nan_to_num(LEAST_SCORE) * (nodes.signs == 0)

    def proven(self, ascended: Ascended, promising: Tensor) -> Tensor:
        """Which of some nodes, (count,), are proven, with rounding errors bounded: bool, (count,)."""
        proven = torch.zeros(len(promising), dtype=torch.bool)
        feasible: list[Weights] = []
        kept: list[int] = []
        for number, node in enumerate(promising.tolist()):
            own = ascended.weights.select(slice(node, node + 1)).map(Tensor.double)
            weights = feasible_joint(self.rows.linearised, own, self.deviations)
            if weights is not None:
                feasible.append(weights)
                kept.append(number)
        if not kept:
            return proven
        nodes = ascended.nodes.pick(promising[kept])
        point: DualPoint = self.layout.point(nodes.table).map(Tensor.double)
        forms, offsets = self.rows.forms[nodes.rows], self.rows.offsets[nodes.rows]
        weights = Weights.stacked(feasible)
        proven[kept] = prove_margins(self.rigorous, forms, offsets, weights, point, nodes.signs).bounds > 0
        return proven


def _mean(tensors: list[Tensor]) -> Tensor:
    return torch.stack(tensors).mean(0)


@dataclass(eq=False)
class CertificateVisitor(Visitor[CertificateNodes]):
    """Bounds nodes, and splits those that are not proven by the sign of a neuron.

    Attributes:
        tree: The tree of the nodes.
        unsettled: Rows that the tree can't prove, (rows,): a node of theirs has no neuron left to split, or its ascent
            leaves the range of float32. Their nodes are dropped, and the rows stay in the search.
    """

    tree: CertificateTree
    unsettled: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    @property
    def batch_size(self) -> int:
        width = len(self.tree.quick.radii) + self.tree.quick.unstable
        return max(1, min(BATCH, BATCH_NUMBERS // (8 * width)))

    def recorded(self) -> Tensor:
        """The unsettled rows; no proof file holds such trees."""
        return self.unsettled

    def merge_record(self, nodes: CertificateNodes, recorded: Tensor | None) -> CertificateNodes:
        if recorded is not None:
            self._give_up(recorded)
        return nodes

    def _give_up(self, rows: Tensor) -> None:
        self.unsettled = torch.cat([self.unsettled, rows]).unique()

    def visit(self, nodes: CertificateNodes) -> CertificateNodes:
        """Bounds nodes and closes what it can; returns the rest, each split in two, but for those of unsettled rows."""
        nodes = nodes.pick(~torch.isin(nodes.rows, self.unsettled))
        if not nodes.size:
            return nodes
        try:
            ascended = self.tree.ascend(nodes)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            if nodes.size == 1:
                self._give_up(nodes.rows)
                return nodes.pick(slice(0, 0))
            half = nodes.size // 2
            return join([self.visit(nodes.pick(slice(0, half))), self.visit(nodes.pick(slice(half, None)))])
        self.nodes, self.bound = self.nodes + nodes.size, float(ascended.bounds.min())
        promising = (ascended.bounds > 0).nonzero().flatten()
        closed = torch.zeros(nodes.size, dtype=torch.bool)
        closed[promising] = self.tree.proven(ascended, promising)
        rest = (~closed).nonzero().flatten()
        left, scores = ascended.nodes.pick(rest), ascended.scores[rest]
        if not left.size:
            return left
        points = ascended.points[rest].double()
        try_points(self.problem, points, lambda point: any(map(self.violates, inside(self.problem, point))))
        splittable = (scores > 0).any(1) & ~ascended.bounds[rest].isnan()
        self._give_up(left.rows[~splittable])
        return left.pick(splittable).split(scores[splittable].argmax(1))
