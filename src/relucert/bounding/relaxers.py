"""How a ReLU is enclosed between two lines. A method of the linear family is a relaxer and nothing more."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.errors import InputError
from relucert.rigor import Arithmetic


class Interval(NamedTuple):
    """Two-sided bounds of the neurons of one value: (batch, size) each."""

    lower: Tensor
    upper: Tensor

    def meet(self, other: Interval) -> Interval:
        """What lies in both; a lower bound above its upper one: nothing."""
        return Interval(torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper))


class Relaxation(NamedTuple):
    """Lines with `slope_below * z + low <= relu(z) <= slope_above * z + high`, a row a batch member; no low: 0.

    The slopes below may differ from form to form: (batch, forms, size) instead of (batch, size).
    """

    slope_below: Tensor
    low: Tensor | None
    slope_above: Tensor
    high: Tensor

    @property
    def parallel(self) -> bool:
        return self.slope_below is self.slope_above


Relaxer = Callable[[Interval, Arithmetic], Relaxation]


def parallel(bounds: Interval, arithmetic: Arithmetic) -> Relaxation:
    """Fast-Lin: both lines of an undecided neuron have the slope u / (u - l) (the paper's equation 1).

    Any slope s in [0, 1] is sound with an offset of at least max(-s l, (1 - s) u): the slope's own rounding is
    harmless.
    """
    lower, upper = bounds
    decided = (lower >= 0) | (upper <= 0)
    width = torch.where(decided, 1, upper - lower)  # where a division by zero would spoil a gradient
    slope = torch.where(decided, (lower >= 0).to(lower.dtype), upper / width).clamp(0, 1)
    reach = torch.maximum(-slope * lower, (1 - slope) * upper)
    high = torch.where(decided, torch.zeros_like(slope), arithmetic.above(reach, 3))
    return Relaxation(slope, None, slope, high)


def interval(bounds: Interval, arithmetic: Arithmetic) -> Relaxation:
    """Interval bounds: every neuron's output is an interval of its own, unrelated to the input."""
    flat = torch.zeros_like(bounds.lower)
    return Relaxation(flat, bounds.lower.clamp(min=0), flat, bounds.upper.clamp(min=0))


def free_below(lines: Relaxation, bounds: Interval, slopes: Tensor) -> Relaxation:
    """The same upper lines, and through the origin lower ones with these slopes, (batch, forms, size), where undecided.

    Below a ReLU lies every such line whose slope is in [0, 1]; what is not in it is moved there.
    """
    undecided = ((bounds.lower < 0) & (bounds.upper > 0))[:, None]
    below = torch.where(undecided, slopes.clamp(0, 1), lines.slope_above[:, None])
    return Relaxation(below, None, lines.slope_above, lines.high)


RELAXERS: dict[str, Relaxer] = {"fast-lin": parallel, "interval": interval}


def find_relaxer(method: str) -> Relaxer:
    if method not in RELAXERS:
        raise InputError(f"no linear bounds by {method!r}; known are {', '.join(RELAXERS)}")
    return RELAXERS[method]
