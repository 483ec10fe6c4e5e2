"""Branch and bound for one region: do the rows of a property stay positive in it?

Regions of few inputs are cut at the inputs (input splitting), others are split by the signs of neurons (ReLU splitting)
or, where some activation is no ReLU, at points of neurons' intervals; so is a box whose cuts end at a point that they
can't decide, such as one at which a margin is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relucert.answers.verdicts import LATE
from relucert.bounding.boxes import suits_cuts
from relucert.bounding.hidden import TimedBounds
from relucert.bounding.record import Record
from relucert.branch_and_bound.box_tree import BoxProver
from relucert.branch_and_bound.boxes import TOO_SMALL
from relucert.branch_and_bound.cut_record import CutTree
from relucert.branch_and_bound.interval_tree import IntervalProver
from relucert.branch_and_bound.search_record import SearchRecord
from relucert.branch_and_bound.stages import TooLarge, search_bytes
from relucert.branch_and_bound.subtrees import Prover
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
    hidden: TimedBounds | None = None,
    record: bool = False,
    record_cuts: bool = False,
    report: Report = silent,
) -> Outcome:
    """Tries to prove that the rows stay positive, until it is proven, a violation ends the search, or time does.

    Args:
        problem: A batch of one.
        ends: When time is over, on the monotonic clock.
        violates: Checks a point (size,) that the search came upon; True ends the search.
        hidden: Proven bounds of pre-activations to begin with, by Fast-Lin and CROWN, where there are such already.
        record: Whether to keep a record of the search, for a proof.
        record_cuts: Whether the proof may have cuts.
        report: Called now and then with how far the search is.
    """
    with at_most(fitting_workers(search_bytes(problem.network))):
        is_box = problem.region.norm.body == "box"
        if ((record_cuts and is_box) or not record) and suits_cuts(problem.network, problem.region):
            cuts = CutTree(problem.exact, problem.prop) if record else None
            outcome = _run(BoxProver(problem, violates, ends, report, record=cuts))
            if outcome.failure != TOO_SMALL:
                return replace(outcome, cuts=cuts)
        if not problem.network.rectifiers_only:
            return _run(IntervalProver(problem, violates, ends, report, hidden))
        kept = SearchRecord(problem.exact) if record else None
        outcome = _run(NeuronProver(problem, violates, ends, report, hidden, kept))
        return outcome if kept is None or not outcome.proven else replace(outcome, record=kept.finish())


def _run(prover: Prover) -> Outcome:
    try:
        with until(prover.ends), torch.inference_mode(False), torch.no_grad():
            proven, failure = prover.run()
    except TooLarge as error:
        proven, failure = False, str(error)
    except TimeUp:
        proven, failure = False, LATE
    return Outcome(proven, failure, prover.nodes, prover.stage)
