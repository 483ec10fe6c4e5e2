"""Branch and bound for one region: do the rows of a property stay positive in it?

Boxes of few inputs are cut at the inputs (input splitting), other regions are split by the signs of neurons (ReLU
splitting); so is a box whose cuts end at a point that they can't decide, such as one at which a margin is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.answers.verdicts import LATE
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.ascent import Effort
from relucert.bounding.optimised import optimised_bounds, optimised_margins
from relucert.bounding.record import Record
from relucert.branch_and_bound.boxes import STAGE, TOO_SMALL, BoxProver, moves
from relucert.branch_and_bound.cut_record import CutTree
from relucert.branch_and_bound.search_record import SearchRecord
from relucert.branch_and_bound.stages import TooLarge
from relucert.branch_and_bound.tree import NeuronProver
from relucert.common.deadline import TimeUp, until
from relucert.common.progress import Report, silent
from relucert.network import INPUT, Network
from relucert.query.problem import Problem

MOST_CUT_INPUTS = 12  # that may move
NEURONS_PER_INPUT = 4  # at least, for cuts to be worth it
ONLY_RELU = "optimised bounds do not decide it, and splits by neurons are for networks of ReLUs"
LINES = "optimised lines"
PATIENT = Effort(60, decay=0.95, least=0.003)  # for hidden layers, where no split follows
MORE_PATIENT = Effort(150, decay=0.95, least=0.001)  # for margins


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
    if (record_cuts or not record) and suits_cuts(problem.network, problem.region):
        cuts = CutTree(problem.exact, problem.prop) if record else None
        box_prover = BoxProver(problem, violates, ends, report, cuts)
        try:
            with until(ends), torch.inference_mode(False), torch.no_grad():
                proven, failure = box_prover.run()
        except TimeUp:
            proven, failure = False, LATE
        if failure != TOO_SMALL:
            return Outcome(proven, failure, box_prover.nodes, STAGE, cuts=cuts)
    if not problem.network.rectifiers_only:
        return _by_optimised_lines(problem, ends, report)
    kept = SearchRecord(problem.exact) if record else None
    prover = NeuronProver(problem, violates, ends, report, kept)
    try:
        with until(ends), torch.inference_mode(False), torch.no_grad():
            proven, failure = prover.run()
    except TooLarge as error:
        return Outcome(False, str(error), prover.nodes, prover.stage)
    except TimeUp:
        return Outcome(False, LATE, prover.nodes, prover.stage)
    return Outcome(proven, failure, prover.nodes, prover.stage, kept.finish() if kept is not None and proven else None)


def _by_optimised_lines(problem: Problem, ends: float, report: Report) -> Outcome:
    """Tries to prove it without splits, by the lines that alpha-CROWN finds: for activations that can't be split."""
    network, region, (rows, offsets) = problem.exact, problem.region, (problem.prop.rows, problem.prop.offsets)
    try:
        with until(ends):
            hidden = optimised_bounds(network, region, RIGOROUS, effort=PATIENT, ends=ends, report=report)
            lower = optimised_margins(
                network, region, rows, offsets, hidden, RIGOROUS, effort=MORE_PATIENT, ends=ends, report=report
            )
    except TimeUp:
        return Outcome(False, LATE, 0, LINES)
    proven = bool((lower > 0).all())
    return Outcome(proven, None if proven else ONLY_RELU, 1, LINES)


def suits_cuts(network: Network, region: Region) -> bool:
    """Whether a region is a box of so few inputs that cutting them is cheaper than splitting by neurons.

    All relaxations of a box get narrower with every cut, but as many cuts as there are inputs make one level.
    """
    moving = network.sizes[INPUT]
    if region.box is not None:
        moving = int(moves(*region.box).sum())
    if region.scale is not None:
        moving = min(moving, int((region.scale > 0).sum()))
    neurons = sum(network.sizes[value] for value in network.preactivations)
    return region.norm.body == "box" and moving <= MOST_CUT_INPUTS and moving * NEURONS_PER_INPUT <= neurons
