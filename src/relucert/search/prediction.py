"""Predictions for the radius search: hidden bounds between evaluations, and the root of a predicted margin.

Nothing here is a bound. A prediction chooses where to look next, and a wrong one costs time, not truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.bounding.interval import Bounds, Interval

MOST_RADII = 4  # evaluated radii that a prediction interpolates between
FASTEST = 8  # the largest exponent of growth that a prediction believes
TINIEST = 1e-30  # the least distance whose logarithm is taken


@dataclass(frozen=True, eq=False)
class Correction:
    """A method's least margin less that of its surrogate, as a function of the radius: 0 at radius 0.

    radii, in ascending order, and amounts: (batch, radii) each. Unlike bounds a correction may also shrink.
    """

    radii: Tensor
    amounts: Tensor

    @classmethod
    def none(cls, count: int) -> Correction:
        return cls(*[torch.zeros(count, 1, dtype=torch.float64)] * 2)

    def add(self, radii: Tensor, amounts: Tensor) -> Correction:
        ordered, order = torch.cat([self.radii, radii[:, None]], 1).sort(dim=1)
        return Correction(ordered, torch.cat([self.amounts, amounts[:, None]], 1).gather(1, order))

    def at(self, radii: Tensor) -> Tensor:
        """On the chord between the neighbours of each candidate, (batch, candidates), or on the last chord."""
        if self.radii.shape[1] == 1:
            return torch.zeros_like(radii)
        right = torch.searchsorted(self.radii, radii).clamp(1, self.radii.shape[1] - 1)
        (low, high), (start, end) = (
            (known.gather(1, right - 1), known.gather(1, right)) for known in (self.radii, self.amounts)
        )
        share = torch.where(high > low, (radii - low) / (high - low), 0)
        return start + share * (end - start)


@dataclass(frozen=True, eq=False)
class EvaluatedRadii:
    """Hidden bounds at the centre (radius 0) and, newest last, at the radii evaluated last.

    Of each neuron's bounds the logarithm of their distance from the value at the centre is kept, in `distances` as
    (batch, radii, 2 * size): it is close to linear in the logarithm of the radius, in `logs` (batch, radii).
    A method may bound every neuron several times, side by side in one row: in smaller regions within the region.
    """

    centre: dict[int, Tensor]
    growth: dict[int, float]  # the exponent assumed while a single radius is evaluated
    logs: Tensor
    distances: dict[int, Tensor]
    correction: Correction
    # By value, where bounds are tight, (batch, radii, size); values that are missing are tight everywhere.
    tight: dict[int, Tensor] = field(default_factory=dict)

    def add(
        self, radii: Tensor, bounds: Bounds, corrections: Tensor, tight_now: Mapping[int, Tensor] | None = None
    ) -> EvaluatedRadii:
        """With the bounds at one more radius, or with shells at two.

        tight_now: which bounds are tight, (batch, size) by value; None: all of them, or with shells all that differ
        from those in the next larger region.
        """
        distances, tight, steps = {}, {}, radii.new_zeros(1)
        for value, (lower, upper) in bounds.items():
            centre = _repeated(self.centre[value], lower.shape[1])
            sides = torch.cat([centre - lower.to(centre.dtype), upper.to(centre.dtype) - centre], 1)
            newest = sides.clamp(min=TINIEST).log()[:, None]
            if tight_now is None:
                newest, steps = _distances_by_radius(newest[:, 0], self.centre[value].shape[1])
            else:
                newest_tight = tight_now[value][:, None]
                tight[value] = torch.cat([self.tight.get(value, newest_tight[:, :0]), newest_tight], 1)[:, -MOST_RADII:]
            distances[value] = torch.cat([self.distances.get(value, newest[:, :0]), newest], 1)[:, -MOST_RADII:]
        logs = torch.cat([self.logs, radii.log()[:, None] + steps], 1)[:, -MOST_RADII:]
        for value, where in tight.items():
            centre = _repeated(self.centre[value], where.shape[2])
            distances[value] = _guessed(distances[value], where, logs, centre, self.growth[value])
        return replace(
            self, logs=logs, distances=distances, correction=self.correction.add(radii, corrections), tight=tight
        )

    @classmethod
    def merge(cls, parts: Sequence[EvaluatedRadii], order: Tensor) -> EvaluatedRadii:
        """Joins the batches and puts their members into the given order.

        Where fewer radii are evaluated the first is repeated: a radius so close to another counts for nothing.
        """

        def padded(values: Tensor) -> Tensor:
            return torch.cat([values[:, :1].expand(-1, MOST_RADII - values.shape[1], *values.shape[2:]), values], 1)

        def joined(tensors: Sequence[Tensor]) -> Tensor:
            return torch.cat(list(tensors))[order]

        first = parts[0]
        return cls(
            {value: joined([part.centre[value] for part in parts]) for value in first.centre},
            first.growth,
            joined([padded(part.logs) for part in parts]),
            {value: joined([padded(part.distances[value]) for part in parts]) for value in first.distances},
            Correction.none(len(order)),
            {value: joined([padded(part.tight[value]) for part in parts]) for value in first.tight},
        )

    def mean_growth(self) -> dict[int, float]:
        """By value, the mean exponent with which bounds grew between the last two evaluated radii.

        Values are left out where these radii are too close, or the exponent is implausible.
        """
        step = self.logs[:, -1] - self.logs[:, -2]
        apart = step.abs() > 0.01
        if not bool(apart.any()):
            return {}
        growth = {}
        for value, logs in self.distances.items():
            exponents = (logs[apart, -1] - logs[apart, -2]).mean(1).double() / step[apart]
            mean = float(exponents.mean())
            if 0.5 < mean < FASTEST:
                growth[value] = mean
        return growth

    def select(self, chosen: Tensor) -> EvaluatedRadii:
        centre = {value: tensor[chosen] for value, tensor in self.centre.items()}
        distances = {value: tensor[chosen] for value, tensor in self.distances.items()}
        correction = Correction(self.correction.radii[chosen], self.correction.amounts[chosen])
        tight = {value: tensor[chosen] for value, tensor in self.tight.items()}
        return EvaluatedRadii(centre, self.growth, self.logs[chosen], distances, correction, tight)

    def interpolate(self, radii: Tensor, signs_kept: bool = False) -> Bounds:
        """Guessed hidden bounds at candidate radii (batch, candidates): flat batches, one row per candidate.

        signs_kept: whether neurons that the newest evaluation only tells the sign of are taken to keep it.
        """
        if not self.logs.shape[1]:
            count = radii.shape[1]
            return {value: Interval(*[tensor.repeat_interleave(count, 0)] * 2) for value, tensor in self.centre.items()}
        steps = radii.log()[:, :, None] - self.logs[:, None]
        weights, alone = self._weights(steps)
        hidden = {}
        for value, logs in self.distances.items():
            centre = _repeated(self.centre[value], logs.shape[2] // 2)[:, None]
            dtype = centre.dtype
            guess = torch.bmm(weights.to(dtype), logs) + (self.growth[value] * alone * steps[:, :, -1:]).to(dtype)
            known, step = logs[:, None], steps[..., None].to(dtype)  # bounds widen with the radius, and not too fast
            guess = torch.minimum(guess, (known + (FASTEST * step).clamp(min=0)).amin(2))
            guess = torch.maximum(guess, known.where(step > 0, -torch.inf).amax(2))
            below, above = guess.exp().chunk(2, 2)
            lower, upper = centre - below, centre + above
            if signs_kept and value in self.tight:
                kept = ~self.tight[value][:, -1:]
                lower = torch.where(kept & (centre > 0), lower.clamp(min=0), lower)
                upper = torch.where(kept & (centre < 0), upper.clamp(max=0), upper)
            hidden[value] = Interval(lower.flatten(0, 1), upper.flatten(0, 1))
        return hidden

    def _weights(self, steps: Tensor) -> tuple[Tensor, Tensor]:
        """Lagrange's weights at candidates, given their steps from the evaluated radii, (batch, candidates, radii), and
        whether a single radius counts.

        A radius too close to a newer one counts for nothing: between them rounding would be all there is to see.
        """
        count = self.logs.shape[1]
        apart = self.logs[:, :, None] - self.logs[:, None]
        counts = torch.ones_like(self.logs, dtype=torch.bool)
        for older in range(count - 2, -1, -1):
            close = apart[:, older, older + 1 :].abs() < 3e-3
            counts[:, older] = ~(close & counts[:, older + 1 :]).any(1)
        paired = counts[:, :, None] & counts[:, None] & ~torch.eye(count, dtype=torch.bool)
        factors = torch.where(paired[:, None], steps[:, :, None] / apart[:, None], 1.0)
        return factors.prod(3) * counts[:, None], (counts.sum(1) == 1)[:, None, None]


def _guessed(distances: Tensor, tight: Tensor, logs: Tensor, centre: Tensor, growth: float) -> Tensor:
    """Distances of neurons at radii where their bounds are not tight, as growing to or from the last tight ones.

    At such a radius the neuron is stable: its bound on the side of zero is nearer to the centre than zero. A neuron
    that is stable at every radius is taken to stay so.

    distances: (batch, radii, 2 * size); tight: (batch, radii, size); centre: (batch, size).
    """
    sides, known = distances.unflatten(2, (2, -1)), tight[:, :, None]
    places = torch.arange(1, known.shape[1] + 1)[:, None, None]
    last = (known * places).argmax(1, keepdim=True)  # (batch, 1, 1, size)
    steps = logs[..., None, None] - logs[..., None, None].expand(-1, -1, 1, centre.shape[1]).gather(1, last)
    grown = sides.take_along_dim(last, 1) + (growth * steps).to(sides.dtype)
    towards_zero = torch.stack([centre > 0, centre < 0], 1)[:, None]
    nearest = torch.where(towards_zero, centre.abs().clamp(min=TINIEST).log()[:, None, None], torch.inf)
    guess = torch.minimum(grown, nearest).where(known.any(1, keepdim=True), math.log(TINIEST))
    return torch.where(known, sides, guess).flatten(2)


def _distances_by_radius(logs: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Logarithms of the distances that one evaluation gives, (batch, radii, 2 * regions * size), and of the shares of
    the radius that they are at.

    logs: (batch, 2 * regions * size). Several regions, of equally spaced radii, tell also what the bounds would be at
    a radius less by one region.
    """
    parts = logs.unflatten(1, (2, -1, size))
    regions = parts.shape[2]
    if regions == 1:
        return logs[:, None], torch.zeros(1, dtype=torch.float64)
    parts = _released(parts)
    place = torch.arange(1, regions + 1, dtype=torch.float64)[:, None]
    less = math.log((regions - 1) / regions)
    weight = (less / (place[:-1] / place[1:]).log()).to(parts.dtype)
    inner = torch.cat([parts[:, :, :1] + less, torch.lerp(parts[:, :, 1:], parts[:, :, :-1], weight)], 2)
    steps = torch.tensor([less, 0], dtype=torch.float64)
    return torch.stack([inner.flatten(1), parts.flatten(1)], 1), steps


def _released(parts: Tensor) -> Tensor:
    """Logarithms of distances, (batch, 2, regions, size), where those that were merely taken over from the next larger
    region are guessed: between regions that were looked at on the line, below all of them as growing with the radius.
    """
    regions = parts.shape[2]
    copied = torch.nn.functional.pad((parts[:, :, :-1] == parts[:, :, 1:]).all(1), (0, 0, 0, 1))
    place = torch.arange(regions)[:, None]
    above = torch.where(copied, regions, place).flip(1).cummin(1).values.flip(1)
    below = torch.where(copied, -1, place).cummax(1).values
    positions = (place + 1).to(parts.dtype).log()
    end, start = (parts.take_along_dim(known.clamp(min=0)[:, None], 2) for known in (above, below))
    step, width = positions - positions[above, 0], positions[below.clamp(min=0), 0] - positions[above, 0]
    growth = torch.where((below >= 0) & (width < 0), 1, 0)[:, None] * (start - end - width[:, None])
    slope = 1 + growth / torch.where(width < 0, width, 1)[:, None]
    return end + slope * step[:, None]


def _repeated(centre: Tensor, width: int) -> Tensor:
    return centre.repeat(1, width // centre.shape[1])


class Curve(NamedTuple):
    """Margins at radii in order, (batch, points) each."""

    radii: Tensor
    margins: Tensor

    @property
    def crossed(self) -> Tensor:
        return ((self.margins > 0) != (self.margins[:, :1] > 0)).any(1)

    def around(self, count: int) -> Curve:
        """`count` neighbouring points around the first change of sign, or the last ones where there is none."""
        changed = (self.margins > 0) != (self.margins[:, :1] > 0)
        last = self.radii.shape[1] - 1
        place = torch.where(changed.any(1), changed.int().argmax(1), last)[:, None]
        first = (place - count // 2).clamp(0, last + 1 - count)
        places = first + torch.arange(count)
        return Curve(self.radii.gather(1, places), self.margins.gather(1, places))

    def bracket(self) -> tuple[Curve, Curve]:
        """The neighbours between which the sign changes."""
        pair = self.around(2)
        return Curve(pair.radii[:, :1], pair.margins[:, :1]), Curve(pair.radii[:, 1:], pair.margins[:, 1:])

    def slope(self) -> Tensor:
        """The slope of the chord where the sign changes; strictly negative, as margins are meant to fall."""
        low, high = self.bracket()
        chord = (high.margins - low.margins) / (high.radii - low.radii)
        return chord.squeeze(1).nan_to_num(-1.0).clamp(max=-1e-30)

    def root(self) -> Tensor:
        """Where the margin crosses zero, by inverse interpolation through four points; the far end if it does not."""
        low, high = self.bracket()
        chord = low.radii + (high.radii - low.radii) * low.margins / (low.margins - high.margins)
        radii, margins = self.around(4)
        cubic = torch.zeros_like(chord)
        for this in range(4):
            others = [other for other in range(4) if other != this]
            weight = torch.ones_like(chord[:, 0])
            for other in others:
                weight = weight * margins[:, other] / (margins[:, other] - margins[:, this])
            cubic[:, 0] += weight * radii[:, this]
        ends = torch.minimum(low.radii, high.radii), torch.maximum(low.radii, high.radii)
        best = torch.where((cubic >= ends[0]) & (cubic <= ends[1]), cubic, chord.clamp(*ends))
        return torch.where(self.crossed & best.isfinite().squeeze(1), best.squeeze(1), high.radii.squeeze(1))
