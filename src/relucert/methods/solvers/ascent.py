"""Slopes by gradient ascent on the bound itself, for networks that are too wide for a solver.

At its highest the bound is the program's value.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, FLOAT
from relucert.bounding import ascent
from relucert.bounding.ascent import BestBounds, Effort, Slopes
from relucert.bounding.backward import DualVariables, bound_forms
from relucert.bounding.interval import Bounds, copied
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import FAST_LIN
from relucert.common.deadline import TimeUp, check_time, until
from relucert.methods.solvers.solver import Unsolved
from relucert.network import Network

STEPS = 99
RATE = 0.5  # of Adam, at the start
COOLING = 0.01  # the last step's share of it


def ascend(
    network: Network, region: Region, forms: Tensor, value: int, bounds: Bounds, slopes: Slopes, time_limit: float
) -> Slopes:
    """Better slopes than these for each form on a value of each batch member; raises `Unsolved` if time runs out.

    Args:
        forms: (batch or 1, forms, size), in the region's precision, like everything else.
        bounds: Those of every pre-activation before the value.
        time_limit: Seconds for each form.
    """
    count = len(region.radius), forms.shape[1]
    ends = time.monotonic() + time_limit * max(1, count[0] * count[1])
    effort = Effort(STEPS, rate=RATE, decay=COOLING ** (1 / (STEPS + 1)), least=0)
    try:
        with until(ends), torch.inference_mode(False), torch.enable_grad():
            arithmetic = FLOAT if region.radius.dtype == torch.float32 else DOUBLE
            path = ReferencePath(network, region.clone(), copied(bounds), FAST_LIN, arithmetic, upper=True)
            rows = forms.clone()

            def bound(tried: Slopes) -> Tensor:
                return bound_forms(path, value, rows, duals=DualVariables(tried)).lower

            return ascent.ascend(bound, BestBounds.unknown(slopes, count), (), effort).slopes
    except TimeUp:
        check_time()  # whoever asked may have no time left either
        raise Unsolved("Time limit reached") from None
