"""Predictions for the radius search: hidden bounds between evaluations, and the root of a predicted margin.

Nothing here is a bound. A prediction chooses where to look next, and a wrong one costs time, not truth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.bounding.forward import Bounds
from relucert.bounding.relaxers import Interval

KNOTS = 4  # evaluations that a prediction rests on
FASTEST = 8  # the largest exponent of growth that a prediction believes
TINIEST = 1e-30


@dataclass(eq=False)
class Knots:
    """Hidden bounds at the centre (radius 0) and, newest last, at the radii evaluated last.

    Of each neuron's bounds the logarithm of their distance from the value at the centre is kept, as
    (batch, 2, size): it is close to linear in the logarithm of the radius.
    """

    centre: dict[int, Tensor]
    growth: dict[int, float]  # the exponent assumed while there is one knot alone
    rounds: int = 0
    logs: list[Tensor] = field(default_factory=list)
    distances: list[dict[int, Tensor]] = field(default_factory=list)

    def add(self, radii: Tensor, bounds: Bounds) -> None:
        found = {}
        for value, both in bounds.items():
            centre = self.centre[value]
            lower, upper = (side.to(centre.dtype) for side in both)
            found[value] = torch.stack([centre - lower, upper - centre], 1).clamp(min=TINIEST).log()
        self.rounds += 1
        self.logs = [*self.logs[1 - KNOTS :], radii.log()]
        self.distances = [*self.distances[1 - KNOTS :], found]

    def select(self, chosen: Tensor) -> Knots:
        return Knots(
            {value: tensor[chosen] for value, tensor in self.centre.items()},
            self.growth,
            self.rounds,
            [radii[chosen] for radii in self.logs],
            [{value: tensor[chosen] for value, tensor in knot.items()} for knot in self.distances],
        )

    def interpolate(self, radii: Tensor) -> Bounds:
        """Guessed hidden bounds at candidate radii (batch, candidates): flat batches, a row a candidate."""
        if not self.logs:
            count = radii.shape[1]
            return {value: Interval(*[tensor.repeat_interleave(count, 0)] * 2) for value, tensor in self.centre.items()}
        weights, alone = self._weights(radii.log())
        steps = torch.stack([radii.log() - at[:, None] for at in self.logs])[..., None]
        hidden = {}
        for value in self.distances[-1]:
            centre = self.centre[value]
            kind = centre.dtype
            logs = torch.stack([knot[value] for knot in self.distances], 1).flatten(2)
            distance = torch.bmm(weights.to(kind), logs) + (self.growth[value] * alone * steps[-1]).to(kind)
            for step, near in zip(steps.to(kind), logs.unbind(1), strict=True):  # bounds widen, and not too fast
                floor = torch.where(step > 0, near[:, None], -torch.inf)
                distance = torch.maximum(torch.minimum(distance, near[:, None] + (FASTEST * step).clamp(min=0)), floor)
            below, above = distance.exp().unflatten(2, (2, -1)).unbind(2)
            middle = centre[:, None]
            hidden[value] = Interval((middle - below).flatten(0, 1), (middle + above).flatten(0, 1))
        return hidden

    def _weights(self, logs: Tensor) -> tuple[Tensor, Tensor]:
        """Lagrange's weights at each candidate, (batch, candidates, knots), and whether one knot stands alone.

        A knot too close to a newer one counts for nothing: between them rounding would be all there is to see.
        """
        knots = torch.stack(self.logs, 1)
        apart = knots[:, :, None] - knots[:, None]
        counts = torch.ones_like(knots, dtype=torch.bool)
        for older in range(knots.shape[1] - 2, -1, -1):
            close = apart[:, older, older + 1 :].abs() < 3e-3
            counts[:, older] = ~(close & counts[:, older + 1 :]).any(1)
        factors = (logs[:, :, None] - knots[:, None])[:, :, None] / apart[:, None]
        paired = counts[:, :, None] & counts[:, None] & ~torch.eye(knots.shape[1], dtype=torch.bool)
        weights = torch.where(paired[:, None], factors, 1.0).prod(3) * counts[:, None]
        return weights, (counts.sum(1) == 1)[:, None, None]


class Curve(NamedTuple):
    """Margins at radii in order, (batch, points) each."""

    radii: Tensor
    margins: Tensor

    @property
    def crossed(self) -> Tensor:
        return ((self.margins > 0) != (self.margins[:, :1] > 0)).any(1)

    def around(self, count: int) -> Curve:
        """So many neighbouring points around the first change of sign, or the last ones where there is none."""
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
        """Of the chord where the sign changes; strictly negative, as margins are meant to be falling."""
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
