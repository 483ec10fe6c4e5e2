"""How a ReLU is enclosed between two lines. A method of the linear family is a relaxer and nothing more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.bounding.interval import Interval
from relucert.rigor import Arithmetic


class Relaxation(NamedTuple):
    """Lines with `slope_below * z + low <= relu(z) <= slope_above * z + high`, one row per batch member; no low: 0.

    The lines are parallel where both slopes are one tensor.
    """

    slope_below: Tensor
    low: Tensor | None
    slope_above: Tensor
    high: Tensor

    @property
    def parallel(self) -> bool:
        return self.slope_below is self.slope_above

    @property
    def middle(self) -> Tensor:
        """Halfway between the offsets of parallel lines."""
        return self.high / 2 if self.low is None else (self.high + self.low) / 2

    @property
    def half_width(self) -> Tensor:
        """Half the distance between the offsets of parallel lines."""
        return self.high / 2 if self.low is None else (self.high - self.low) / 2


@dataclass(frozen=True)
class Relaxer:
    """A choice of lines for every ReLU, given the bounds of its pre-activation.

    parallel: whether both lines of every neuron have one slope. The forward driver needs that, the backward driver
    does not.
    flat: whether that slope is 0 for all neurons: a form ends at the ReLUs, whatever comes before them.
    """

    lines: Callable[[Interval, Arithmetic], Relaxation]
    parallel: bool
    flat: bool = False

    def __call__(self, bounds: Interval, arithmetic: Arithmetic) -> Relaxation:
        return self.lines(bounds, arithmetic)


def _chord(bounds: Interval, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
    """Slope and offset of the line above: for unstable neurons the chord, with the slope u / (u - l).

    Any slope s in [0, 1] is sound with an offset of at least max(-s l, (1 - s) u): the slope's own rounding is
    harmless.
    """
    lower, upper = bounds
    decided = (lower >= 0) | (upper <= 0)
    width = torch.where(decided, 1, upper - lower)  # where a division by zero would spoil a gradient
    slope = arithmetic.chords(torch.where(decided, (lower >= 0).to(lower.dtype), upper / width))
    reach = torch.maximum(-slope * lower, (1 - slope) * upper)
    return slope, torch.where(decided, torch.zeros_like(slope), arithmetic.above(reach, 3))


def _fast_lin(bounds: Interval, arithmetic: Arithmetic) -> Relaxation:
    """Fast-Lin: both lines of an unstable neuron have the chord's slope (the paper's equation 1)."""
    slope, high = _chord(bounds, arithmetic)
    return Relaxation(slope, None, slope, high)


def _crown(bounds: Interval, arithmetic: Arithmetic) -> Relaxation:
    """CROWN with adaptive lower lines: the chord above; below, z where u > -l, else 0: the smaller area.

    "Efficient Neural Network Robustness Certification with General Activation Functions", Zhang et al. 2018.
    """
    slope, high = _chord(bounds, arithmetic)
    adaptive = (bounds.upper > -bounds.lower).to(slope.dtype)
    return Relaxation(torch.where(bounds.unstable, adaptive, slope), None, slope, high)


def _interval(bounds: Interval, arithmetic: Arithmetic) -> Relaxation:
    """Interval bounds: every neuron's output is an interval of its own, unrelated to its pre-activation."""
    flat = torch.zeros_like(bounds.lower)
    return Relaxation(flat, bounds.lower.clamp(min=0), flat, bounds.upper.clamp(min=0))


FAST_LIN = Relaxer(_fast_lin, parallel=True)
CROWN = Relaxer(_crown, parallel=False)
FLAT = Relaxer(_interval, parallel=True, flat=True)
RELAXERS: dict[str, Relaxer] = {"fast-lin": FAST_LIN, "crown": CROWN}
"""Those whose lines bound the hidden layers, too, which intervals do without lines."""
