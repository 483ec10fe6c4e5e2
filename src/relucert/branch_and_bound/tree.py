"""Branch and bound by ReLU splitting, as in beta-CROWN: a subdomain is where split neurons have certain signs.

A node has the signs of its split neurons, its slopes (alpha) and its multipliers (beta); the root's bounds of hidden
neurons are kept in all subdomains, so that many nodes are bounded a second. Nodes are bounded by batched dual ascents
in float32; a node closes only by a back-substitution in float64 that bounds its rounding.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.answers.verdicts import LATE
from relucert.arithmetic.property import Property
from relucert.arithmetic.rigor import RECORDED, RIGOROUS
from relucert.bounding.hidden import TimedBounds, cheap_bounds
from relucert.bounding.interval import Bounds
from relucert.branch_and_bound.certificate_tree import CertificateTree
from relucert.branch_and_bound.dual_ascent import Nodes
from relucert.branch_and_bound.node_tree import NodeTree, NodeVisitor
from relucert.branch_and_bound.pool import Pool
from relucert.branch_and_bound.refine import Refining
from relucert.branch_and_bound.root import rooted
from relucert.branch_and_bound.search_record import SearchRecord
from relucert.branch_and_bound.stages import Stages
from relucert.branch_and_bound.subtrees import Ended, Prover
from relucert.execution.team import workers_there
from relucert.methods.quadratic.cost import tightening_seconds
from relucert.methods.quadratic.intervals import tightened_until
from relucert.methods.quadratic.rows import RegionRows, decided_rows, suits_certificates

BEFORE_REFINING = 2.0  # seconds of the first tree
LAYER_SECONDS = 5.0  # of the refinement of one layer, the first time
LONGER = 6.0  # times as long are the next tree and the next refinement
CERTIFICATE_TIMES = 2.0  # as long as a tree is the one on certificates that follows it, at first
CERTIFY_SHARE = 0.4  # of the time that is left, for quadratic certificates
TIGHTEN_SHARE = 0.3  # of the time that is left, for bounds of pre-activations by such certificates


@dataclass(eq=False)
class NeuronProver(Prover):
    """Splits by the signs of neurons.

    Attributes:
        record: Keeps what proves the rows, where a proof is to be written: all rows from the last root.
    """

    record: SearchRecord | None = None

    def __post_init__(self) -> None:
        self.network, self.prop, self.region = self.problem.exact, self.problem.prop, self.problem.region
        self.certificates: tuple[RegionRows, Tensor] | None = None  # of a root, with the numbers of its rows

    def _open_rows(self) -> int:
        return len(self.left)

    def _cheap_bounds(self) -> TimedBounds:
        """Fast-Lin's and CROWN's bounds of all hidden neurons: those known already, where no proof is to be written."""
        if self.record is not None:
            return cheap_bounds(self.network, self.region, RECORDED)
        return self.hidden or cheap_bounds(self.network, self.region, RIGOROUS)

    def _enter(self, stage: str) -> None:
        self.stage, self.bound = stage, None
        self._tell(len(self.left))

    def _prove(self) -> bool:
        self._check_time()
        self.left = torch.arange(self.prop.rows.shape[1])
        self._enter("root")
        bounds = self._cheap_bounds().bounds
        if self._certified(bounds):
            return True
        self._enter("root")
        stages = rooted(self.network, self.region, bounds, self.ends, record=self.record)
        seconds, refining, tightened = BEFORE_REFINING, Refining(self.ends, LAYER_SECONDS), False
        while True:
            started = self._roots(stages)
            if started is None:
                return True
            self._check_time()
            layers = sum(bool(stage.unstable_count) for stage in stages.stages[1:])
            refines = layers and refining.fits(layers)
            visitor, waiting = started[0], Pool(started[1])
            for_a_while = time.monotonic() + seconds / workers_there()
            if self._tree(visitor, waiting, for_a_while if refines or self.certificates else self.ends):
                return True
            self._check_time()
            if self._certificate_tree(CERTIFICATE_TIMES * seconds / workers_there()):
                return True
            if not refines:
                return self._tree(visitor, waiting, self.ends)
            self._enter("refinement")
            if self.record is None:
                bounds = stages.bounds
            if not tightened and self._suits_tightening(bounds):
                tightened, bounds = True, self._tightened(bounds)
                if self._certified(bounds):
                    return True
                self._enter("root")
                stages = rooted(self.network, self.region, bounds, self.ends)
                continue
            stages = rooted(self.network, self.region, bounds, self.ends, refining, self.record)
            self._check_time()
            if self._certified(stages.bounds):
                return True
            seconds, refining = seconds * LONGER, refining.longer(LONGER)

    def _certified(self, bounds: Bounds) -> bool:
        """Whether quadratic certificates prove all rows that are left; those that they do prove leave the search.

        Where the search is recorded they are not tried: its trees can't contain them.
        """
        self.certificates = None
        if self.record is not None or not suits_certificates(self.network, bounds):
            return False
        self._enter("certificates")
        prop = Property(self.prop.rows[:, self.left], self.prop.offsets[:, self.left])
        now = time.monotonic()
        rows = decided_rows(self.network, self.region, prop, bounds, now + CERTIFY_SHARE * (self.ends - now))
        if rows is not None:
            proven = rows.prove() > 0
            self.certificates = rows, self.left
            self.left = self.left[~proven]
        return not len(self.left)

    def _certificate_tree(self, seconds: float) -> bool:
        """Whether splits below the certificates prove all rows that are left; rows that they do prove leave the search.

        seconds: How long at first; as long again where what is closed by then promises an end in time.
        """
        if self.certificates is None or not self.certificates[0].joint:
            return False
        self._enter("certificates")
        rows, numbers = self.certificates
        tree, asked = CertificateTree(self.problem, rows), torch.isin(numbers, self.left).nonzero().flatten()
        try:
            roots = tree.roots(asked)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            return False
        visitor, waiting = tree.visitor(self.ends, self.violates), Pool(roots)
        started = time.monotonic()
        stop = started + seconds
        while not self._searched(tree, visitor, waiting, min(self.ends, stop)):
            self._check_time()
            nodes = waiting.all()
            waiting.put_back(nodes)
            closed, now = 1 - nodes.volume / roots.size, time.monotonic()
            if (now - started) * (1 - closed) > closed * (self.ends - now):
                break
            stop = now + (now - started)
        proven = asked[~torch.isin(asked, torch.cat([waiting.all().rows, visitor.unsettled]))]
        self.left = self.left[~torch.isin(self.left, numbers[proven])]
        return not len(self.left)

    def _suits_tightening(self, bounds: Bounds) -> bool:
        """Whether certificates may tighten bounds of pre-activations in time; no record can contain them."""
        suits = self.record is None and suits_certificates(self.network, bounds)
        return suits and tightening_seconds(self.network, bounds) < self.ends - time.monotonic()

    def _tightened(self, bounds: Bounds) -> Bounds:
        now = time.monotonic()
        return tightened_until(self.network, self.region, bounds, now + TIGHTEN_SHARE * (self.ends - now))

    def _check_time(self) -> None:
        if time.monotonic() > self.ends:
            raise Ended(LATE)

    def _roots(self, stages: Stages) -> tuple[NodeVisitor, Nodes] | None:
        """The root nodes of the rows that a long ascent leaves open, and who visits them; None: there are none."""
        if self.record is not None:
            self.left = torch.arange(self.prop.rows.shape[1])
            self.record.begin()
        first = NodeTree(self.problem, stages, self.left).visitor(self.ends, self.violates)
        try:
            nodes, proven = first.roots()
        finally:
            self.nodes += first.nodes
        self._keep(first)
        self.left = self.left[~proven]
        if not len(self.left):
            return None
        roots = nodes.pick(~proven)._replace(rows=torch.arange(len(self.left)))
        tree = NodeTree(self.problem, stages, self.left)
        return tree.visitor(self.ends, self.violates), tree.propagation.start(roots)

    def _tree(self, visitor: NodeVisitor, waiting: Pool[Nodes], stop: float) -> bool:
        """Searches until all nodes of rows that are left are closed, or until the time `stop`; whether they are closed.

        Rows that are proven by then leave the search.
        """
        self._enter("tree")
        nodes = waiting.all()
        waiting.put_back(nodes.pick(torch.isin(visitor.tree.open_rows[nodes.rows], self.left)))
        closed = self._searched(visitor.tree, visitor, waiting, min(self.ends, stop))
        self._keep(visitor)
        nodes = waiting.all()
        waiting.put_back(nodes)
        self.left = visitor.tree.open_rows[nodes.rows.unique()]
        return closed

    def _keep(self, visitor: NodeVisitor) -> None:
        """Records what a visitor has proven."""
        if self.record is not None:
            for nodes in visitor.closed:
                self.record.close(visitor.tree.stages, visitor.tree.open_rows[nodes.rows], nodes)
