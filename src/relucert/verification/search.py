"""The order of work on problems: cheap bounds, then whatever attack the caller has, then the prover until time ends."""

from __future__ import annotations

from collections.abc import Iterator
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
    closed: dict[int, str] = {}
    try:
        with until(ends):
            for row, method in _closed(problem, report):
                closed[row] = method
    except TimeUp:
        pass
    left = [row for row in range(problem.prop.rows.shape[1]) if row not in closed]
    return Bounded(left, next(reversed(closed.values()), None))


def _left_to_cuts(problem: Problem) -> bool:
    """Whether back-substitution is left to the prover: the network is large, and boxes of few inputs are cut."""
    network, region = problem.network, problem.region
    cut = region.norm.body == "box" and suits_cuts(network, region)
    return cut and not network.suits_forward and backward_work(network) > MOST_WORK


def _closed(problem: Problem, report: Report) -> Iterator[tuple[int, str]]:
    """Rows that are proven, and the method that proves each."""
    network, region, prop = problem.exact, problem.region, problem.prop
    left = list(range(prop.rows.shape[1]))
    for name in CHEAP[: 1 if _left_to_cuts(problem) else None]:
        if not left:
            return
        report(Progress(stage=name))
        method = find_method(name)
        with torch.inference_mode():
            narrowed = prop.narrow(torch.tensor([left]))
            hidden = method.hidden(network, region, RIGOROUS)
            lower = method.margins(network, region, narrowed, hidden, RIGOROUS)[0].tolist()
        proven = [row for row, margin in zip(left, lower, strict=True) if margin > 0]
        yield from ((row, name) for row in proven)
        left = [row for row in left if row not in proven]
