"""Dual ascent on the lower slopes of each form (alpha-CROWN): every iterate is already a bound.

The bound is concave in the slopes of any one layer; at its highest it is the value of the linear program over the
triangle relaxation. Methods, programs of wide networks and boxes of branch and bound all ascend here; only the nodes of
ReLU splitting, which leave their ascent one by one, do so in stages of their own (branch_and_bound/dual_ascent).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.bounding.adam import Adam
from relucert.common.progress import Progress, Report, silent

PATIENCE = 2  # last steps whose gain decides whether an ascent goes on
FEW_STEPS = 4  # before which no ascent that has gained something is given up
MORE_STEPS = 10  # before which none is that has gained nothing yet
# The length of a step in the slopes of smooth activations, as a share of that in ReLU's: the best of the latter lie
# mostly at 0 or 1, those of the former in between. Tuned on the zoo's sigmoid MLP and GELU CNN.
SMOOTH_RATE = 1 / 8

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
            ascent to go on; 0: it always goes on.
        again: The most steps where the slopes of a neighbouring radius are known.
        signed: Whether steps go by the signs of the gradient, and not by Adam.
        room: An ascent ends with a step after which the gradient before it leaves at most this share of all that was
            gained to be gained still: a concave bound rises no faster than a gradient tells; 0: it goes on.
    """

    steps: int
    again: int = 0
    rate: float = 0.4
    decay: float = 0.85
    least: float = 0.02
    signed: bool = False
    room: float = 0.0


@dataclass(eq=False)
class BestBounds:
    """The highest bounds so far, (batch, forms), and the slopes that give them."""

    lower: Tensor
    slopes: Slopes

    @classmethod
    def unknown(cls, slopes: Slopes, count: tuple[int, int]) -> BestBounds:
        """Copies of slopes to start from, whose bounds, (batch, forms), are not known yet."""
        copies = {value: table.clone() for value, table in slopes.items()}
        dtype = next((table.dtype for table in copies.values()), torch.float64)
        return cls(torch.full(count, -torch.inf, dtype=dtype), copies)

    def take(self, lower: Tensor, slopes: Slopes) -> None:
        """Keeps what is higher, form by form."""
        better = lower > self.lower
        everywhere = bool(better.all())
        forms_last = better.T.contiguous().T  # as the slopes of windows lie in memory
        for value, table in slopes.items():
            if everywhere:
                self.slopes[value].copy_(table)
            else:
                where = forms_last.view(*better.shape, *[1] * (table.ndim - 2))
                self.slopes[value] = torch.where(where, table, self.slopes[value])
        self.lower = torch.where(better, lower, self.lower)

    @property
    def mean(self) -> float:
        """The mean of the bounds that are finite, as far as there are any."""
        finite = self.lower[self.lower.isfinite()]
        return float(finite.mean()) if len(finite) else 0.0


def _stalls(means: Sequence[float], least: float) -> bool:
    """Whether the last steps gained hardly anything; as long as nothing is gained at all, more of them may."""
    gained = means[-1] - means[0]
    if len(means) <= (FEW_STEPS if gained > 0 else MORE_STEPS):
        return False
    return means[-1] - means[-1 - PATIENCE] < least * gained or gained <= 0


def _room(slopes: Iterable[Tensor], gradients: Iterable[Tensor]) -> float:
    """How much higher the sum of all bounds may get from slopes in [0, 1], if it rises as gradients tell."""
    pairs = zip(slopes, gradients, strict=True)
    return sum(float(gradient.clamp(min=0).sum() - (gradient * table).sum()) for table, gradient in pairs)


def ascend(
    bound: Bound, best: BestBounds, others: Sequence[Slopes], effort: Effort, ends: float = math.inf,
    report: Report = silent, smooth: Collection[int] = (),
) -> BestBounds:  # fmt: skip
    """The highest bounds that are met on the way up from what is known, or from other slopes where they are better.

    None of the tensors involved may come of PyTorch's inference mode.

    Args:
        ends: No step begins later.
        report: Called with every step.
        smooth: The values of the slopes that are those of smooth activations.
    """
    with torch.no_grad():
        for slopes in others:
            best.take(bound(slopes), slopes)
        variables = {value: table.clone().requires_grad_() for value, table in best.slopes.items()}
    adam = None if effort.signed else Adam(list(variables.values()))
    rate, means, ended = effort.rate, [best.mean] if others else [], False
    for step in range(effort.steps + 1 if effort.steps else 0):
        last = ended or step == effort.steps or time.monotonic() > ends
        with torch.set_grad_enabled(not last):
            lower = bound(variables)
            total = lower.sum()
        with torch.no_grad():
            best.take(lower.detach(), variables)
        report(Progress(step=step, steps=effort.steps))
        if effort.least or effort.room:
            means.append(best.mean)
        if last or not variables or (effort.least and _stalls(means, effort.least)):
            break
        gradients = torch.autograd.grad(total, list(variables.values()))
        with torch.no_grad():
            ways = [gradient.sign() for gradient in gradients] if adam is None else adam.directions(gradients)
            for (value, variable), way in zip(variables.items(), ways, strict=True):
                variable.add_(way, alpha=rate * (SMOOTH_RATE if value in smooth else 1)).clamp_(0, 1)
            if effort.room:
                gained = (means[-1] - means[0]) * lower.numel()
                ended = _room(variables.values(), gradients) <= effort.room * gained
        rate *= effort.decay
    return best
