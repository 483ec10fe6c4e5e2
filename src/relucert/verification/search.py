"""The order of work on problems: cheap bounds, then whatever attack the caller has, then the prover until time ends."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch

from relucert.methods.table import find_method
from relucert.progress import Progress, Report, silent
from relucert.rigor import RIGOROUS
from relucert.verification.problem import Problem

CHEAP = ("interval", "fast-lin", "crown")


class Bounded(NamedTuple):
    """The rows that cheap bounds leave open, and the method that closed the last one that it could."""

    open: list[int]
    method: str | None


def bounded(problem: Problem, ends: float, report: Report = silent) -> Bounded:
    """Proves what rows of a problem it can without a search; once time is over, by the cheapest bounds alone."""
    network, prop = problem.network.cast(torch.float64), problem.prop.cast(torch.float64)
    region = problem.shape.around(problem.centre[None], problem.radius)
    left, decided = list(range(prop.rows.shape[1])), None
    with torch.inference_mode():
        for name in CHEAP:
            if not left or (name != CHEAP[0] and time.monotonic() > ends):
                break
            report(Progress(stage=name))
            method = find_method(name)
            narrowed = prop.narrow(torch.tensor([left]))
            hidden = method.hidden(network, region, RIGOROUS)
            lower = method.margins(network, region, narrowed, hidden, RIGOROUS)[0]
            still = [row for row, margin in zip(left, lower.tolist(), strict=True) if not margin > 0]
            if len(still) < len(left):
                left, decided = still, name
    return Bounded(left, decided)
