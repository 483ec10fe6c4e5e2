"""Predictions for the radius search: hidden bounds between evaluations.

Nothing here is a bound. A prediction chooses where to look next, and a wrong one costs time, not truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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
        """The correction at candidates, (batch, candidates): on the chord between neighbours, or on the last chord."""
        if self.radii.shape[1] == 1:
            return torch.zeros_like(radii)
        right = torch.searchsorted(self.radii, radii).clamp(1, self.radii.shape[1] - 1)
        (low, high), (start, end) = (
            (points.gather(1, right - 1), points.gather(1, right)) for points in (self.radii, self.amounts)
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
        self, radii: Tensor, bounds: Bounds, corrections: Tensor, tight_now: Mapping[int, Tensor]
    ) -> EvaluatedRadii:
        """Adds the bounds at one more radius; or at two, where neurons are bounded in several regions.

        tight_now: By value, which of these lower and upper bounds are tight, (batch, 2, size), or in several regions
            which neurons' bounds, (batch, regions * size). Of values that are missing, all are.
        """
        distances, tight, steps = {}, {}, radii.new_zeros(1)
        for value, (lower, upper) in bounds.items():
            size = self.centre[value].shape[1]
            centre = _repeated(self.centre[value], lower.shape[1])
            both = torch.cat([centre - lower.to(centre.dtype), upper.to(centre.dtype) - centre], 1)
            newest = both.clamp(min=TINIEST).log()[:, None]
            if lower.shape[1] > size:
                newest, steps = _distances_by_radius(newest[:, 0], size, tight_now.get(value))
            elif value in tight_now:
                newest = _mirrored(newest, tight_now[value])
                newest_tight = tight_now[value].any(1, keepdim=True)
                tight[value] = torch.cat([self.tight.get(value, newest_tight[:, :0]), newest_tight], 1)[:, -MOST_RADII:]
            distances[value] = torch.cat([self.distances.get(value, newest[:, :0]), newest], 1)[:, -MOST_RADII:]
        logs = torch.cat([self.logs, radii.log()[:, None] + steps], 1)[:, -MOST_RADII:]
        for value, where in tight.items():
            distances[value] = _guessed(distances[value], where, logs, self.centre[value], self.growth[value])
        return replace(
            self, logs=logs, distances=distances, correction=self.correction.add(radii, corrections), tight=tight
        )

    @classmethod
    def merge(cls, batches: Sequence[EvaluatedRadii], order: Tensor) -> EvaluatedRadii:
        """Joins batches, reordered by `order`.

        Where fewer radii are evaluated the first is repeated: a radius so close to another counts for nothing.
        """

        def padded(values: Tensor) -> Tensor:
            return torch.cat([values[:, :1].expand(-1, MOST_RADII - values.shape[1], *values.shape[2:]), values], 1)

        def joined(tensors: Sequence[Tensor]) -> Tensor:
            return torch.cat(list(tensors))[order]

        first = batches[0]
        return cls(
            {value: joined([batch.centre[value] for batch in batches]) for value in first.centre},
            first.growth,
            joined([padded(batch.logs) for batch in batches]),
            {value: joined([padded(batch.distances[value]) for batch in batches]) for value in first.distances},
            Correction.none(len(order)),
            {value: joined([padded(batch.tight[value]) for batch in batches]) for value in first.tight},
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

    def select(self, members: Tensor) -> EvaluatedRadii:
        centre = {value: tensor[members] for value, tensor in self.centre.items()}
        distances = {value: tensor[members] for value, tensor in self.distances.items()}
        correction = Correction(self.correction.radii[members], self.correction.amounts[members])
        tight = {value: tensor[members] for value, tensor in self.tight.items()}
        return EvaluatedRadii(centre, self.growth, self.logs[members], distances, correction, tight)

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
            evaluated, step = logs[:, None], steps[..., None].to(dtype)  # bounds widen with the radius, not too fast
            guess = torch.minimum(guess, (evaluated + (FASTEST * step).clamp(min=0)).amin(2))
            guess = torch.maximum(guess, evaluated.where(step > 0, -torch.inf).amax(2))
            below, above = guess.exp().chunk(2, 2)
            lower, upper = centre - below, centre + above
            if signs_kept and value in self.tight:
                kept = ~self.tight[value][:, -1:]
                lower = torch.where(kept & (centre > 0), lower.clamp(min=0), lower)
                upper = torch.where(kept & (centre < 0), upper.clamp(max=0), upper)
            hidden[value] = Interval(lower.flatten(0, 1), upper.flatten(0, 1))
        return hidden

    def _weights(self, steps: Tensor) -> tuple[Tensor, Tensor]:
        """Lagrange's weights at candidates, by their steps from the evaluated radii, (batch, candidates, radii), and
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


def _mirrored(distances: Tensor, tight: Tensor) -> Tensor:
    """Distances, (batch, 1, 2 * size), where only one of a neuron's bounds is tight as far as that one on either side.

    tight: Of distances below and above, (batch, 2, size).
    """
    both = distances.unflatten(2, (2, -1))[:, 0]
    mirrored = torch.where(tight.flip(1) & ~tight, torch.minimum(both, both.flip(1)), both)
    return mirrored.flatten(1)[:, None]


def _guessed(distances: Tensor, tight: Tensor, logs: Tensor, centre: Tensor, growth: float) -> Tensor:
    """Distances of neurons at radii where their bounds are not tight, as growing to or from the last tight ones.

    At such a radius the neuron is stable: zero is farther from the centre than its bound in that direction. A neuron
    that is stable at every radius is taken to stay so.

    distances: (batch, radii, 2 * size); tight: (batch, radii, size); centre: (batch, size).
    """
    both, tight = distances.unflatten(2, (2, -1)), tight[:, :, None]  # both: below and above the centre
    numbers = torch.arange(1, tight.shape[1] + 1)[:, None, None]
    last = (tight * numbers).argmax(1, keepdim=True)  # (batch, 1, 1, size)
    steps = logs[..., None, None] - logs[..., None, None].expand(-1, -1, 1, centre.shape[1]).gather(1, last)
    grown = both.take_along_dim(last, 1) + (growth * steps).to(both.dtype)
    towards_zero = torch.stack([centre > 0, centre < 0], 1)[:, None]
    nearest = torch.where(towards_zero, centre.abs().clamp(min=TINIEST).log()[:, None, None], torch.inf)
    guess = torch.minimum(grown, nearest).where(tight.any(1, keepdim=True), math.log(TINIEST))
    return torch.where(tight, both, guess).flatten(2)


def distinct_from_next_region(bounds: Bounds, sizes: Sequence[int]) -> dict[int, Tensor]:
    """Of bounds in several regions, side by side from the smallest region on, which are not those of the next larger
    region: (batch, regions * size) by value.

    sizes: By value, how many neurons it has.
    """
    distinct = {}
    for value, (lower, upper) in bounds.items():
        equal = [side[:, : -sizes[value]] == side[:, sizes[value] :] for side in (lower, upper)]
        distinct[value] = torch.nn.functional.pad(~(equal[0] & equal[1]), (0, sizes[value]), value=True)
    return distinct


def _distances_by_radius(logs: Tensor, size: int, tight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Logarithms of the distances that an evaluation in several regions gives at two radii, (batch, radii,
    2 * regions * size), and the logarithms of the shares of the radius that they are at, (radii,).

    Regions of equally spaced radii also tell what the bounds would be at a radius less by one region.

    logs: (batch, 2 * regions * size); tight: (batch, regions * size), or None where all are.
    """
    by_region = logs.unflatten(1, (2, -1, size))
    regions = by_region.shape[2]
    if tight is not None:
        by_region = _guessed_by_region(by_region, tight.unflatten(1, (-1, size)))
    numbers = torch.arange(1, regions + 1, dtype=torch.float64)[:, None]
    less = math.log((regions - 1) / regions)
    weight = (less / (numbers[:-1] / numbers[1:]).log()).to(logs.dtype)
    inner = torch.cat([by_region[:, :, :1] + less, torch.lerp(by_region[:, :, 1:], by_region[:, :, :-1], weight)], 2)
    steps = torch.tensor([less, 0], dtype=torch.float64)
    return torch.stack([inner.flatten(1), by_region.flatten(1)], 1), steps


def _guessed_by_region(logs: Tensor, tight: Tensor) -> Tensor:
    """Distances of neurons in regions where their bounds are not tight: between regions where they are, on the line;
    in smaller regions than those, as growing with the radius.

    logs: Logarithms of the distances, (batch, 2, regions, size); tight: (batch, regions, size), all True in the largest
        region.
    """
    regions = logs.shape[2]
    numbers = torch.arange(regions)[:, None]
    above = torch.where(tight, numbers, regions).flip(1).cummin(1).values.flip(1)
    below = torch.where(tight, numbers, -1).cummax(1).values
    positions = (numbers + 1).to(logs.dtype).log()
    end, start = (logs.take_along_dim(region.clamp(min=0)[:, None], 2) for region in (above, below))
    step, width = positions - positions[above, 0], positions[below.clamp(min=0), 0] - positions[above, 0]
    growth = torch.where((below >= 0) & (width < 0), 1, 0)[:, None] * (start - end - width[:, None])
    slope = 1 + growth / torch.where(width < 0, width, 1)[:, None]
    return end + slope * step[:, None]


def _repeated(centre: Tensor, width: int) -> Tensor:
    return centre.repeat(1, width // centre.shape[1])
