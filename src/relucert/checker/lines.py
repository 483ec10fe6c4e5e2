"""Bounds of pre-activations, and the lines that enclose their ReLUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from relucert.checker.activations import SmoothFunction
from relucert.checker.enclosures import Enclosed
from relucert.checker.fixed_point import Fixed, of_integers
from relucert.checker.noise import ActivationError

BOUND_BITS = 64
SLOPE_BITS = 20  # of the slopes that a proof gives
CHORD_BITS = 30
UNIT_SLOPE = 1 << CHORD_BITS


@dataclass(frozen=True, eq=False)
class IntegerInterval:
    """Bounds of the neurons of one pre-activation: integers over 2**64."""

    lower: Sequence[int]
    upper: Sequence[int]

    def met(self, second: IntegerInterval) -> IntegerInterval:
        """The intersection of two intervals."""
        return self.replaced(range(len(self.lower)), second)

    def replaced(self, neurons: Sequence[int], bounds: IntegerInterval) -> IntegerInterval:
        """The intervals, those of some neurons intersected with further bounds of these."""
        lower, upper = list(self.lower), list(self.upper)
        for neuron, low, high in zip(neurons, bounds.lower, bounds.upper, strict=True):
            lower[neuron], upper[neuron] = max(lower[neuron], low), min(upper[neuron], high)
        return IntegerInterval(lower, upper)

    def raised(self, neurons: Sequence[int], signs: Sequence[int], least: Sequence[int]) -> IntegerInterval:
        """The intervals, improved by lower bounds of some neurons, or with the sign -1 of their negatives."""
        lower, upper = list(self.lower), list(self.upper)
        for neuron, sign, number in zip(neurons, signs, least, strict=True):
            if sign > 0:
                lower[neuron] = max(lower[neuron], number)
            else:
                upper[neuron] = min(upper[neuron], -number)
        return IntegerInterval(lower, upper)

    def enclosed(self, function: SmoothFunction, error: ActivationError | None = None) -> Enclosed:
        """A smooth activation of the neurons; error: how far its evaluation may be off."""
        if (function, error) not in self._enclosed:
            self._enclosed[function, error] = Enclosed(function, self.lower, self.upper, error)
        return self._enclosed[function, error]

    @cached_property
    def _enclosed(self) -> dict[tuple[SmoothFunction, ActivationError | None], Enclosed]:
        return {}

    @cached_property
    def inactive(self) -> Tensor:
        """Which neurons are inactive, never positive: bool, (size,)."""
        return torch.tensor([high <= 0 for high in self.upper])

    @cached_property
    def active(self) -> Tensor:
        """Which neurons are active, never negative, and not inactive: bool, (size,)."""
        return torch.tensor([low >= 0 for low in self.lower]) & ~self.inactive

    @cached_property
    def unstable(self) -> Tensor:
        """Which neurons are neither active nor inactive: bool, (size,)."""
        return ~(self.active | self.inactive)

    @cached_property
    def chords(self) -> Tensor:
        """The slopes of the upper lines over 2**30: 0 for inactive neurons, 1 for active ones."""
        return torch.tensor([_chord(low, high) for low, high in zip(self.lower, self.upper, strict=True)])

    @cached_property
    def heights(self) -> Fixed:
        """The offsets of the upper lines, rounded up."""
        ends = zip(self.chords.tolist(), self.lower, self.upper, strict=True)
        heights = [max(-slope * low, (UNIT_SLOPE - slope) * high) if low < 0 < high else 0 for slope, low, high in ends]
        return of_integers(heights, BOUND_BITS + CHORD_BITS, up=True)

    @cached_property
    def image(self) -> tuple[Fixed, Fixed]:
        """Lower and upper bounds of the ReLUs, rounded outwards."""
        low, high = ([max(0, number) for number in ends] for ends in (self.lower, self.upper))
        return of_integers(low, BOUND_BITS), of_integers(high, BOUND_BITS, up=True)

    @cached_property
    def total(self) -> int:
        """The sum of the largest values of all ReLUs, over 2**64."""
        return sum(max(0, high) for high in self.upper)

    @cached_property
    def unstable_magnitude(self) -> int:
        """The sum of the largest absolute values of the unstable neurons, over 2**64."""
        return sum(max(-low, high) for low, high in zip(self.lower, self.upper, strict=True) if low < 0 < high)


Bounds = Mapping[int, IntegerInterval]
"""By value, the bounds of pre-activations."""


@dataclass(frozen=True, eq=False)
class ChosenLines:
    """Dual variables of lower bounds of forms, slopes (alpha) and multipliers (beta): any choice is sound.

    A table holds one row of numbers for all forms, (size,), or one row per form, (forms, size).

    Attributes:
        slopes: By the value of a ReLU, the slopes of lower lines of neurons that are not inactive: int64 over 2**20,
            which are clamped to [0, 1]. Where there is no table, and for active neurons where its number is
            negative, the chord's slope is used.
        signs: By pre-activation, which neurons are split and active, 1, or inactive, -1, in the subdomain of a form; 0
            for neurons that are not split.
        multipliers: By the value of a ReLU, how many times `sign * z` is subtracted from a form, for neurons z of a
            known sign (beta-CROWN): float64; negative ones count as 0, as do those of unstable neurons without a split.
        flat: Whether every activation is replaced by its image (IBP): no other dual variable is then used.
        smooth: By the value of a smooth activation, the slopes of lines below and above it, one table each, float64;
            of `on_grid`.
    """

    slopes: Mapping[int, Tensor] = field(default_factory=dict)
    signs: Mapping[int, Tensor] = field(default_factory=dict)
    multipliers: Mapping[int, Tensor] = field(default_factory=dict)
    flat: bool = False
    smooth: Mapping[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def parallel(self) -> bool:
        """Whether the upper and the lower line of every ReLU have one slope, so that one pass bounds both ways."""
        return not (self.slopes or self.multipliers or self.smooth)

    def of_forms(self, forms: slice) -> ChosenLines:
        """The dual variables of a slice of the forms."""

        def cut(table: Tensor) -> Tensor:
            return table[forms] if table.ndim > 1 else table

        slopes, signs, multipliers = (
            {value: cut(table) for value, table in tables.items()}
            for tables in (self.slopes, self.signs, self.multipliers)
        )
        smooth = {value: (cut(below), cut(above)) for value, (below, above) in self.smooth.items()}
        return ChosenLines(slopes, signs, multipliers, self.flat, smooth)


def on_grid(slopes: Tensor) -> Tensor:
    """Slopes of one activation in float64, rounded so that any of them are multiples of one power of two, with at most
    53 bits each."""
    largest = slopes.abs().max() if slopes.numel() else slopes.new_zeros(())
    unit = torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent - 53).clamp(min=2.0**-1000)
    return torch.floor(slopes / unit) * unit


def adaptive(interval: IntegerInterval) -> Tensor:
    """CROWN's slopes of lower lines over 2**20: 1 where a neuron reaches farther up than down, else 0."""
    return torch.tensor(
        [(1 << SLOPE_BITS) * (high > -low) for low, high in zip(interval.lower, interval.upper, strict=True)]
    )


def _chord(low: int, high: int) -> int:
    if high <= 0:
        return 0
    return UNIT_SLOPE if low >= 0 else (2 * high * UNIT_SLOPE + high - low) // (2 * (high - low))
