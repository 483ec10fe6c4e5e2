"""Differences of two networks side by side, neuron by neuron, as in ReluDiff (Paulsen et al. 2020) and NeuroDiff.

A layer holds the pre-activations z of one network in its first half, and z' of the other in its second. Relaxed apart,
relu(z') - relu(z) is as uncertain as both ReLUs are, however near z' is to z. But with d = z' - z

    min(0, d) <= relu(z') - relu(z) <= max(0, d),    the lower side being d where z >= 0, and 0 where z <= 0,
                                                     the upper side d where z' >= 0, and 0 where z' <= 0,

so lines on d enclose it, given bounds of d. Where back-substitution meets coefficients of different signs on a pair,
the part that they share, `c (relu(z') - relu(z))`, takes these lines and the rest those of each ReLU. Bounds of every d
come of back-substitution, too, layer after layer. Both relaxations hold everywhere in the region.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.forms import LinearForms, Rows
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.backward import Pull
from relucert.bounding.boxes import BoxBounds, improved, line_bounds
from relucert.bounding.interval import Interval
from relucert.bounding.reference import PickedPath, ReferencePath
from relucert.bounding.relaxers import Relaxation
from relucert.network import Network


class Halves(NamedTuple):
    """The halves of a layer, (..., half) each."""

    first: Tensor
    second: Tensor

    @classmethod
    def of(cls, numbers: Tensor) -> Halves:
        return cls(*numbers.chunk(2, -1))

    @property
    def difference(self) -> Tensor:
        return self.second - self.first


class PairLines(NamedTuple):
    """Lines on d around relu(z') - relu(z), and where they enclose it more closely than lines around both ReLUs do:
    below, for positive coefficients, and above, for negative ones, (batch, half) each."""

    lines: Relaxation
    closer_below: Tensor
    closer_above: Tensor

    def select(self, members: Tensor) -> PairLines:
        """The lines of some batch members."""
        return PairLines(self.lines.select(members), self.closer_below[members], self.closer_above[members])


def pair_bounds(network: Network, region: Region, paired: tuple[int, ...], arithmetic: Arithmetic) -> PairBounds:
    """Bounds of every pre-activation over boxes, and lines around the differences of paired activations.

    paired: the values of these activations, as `paired_activations` finds them.
    """
    boxes, pairs = line_bounds(network, region, arithmetic), dict[int, PairLines]()
    for activation in paired:
        differences = _differences(boxes.path, pairs, network.source(activation))
        pairs[activation] = pair_lines(boxes.path.bounds[network.source(activation)], differences, arithmetic)
    return PairBounds(boxes, pairs)


class PairBounds(NamedTuple):
    """Bounds of all pre-activations over boxes, and lines around differences by the values of paired activations."""

    boxes: BoxBounds
    pairs: dict[int, PairLines]

    def lower(self, forms: Tensor, offsets: Tensor) -> Tensor:
        """Lower bounds of forms on the output, (batch or 1, forms, size), and offsets: (batch, forms)."""
        path = self.boxes.path
        return PairPull(path, self.pairs).bound(path.network.output, forms, offsets).lower


def _differences(path: ReferencePath, pairs: dict[int, PairLines], value: int) -> Interval:
    """Bounds of z' - z: those of both apart and, where one of them is unstable, by back-substitution."""
    interval = path.bounds[value]
    low, high, unstable = Halves.of(interval.lower), Halves.of(interval.upper), Halves.of(interval.unstable)
    floor, ceil = path.arithmetic.floor, path.arithmetic.ceil
    apart = Interval(floor(low.second - high.first), ceil(high.second - low.first))

    def bound(picked: PickedPath, boxes: Tensor, units: Tensor) -> Tensor:
        pull = PairPull(picked, {activation: lines.select(boxes) for activation, lines in pairs.items()})
        return pull.bound(value, torch.cat([-units, units], 2)).lower

    return improved(path, apart, unstable.first | unstable.second, bound)


def pair_lines(interval: Interval, differences: Interval, arithmetic: Arithmetic) -> PairLines:
    """Lines on d around relu(z') - relu(z).

    Any slope s in [0, 1] is sound above with an offset of at least max(-s d_l, (1 - s) d_u), the largest values of
    `max(0, d) - s d`; below the same holds of -d.
    """
    low, high = Halves.of(interval.lower), Halves.of(interval.upper)
    lower, upper = differences
    width = torch.where(upper > lower, upper - lower, 1)
    above = _slope(low.second >= 0, high.second <= 0, lower >= 0, upper <= 0, upper / width)
    below = _slope(low.first >= 0, high.first <= 0, upper <= 0, lower >= 0, -lower / width)
    rise = arithmetic.above(torch.maximum(-above * lower, (1 - above) * upper).clamp(min=0), 3)
    fall = arithmetic.above(torch.maximum(below * upper, -(1 - below) * lower).clamp(min=0), 3)
    unstable = Halves.of(interval.unstable)  # the slopes of other neurons are those of the difference
    rise, fall = torch.where(unstable.second, rise, 0), torch.where(unstable.first, fall, 0)
    finite = torch.isfinite(torch.stack([rise, fall, lower, upper, above, below])).all(0)
    # How far the lines of each way may be off: those on d from the other side, those around a ReLU from the ReLU.
    largest, least = upper.clamp(min=0), lower.clamp(max=0)
    gap_below = torch.maximum(largest - below * upper, -below * lower) + fall
    gap_above = torch.maximum(above * upper, above * lower - least) + rise
    chords = -interval.lower * interval.upper / (interval.upper - interval.lower)
    chord, line = (
        Halves.of(torch.where(interval.unstable, gap, 0))
        for gap in (chords, torch.minimum(-interval.lower, interval.upper))
    )
    return PairLines(
        Relaxation(below, -fall, above, rise),
        finite & (gap_below < chord.first + line.second),
        finite & (gap_above < chord.second + line.first),
    )


def _slope(is_one: Tensor, is_zero: Tensor, else_one: Tensor, else_zero: Tensor, chord: Tensor) -> Tensor:
    """The slope of a line: that of the difference where a sign tells it, else the chord's."""
    slope = torch.where(else_one, 1.0, torch.where(else_zero, 0.0, chord.clamp(0, 1)))
    return torch.where(is_one, 1.0, torch.where(is_zero, 0.0, slope)).to(chord.dtype)


class PairPull(Pull):
    """A back-substitution that relaxes differences of paired activations by lines of their own."""

    def __init__(self, path: ReferencePath, pairs: dict[int, PairLines]) -> None:
        super().__init__(path)
        self.pairs = pairs

    def _between(self, value: int, lines: Relaxation, form: LinearForms) -> LinearForms:
        if value not in self.pairs:
            return super()._between(value, lines, form)
        first, second = Halves.of(form.rows())
        (below, low, above, high), closer_below, closer_above = self.pairs[value]
        assert low is not None
        positive = second > 0
        closer = torch.where(positive, closer_below[:, None], closer_above[:, None]) & (first * second < 0)
        size = torch.where(closer, torch.minimum(first.abs(), second.abs()), 0)
        shared = torch.where(positive, size, -size)
        rest = Rows(torch.cat([first + shared, second - shared], -1), form.shape)
        apart = super()._between(value, lines, rest)
        slopes = torch.where(positive, below[:, None], above[:, None])
        offsets = torch.where(positive, low[:, None], high[:, None])
        moved = shared * slopes
        both = Rows(torch.cat([-moved, moved], -1), form.shape)
        pulled = apart.plus(both)
        self._pay_for(value, shared, slopes, offsets, both)
        if self.arithmetic.rigorous:
            source = self.network.source(value)
            self.lose(form, self.path.max_deviation(value), 1)
            self.lose(pulled, self.path.max_deviation(source), 1)
        return pulled

    def _pay_for(self, value: int, shared: Tensor, slopes: Tensor, offsets: Tensor, both: Rows) -> None:
        """Adds what the lines are above the difference of the references, what it rounds, and what the pre-activations
        cost, since that is left to their activations."""
        source = self.network.source(value)
        before, after = self.path.reference(source), self.path.reference(value)
        at_source, at_value = Halves.of(before).difference[:, None], Halves.of(after).difference[:, None]
        heights = slopes * at_source + offsets - at_value
        self.gather((shared * heights).sum(2))
        if self.path.charged_later(source):
            self._pay(both, self.path.cost(source))
        if self.arithmetic.rigorous:
            reach = Halves.of(before.abs() + self.path.max_deviation(source))
            level = Halves.of(after.abs())
            sizes = (
                slopes * (reach.first + reach.second)[:, None] + offsets.abs() + (level.first + level.second)[:, None]
            )
            amounts = Rows(shared.abs() * sizes, (shared.shape[-1],))
            self.lose(amounts, torch.ones_like(before[:, : shared.shape[-1]]), 2 * shared.shape[-1] + 12)
