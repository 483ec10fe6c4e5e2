"""Slopes by gradient ascent on the bound itself, for networks that are too wide for a solver.

At its highest the bound is the program's value.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from relucert.arithmetic.rigor import DOUBLE, FLOAT
from relucert.bounding import ascent
from relucert.bounding.ascent import BestBounds, Effort, Slopes
from relucert.bounding.backward import DualVariables, bound_forms
from relucert.bounding.interval import copied
from relucert.bounding.reference import ReferencePath
from relucert.common.deadline import TimeUp, check_time, until
from relucert.methods.solvers.solver import Unsolved

STEPS = 99  # of one ascent
RATE = 0.5  # of Adam, at the start
COOLING = 0.01  # the last step's share of it


def ascend(path: ReferencePath, value: int, forms: Tensor, slopes: Slopes, time_limit: float) -> Slopes:
    """Better slopes than these for each form on a value of each batch member; raises `Unsolved` if time runs out.

    Args:
        path: With bounds of every pre-activation before the value.
        forms: (batch or 1, forms, size).
        time_limit: Seconds for each form.
    """
    count = len(path.region.radius), forms.shape[1]
    ends = time.monotonic() + time_limit * max(1, count[0] * count[1])
    effort = Effort(STEPS, rate=RATE, decay=COOLING ** (1 / (STEPS + 1)), least=0)
    try:
        with until(ends), torch.inference_mode(False), torch.enable_grad():
            region, rows = path.region.clone(), forms.clone()
            arithmetic = FLOAT if forms.dtype == torch.float32 else DOUBLE
            rough = ReferencePath(path.network, region, copied(path.bounds), path.relaxer, arithmetic, upper=True)

            def bound(tried: Slopes) -> Tensor:
                return bound_forms(rough, value, rows, duals=DualVariables(tried)).lower

            return ascent.ascend(bound, BestBounds.unknown(slopes, count), (), effort).slopes
    except TimeUp:
        check_time()  # whoever asked may have no time left either
        raise Unsolved("Time limit reached") from None
