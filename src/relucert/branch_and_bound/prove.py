"""Branch and bound for one region: do the rows of a property stay positive in it?

Regions of few inputs are cut at the inputs (input splitting), others are split by the signs of neurons (ReLU splitting)
or, where some activation is no ReLU, at points of neurons' intervals; so is a box whose cuts end at a point that they
can't decide, such as one at which a margin is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.answers.verdicts import LATE
from relucert.bounding.boxes import suits_cuts
from relucert.bounding.record import Record
from relucert.branch_and_bound.box_tree import STAGE, BoxProver
from relucert.branch_and_bound.boxes import TOO_SMALL
from relucert.branch_and_bound.cut_record import CutTree
from relucert.branch_and_bound.interval_tree import IntervalProver
from relucert.branch_and_bound.search_record import SearchRecord
from relucert.branch_and_bound.stages import TooLarge, search_bytes
from relucert.branch_and_bound.tree import NeuronProver
from relucert.common.deadline import TimeUp, until
from relucert.common.progress import Report, silent
from relucert.execution.team import at_most
from relucert.network.batching import fitting_workers
from relucert.query.problem import Problem


@dataclass(frozen=True, eq=False)
class Outcome:
    """Result of a search by branch and bound.

    Attributes:
        proven: Whether every row is proven to stay positive in the whole region.
        failure: Why the search ended where it is not, and no violation ended it.
        nodes: How many nodes were bounded.
        stage: What the search was doing last: a `Progress`'s.
        record: The trees that prove it, where a record is to be kept and neurons were split.
        cuts: The tree that proves it, where a record is to be kept and inputs were cut.
    """

    proven: bool
    failure: str | None
    nodes: int
    stage: str
    record: Record | None = None
    cuts: CutTree | None = None


def prove(
    problem: Problem,
    ends: float,
    violates: Callable[[Tensor], bool],
    *,
    record: bool = False,
    record_cuts: bool = False,
    report: Report = silent,
) -> Outcome:
    """Tries to prove that the rows stay positive, until it is proven, a violation ends the search, or time does.

    Args:
        problem: A batch of one.
        ends: When time is over, on the monotonic clock.
        violates: Checks a point (size,) that the search came upon; True ends the search.
        record: Whether to keep a record of the search, for a proof.
        record_cuts: Whether the proof may have cuts.
        report: Called now and then with how far the search is.
    """
    with at_most(fitting_workers(search_bytes(problem.network))):
        return _prove(problem, ends, violates, record, record_cuts, report)


def _prove(
    problem: Problem, ends: float, violates: Callable[[Tensor], bool], record: bool, record_cuts: bool, report: Report
) -> Outcome:
    is_box = problem.region.norm.body == "box"
    if ((record_cuts and is_box) or not record) and suits_cuts(problem.network, problem.region):
        cuts = CutTree(problem.exact, problem.prop) if record else None
        box_prover = BoxProver(problem, violates, ends, report, cuts)
        try:
            with until(ends), torch.inference_mode(False), torch.no_grad():
                proven, failure = box_prover.run()
        except TimeUp:
            proven, failure = False, LATE
        if failure != TOO_SMALL:
            return Outcome(proven, failure, box_prover.nodes, STAGE, cuts=cuts)
    kept = SearchRecord(problem.exact) if record else None
    prover: NeuronProver | IntervalProver
    if problem.network.rectifiers_only:
        prover = NeuronProver(problem, violates, ends, report, kept)
    else:
        prover = IntervalProver(problem, violates, ends, report)
    try:
        with until(ends), torch.inference_mode(False), torch.no_grad():
            proven, failure = prover.run()
    except TooLarge as error:
        return Outcome(False, str(error), prover.nodes, prover.stage)
    except TimeUp:
        return Outcome(False, LATE, prover.nodes, prover.stage)
    return Outcome(proven, failure, prover.nodes, prover.stage, kept.finish() if kept is not None and proven else None)
