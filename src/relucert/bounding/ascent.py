"""Dual ascent on the lower slopes of each form (alpha-CROWN): every iterate is already a bound.

The bound is concave in the slopes of any one layer; at its highest it is the value of the linear program over the
triangle relaxation.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from relucert.bounding.adam import Adam
from relucert.common.progress import Progress, Report, silent

MEANS = (0.9, 0.99)  # Adam's, of gradients and of their squares
PATIENCE = 2  # steps
FEW_STEPS = 4  # before which no ascent is given up
MORE_STEPS = 10  # the same, where nothing was gained

Slopes = dict[int, Tensor]
"""By the value of a ReLU, slopes of lower lines: (batch, forms, size), or laid out like the forms' coefficients."""

Bound = Callable[[Slopes], Tensor]
"""Lower bounds of forms, (batch, forms), with such slopes: differentiable."""


@dataclass(frozen=True)
class Effort:
    """The effort of a dual ascent.

    Attributes:
        steps: The most steps.
        rate: The length of the first step.
        decay: The factor from one step's length to the next.
        least: The share of all that was gained that the last few steps must gain, on average over the forms, for the
            ascent to go on.
        again: The most steps where the slopes of a neighbouring radius are known.
    """

    steps: int
    again: int = 0
    rate: float = 0.4
    decay: float = 0.85
    least: float = 0.02


@dataclass(eq=False)
class BestBounds:
    """The highest bounds so far, (batch, forms), and the slopes that give them."""

    lower: Tensor
    slopes: Slopes
    history: list[float] = field(default_factory=list)

    def take(self, lower: Tensor, slopes: Slopes) -> None:
        """Keeps what is higher, form by form."""
        better = lower > self.lower
        for value, table in slopes.items():
            if bool(better.all()):
                self.slopes[value].copy_(table)
            else:
                self.slopes[value][better] = table[better]
        self.lower = torch.where(better, lower, self.lower)
        known = self.lower[self.lower.isfinite()]
        self.history.append(float(known.mean()) if len(known) else 0.0)

    def stalls(self, least: float) -> bool:
        """Whether the last steps gained hardly anything; as long as nothing is gained at all, more of them may."""
        gained = self.history[-1] - self.history[0]
        if len(self.history) <= (FEW_STEPS if gained > 0 else MORE_STEPS):
            return False
        return self.history[-1] - self.history[-1 - PATIENCE] < least * gained or (least > 0 and gained <= 0)


def ascend(
    bound: Bound, best: BestBounds, others: Sequence[Slopes], effort: Effort, ends: float = math.inf,
    report: Report = silent,
) -> BestBounds:  # fmt: skip
    """The highest bounds that are met on the way up from what is known, or from other slopes where they are better.

    ends: No step begins later. report: Called with every step. None of the tensors involved may come of PyTorch's
    inference mode.
    """
    with torch.no_grad():
        for slopes in others:
            best.take(bound(slopes), slopes)
        best.history = best.history[-1:]
        variables = {value: table.clone().requires_grad_() for value, table in best.slopes.items()}
    adam, rate = Adam(list(variables.values()), MEANS, 1e-8), effort.rate
    for step in range(effort.steps + 1 if effort.steps else 0):
        last = step == effort.steps or time.monotonic() > ends
        with torch.set_grad_enabled(not last):
            lower = bound(variables)
            total = lower.sum()
        with torch.no_grad():
            best.take(lower.detach(), variables)
        report(Progress(step=step, steps=effort.steps))
        if last or not variables or best.stalls(effort.least):
            break
        gradients = torch.autograd.grad(total, list(variables.values()))
        with torch.no_grad():
            for variable, way in zip(variables.values(), adam.directions(gradients), strict=True):
                variable.add_(way, alpha=rate).clamp_(0, 1)
        rate *= effort.decay
    return best
