"""The order of work on problems: cheap bounds, then whatever attack the caller has, then the prover until time ends."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import NamedTuple

import torch

from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.boxes import suits_cuts
from relucert.bounding.hidden import TimedBounds
from relucert.bounding.interval import copied
from relucert.common.deadline import TimeUp, until
from relucert.common.progress import Progress, Report, silent
from relucert.methods.table import find_method
from relucert.network.work import backward_work
from relucert.query.problem import Problem

CHEAP = INTERVAL, FAST_LIN, CROWN = "interval", "fast-lin", "crown"
CROWN_COST = 3  # times as long as Fast-Lin's bounds, about, where those go backward, too
CROWN_SHARE = 0.25  # of the time left: where CROWN's bounds would take more, it is the search's
MOST_WORK = 10**11  # multiplications of a back-substitution that is done first all the same: some seconds
ATTACK_SHARE = 0.3  # of the time limit; cheap bounds may take the rest


class Bounded(NamedTuple):
    """What cheap bounds come to.

    Attributes:
        open: The rows that they leave open.
        method: The method that closed the last one that it could.
        hidden: The bounds of pre-activations by Fast-Lin and, where there was time for them, by CROWN; where there are
            products by CROWN alone.
    """

    open: list[int]
    method: str | None
    hidden: TimedBounds | None


def bounded(problem: Problem, ends: float, report: Report = silent) -> Bounded:
    """Proves what rows of a problem it can without a search, until time ends."""
    network, region, prop = problem.exact, problem.region, problem.prop
    left, last, known = list(range(prop.rows.shape[1])), None, None
    with suppress(TimeUp), until(ends):
        for name in _cheap(problem):
            late = name == CROWN and known and CROWN_COST * known.seconds > CROWN_SHARE * (ends - time.monotonic())
            if not left or late:
                break
            report(Progress(stage=name))
            method, started = find_method(name), time.monotonic()
            with torch.inference_mode():
                narrowed = prop.narrow(torch.tensor([left]))
                hidden = method.hidden(network, region, RIGOROUS)
                seconds = time.monotonic() - started
                lower = method.margins(network, region, narrowed, hidden, RIGOROUS)[0].tolist()
            still = [row for row, margin in zip(left, lower, strict=True) if not margin > 0]
            left, last = still, name if len(still) < len(left) else last
            if name != INTERVAL:
                timed = TimedBounds(copied(hidden), seconds)
                known = timed if known is None else known.meet(timed)
    return Bounded(left, last, known)


def _cheap(problem: Problem) -> tuple[str, ...]:
    """The methods whose bounds come before any search. CROWN's are far tighter where there are products, as planes
    around these go with its lines alone: Fast-Lin's would take the time for nothing."""
    if _left_to_cuts(problem):
        return (INTERVAL,)
    return (INTERVAL, CROWN) if problem.network.products else CHEAP


def _left_to_cuts(problem: Problem) -> bool:
    """Whether back-substitution is left to the prover: the network is large, and boxes of few inputs are cut."""
    network, region = problem.network, problem.region
    cut = region.norm.body == "box" and suits_cuts(network, region)
    return cut and not network.suits_forward and backward_work(network) > MOST_WORK
