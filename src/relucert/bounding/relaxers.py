"""Linear relaxations: how an activation is enclosed between two lines.

A method of the linear family is a relaxer and nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.interval import Interval
from relucert.network import Activation


class Relaxation(NamedTuple):
    """The linear relaxation of an activation f: `slope_below * z + low <= f(z) <= slope_above * z + high`.

    Every tensor is (batch, size); without `low` it is 0.

    The lines are parallel where both slopes are one tensor.
    """

    slope_below: Tensor
    low: Tensor | None
    slope_above: Tensor
    high: Tensor

    @property
    def parallel(self) -> bool:
        return self.slope_below is self.slope_above

    def select(self, members: Tensor) -> Relaxation:
        """The relaxation in some batch members."""
        above = self.slope_above[members]
        below = above if self.parallel else self.slope_below[members]
        return Relaxation(below, None if self.low is None else self.low[members], above, self.high[members])

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
    """A choice of slopes for the lines around every activation, given the bounds of its pre-activation.

    Attributes:
        slopes: From an activation and the bounds of its pre-activation to the slopes below and above.
        parallel: Whether both lines of every neuron have one slope. The forward driver needs that, the backward driver
            does not.
        flat: Whether that slope is 0 for all neurons: a form ends at the activations, whatever comes before them.
    """

    slopes: Callable[[Activation, Interval], tuple[Tensor, Tensor]]
    parallel: bool
    flat: bool = False

    def __call__(self, activation: Activation, bounds: Interval, arithmetic: Arithmetic) -> Relaxation:
        below, above = self.slopes(activation, bounds)
        if activation.rectifier:
            above = arithmetic.chords(above)
        else:
            below, above = arithmetic.any_slopes(below), arithmetic.any_slopes(above)
        below = above if self.parallel else below
        return Relaxation(
            below, activation.least(below, *bounds, arithmetic), above, activation.largest(above, *bounds, arithmetic)
        )


def _fast_lin(activation: Activation, bounds: Interval) -> tuple[Tensor, Tensor]:
    """Fast-Lin, also known as DeepZ or the zonotope domain: both lines have the chord's slope."""
    chord = activation.chord(*bounds)
    return chord, chord


def _crown(activation: Activation, bounds: Interval) -> tuple[Tensor, Tensor]:
    """CROWN, also known as DeepPoly: lines with a small area between them.

    "Efficient Neural Network Robustness Certification with General Activation Functions", Zhang et al. 2018.
    """
    return activation.slopes(*bounds)


def _interval(activation: Activation, bounds: Interval) -> tuple[Tensor, Tensor]:
    """Interval bound propagation (IBP): every output is an interval of its own, unrelated to its pre-activation."""
    flat = torch.zeros_like(bounds.lower)
    return flat, flat


FAST_LIN = Relaxer(_fast_lin, parallel=True)
CROWN = Relaxer(_crown, parallel=False)
FLAT = Relaxer(_interval, parallel=True, flat=True)
RELAXERS: dict[str, Relaxer] = {"fast-lin": FAST_LIN, "crown": CROWN}
"""The relaxers whose lines also bound the hidden layers; intervals bound them without lines."""
