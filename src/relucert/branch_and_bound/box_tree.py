"""The tree of input splitting, and its prover."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.bounding.fused import Fused, fuse
from relucert.branch_and_bound.boxes import BoxVisitor, surrounding
from relucert.branch_and_bound.cut_record import ELSEWHERE, CutTree
from relucert.branch_and_bound.pool import Pool
from relucert.branch_and_bound.quadratic_boxes import QuadraticVisitor
from relucert.branch_and_bound.subtrees import Prover
from relucert.query.problem import Problem

STAGE = "cuts"


@dataclass(frozen=True, eq=False)
class BoxTree:
    """The tree of the boxes of a region, which is a box or is covered by boxes.

    Attributes:
        problem: A batch of one.
        record: Whether what proves it is to be recorded.
    """

    problem: Problem
    record: bool = False

    @cached_property
    def fused(self) -> Fused | None:
        """The network with squares of which rows are quadratic functions, where it has such; proofs know lines only."""
        if self.record:
            return None
        box = surrounding(self.problem.region)
        return fuse(self.problem.exact, Region.boxes(box.low[None], box.high[None]), self.problem.prop)

    def visitor(self, ends: float, violates: Callable[[Tensor], bool]) -> BoxVisitor:
        cuts = CutTree(self.problem.exact, self.problem.prop, boxes=ELSEWHERE) if self.record else None
        return self.visitor_with(violates, cuts)

    def visitor_with(self, violates: Callable[[Tensor], bool], record: CutTree | None) -> BoxVisitor:
        """A visitor that goes on with a record."""
        if self.fused is not None:
            return QuadraticVisitor(self.problem, violates, fused=self.fused)
        return BoxVisitor(self.problem, violates, record)


@dataclass(eq=False)
class BoxProver(Prover):
    """Cuts the region, which is a box or is covered by boxes.

    Attributes:
        record: Keeps what a proof needs, where a proof is to be written.
    """

    record: CutTree | None = None

    def __post_init__(self) -> None:
        self.stage = STAGE
        self.tree = BoxTree(self.problem, self.record is not None)
        self.visitor = self.tree.visitor_with(self.violates, self.record)

    def _prove(self) -> bool:
        self.waiting = Pool(self.visitor.root())
        return self._searched(self.tree, self.visitor, self.waiting, self.ends)

    def _open_rows(self) -> int:
        rows = torch.cat([boxes.open for boxes in self.waiting.in_memory] or [torch.zeros(0, 1)]).any(0)
        return int(rows.sum())
