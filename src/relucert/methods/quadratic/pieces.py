"""What quadratic certificates know of an activation: straight pieces that its graph is, or lies between.

A neuron's term of the dual bound is concave in the deviation dh of the activation. So on an interval where the graph
lies between two lines, its least value is on one of them: ReLU is two pieces, any other activation two lines, one below
and one above it, on each of a few intervals. The offsets that make lines sound are the activation's own (`least` and
`largest`); slopes and intervals are free.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.rigor import RIGOROUS, TINY, short
from relucert.network import Activation

SHARES = (0.0, 0.08, 0.18, 0.32, 0.5, 0.73, 1.0)  # of the way from the reference to an end, where intervals end
SAMPLES = 8  # of chords from the reference, on either side


class StraightPiece(NamedTuple):
    """A straight piece: `dh = rise dz + shift` and `e = steep dz + shift` for dz within [low, high], (count,) each."""

    rise: float | Tensor
    shift: Tensor
    steep: Tensor
    low: Tensor
    high: Tensor

    def cast(self, dtype: torch.dtype) -> StraightPiece:
        rise, *rest = self
        return StraightPiece(
            rise.to(dtype) if isinstance(rise, Tensor) else rise, *(numbers.to(dtype) for numbers in rest)
        )

    @property
    def size(self) -> Tensor:
        """How large |dh| may be on it, but for rounding."""
        far = torch.maximum(self.low.abs(), self.high.abs())
        return (self.rise * far).abs() + self.shift.abs()


def relu_pieces(centre: Tensor, slope: Tensor, lower: Tensor, upper: Tensor) -> tuple[StraightPiece, ...]:
    """Where pre-activations are negative, and where they are positive, for deviations within bounds."""
    positive, kink = centre.clamp(min=0), -centre
    return (
        StraightPiece(0.0, -positive, -slope, lower, torch.minimum(kink, upper)),
        StraightPiece(1.0, centre - positive, 1 - slope, torch.maximum(kink, lower), upper),
    )


def enclosing_pieces(
    activation: Activation, centre: Tensor, output: Tensor, slope: Tensor, lower: Tensor, upper: Tensor
) -> tuple[tuple[StraightPiece, ...], Tensor]:
    """Lines below and above any activation, one after the other, interval after interval; and where intervals end,
    (ends, count).

    Args:
        centre: The reference of pre-activations, (count,).
        output: The number that dh counts from, for each.
        slope: s of `e = dh - s dz`.
        lower: Bounds of pre-activations.
        upper: The same from above.
    """
    middle = torch.minimum(torch.maximum(centre, lower), upper)
    breakpoints = [middle + share * (lower - middle) for share in SHARES[::-1]]
    breakpoints = [lower, *breakpoints[1:], *(middle + share * (upper - middle) for share in SHARES[1:-1]), upper]
    pieces = []
    for low, high in pairwise(breakpoints):
        high = torch.maximum(low, high)
        ends = RIGOROUS.floor(low - centre), RIGOROUS.ceil(high - centre)
        below, above = (short(rise) for rise in activation.slopes(low, high))
        least = activation.least(below, low, high, RIGOROUS)
        largest = activation.largest(above, low, high, RIGOROUS)
        least = torch.zeros_like(low) if least is None else least
        for rise, offset, sign in ((below, least, -1), (above, largest, 1)):
            moved = rise * centre
            shift = offset + moved - output
            rounding = RIGOROUS.gamma(4) * (offset.abs() + moved.abs() + output.abs()) + TINY
            pieces.append(StraightPiece(rise, shift + sign * rounding, rise - slope, *ends))
    return tuple(pieces), torch.stack(breakpoints)


def chord_slopes(activation: Activation, centre: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """About the least and the largest slope of a chord from the reference to another point within bounds."""
    value, tangent = activation.apply(centre), activation.derivative(centre)
    least = largest = tangent
    for end in (lower, upper):
        for step in range(1, SAMPLES + 1):
            offset = (end - centre) * (step / SAMPLES)
            apart = offset.abs() > 1e-6 * (1 + centre.abs())
            chord = (activation.apply(centre + offset) - value) / torch.where(apart, offset, 1)
            chord = torch.where(apart & chord.isfinite(), chord, tangent)
            least, largest = torch.minimum(least, chord), torch.maximum(largest, chord)
    return least, largest
