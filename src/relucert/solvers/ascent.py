"""Slopes by gradient ascent on the bound itself, for networks too wide for a solver.

The bound is concave in the slopes of any one layer, and at its highest it is the program's value.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from relucert.ball import Ball
from relucert.bounding.backward import Slopes, minimise
from relucert.bounding.forward import Bounds
from relucert.bounding.relaxers import Interval, parallel
from relucert.network import Network
from relucert.rigor import DOUBLE, FLOAT
from relucert.solvers.solver import Unsolved

STEPS = 100
RATE = 0.5  # of Adam, at the start
COOLING = 0.01  # the last step's share of it


def ascend(
    network: Network, ball: Ball, forms: Tensor, value: int, bounds: Bounds, slopes: Slopes, time_limit: float
) -> Slopes:
    """Better slopes than these for each form of each batch member; raises `Unsolved` if time runs out."""
    ends = time.monotonic() + time_limit * max(1, len(ball.radius) * forms.shape[1])
    arithmetic = FLOAT if ball.radius.dtype == torch.float32 else DOUBLE
    with torch.inference_mode(False), torch.enable_grad():
        ball = Ball(ball.points.clone(), ball.radius.clone(), ball.norm, ball.which)
        bounds = {source: Interval(*(side.clone() for side in own)) for source, own in bounds.items()}
        forms = forms.clone()
        best = {made: own.clone() for made, own in slopes.items()}
        tried = {made: own.clone().requires_grad_() for made, own in slopes.items()}
        adam = torch.optim.Adam(tried.values(), RATE, betas=(0.9, 0.99))
        cooling = torch.optim.lr_scheduler.ExponentialLR(adam, COOLING ** (1 / STEPS))
        highest = ball.radius.new_full((len(ball.radius), forms.shape[1]), -torch.inf)
        for _ in range(STEPS):
            if time.monotonic() > ends:
                raise Unsolved("Time limit reached")
            found = minimise(network, ball, forms, value, bounds, parallel, arithmetic, tried)
            better = found.detach() > highest
            highest = torch.where(better, found.detach(), highest)
            adam.zero_grad()
            (-found.sum()).backward()
            with torch.no_grad():
                best = {made: torch.where(better[..., None], tried[made], own) for made, own in best.items()}
                adam.step()
                cooling.step()
                for own in tried.values():
                    own.clamp_(0, 1)
    return best
