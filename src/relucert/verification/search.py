"""The order of work on problems: cheap bounds, then whatever attack the caller has, then the prover until time ends."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import torch

from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.boxes import suits_cuts
from relucert.common.deadline import TimeUp, until
from relucert.common.progress import Progress, Report, silent
from relucert.methods.table import find_method
from relucert.network.work import backward_work
from relucert.query.problem import Problem

CHEAP = ("interval", "fast-lin", "crown")
MOST_WORK = 10**11  # multiplications of a back-substitution that is done first all the same: some seconds
ATTACK_SHARE = 0.3  # of the time limit; cheap bounds may take the rest


class Bounded(NamedTuple):
    """The rows that cheap bounds leave open, and the method that closed the last one that it could."""

    open: list[int]
    method: str | None


def bounded(problem: Problem, ends: float, report: Report = silent) -> Bounded:
    """Proves what rows of a problem it can without a search, until time ends."""
    network, region, prop = problem.exact, problem.region, problem.prop
    left, last = list(range(prop.rows.shape[1])), None
    with suppress(TimeUp), until(ends):
        for name in CHEAP[: 1 if _left_to_cuts(problem) else None]:
            if not left:
                break
            report(Progress(stage=name))
            method = find_method(name)
            with torch.inference_mode():
                narrowed = prop.narrow(torch.tensor([left]))
                hidden = method.hidden(network, region, RIGOROUS)
                lower = method.margins(network, region, narrowed, hidden, RIGOROUS)[0].tolist()
            still = [row for row, margin in zip(left, lower, strict=True) if not margin > 0]
            left, last = still, name if len(still) < len(left) else last
    return Bounded(left, last)


def _left_to_cuts(problem: Problem) -> bool:
    """Whether back-substitution is left to the prover: the network is large, and boxes of few inputs are cut."""
    network, region = problem.network, problem.region
    cut = region.norm.body == "box" and suits_cuts(network, region)
    return cut and not network.suits_forward and backward_work(network) > MOST_WORK
