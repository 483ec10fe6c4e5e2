"""Predictions for methods that split a region into shells: one evaluation tells the Lipschitz constants at many radii.

Nothing here is a bound: a prediction chooses where to look next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

HALVINGS = 24  # of the bracket around a predicted root
TREND = 0.75  # the share of the largest radius from which on the constants tell how they go on beyond it
FARTHEST = 8.0  # how many times the largest radius a prediction goes


@dataclass(frozen=True, eq=False)
class Profile:
    """The constants of every row at evaluated radii, ascending from 0: (batch, points, rows) and (batch, points).

    heights: the rows' values at the centre, (batch, rows); shells: into how many a region is split.
    """

    shells: int
    heights: Tensor
    radii: Tensor
    constants: Tensor

    @classmethod
    def start(cls, shells: int, heights: Tensor, steepness: Tensor) -> Profile:
        """steepness: how fast the rows fall at the centre, (batch, rows), none positive."""
        return cls(shells, heights, torch.zeros_like(heights[:, :1]), -steepness[:, None])

    def add(self, radii: Tensor, constants: Tensor) -> Profile:
        """Adds the constants of an evaluation, (batch, shells or 1, rows), at these radii, (batch,)."""
        ordered, order = torch.cat([self.radii, self._shells_of(radii)], 1).sort(dim=1)
        joined = torch.cat([self.constants, constants.double().expand(-1, self.shells, -1)], 1)
        return replace(self, radii=ordered, constants=joined.take_along_dim(order[..., None], 1))

    def select(self, members: Tensor) -> Profile:
        return Profile(self.shells, self.heights[members], self.radii[members], self.constants[members])

    def root(self) -> Tensor:
        """The radius at which the least margin is predicted to vanish, (batch,)."""
        low = torch.zeros_like(self.radii[:, 0])
        high = FARTHEST * self.radii[:, -1]
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            passes = (self.margins(middle) > 0).all(1)
            low, high = torch.where(passes, middle, low), torch.where(passes, high, middle)
        return high

    def margins(self, radii: Tensor) -> Tensor:
        """The margins predicted at one radius for each batch member: (batch, rows)."""
        return self.heights - radii[:, None] * self._at(self._shells_of(radii)).mean(1)

    def _shells_of(self, radii: Tensor) -> Tensor:
        return radii[:, None] * (torch.arange(1, self.shells + 1, dtype=radii.dtype) / self.shells)

    def _at(self, radii: Tensor) -> Tensor:
        """The constants at radii (batch, some), on chords between neighbours or, beyond the last, by the trend."""
        last = self.radii.shape[1] - 1
        right = torch.searchsorted(self.radii, radii.contiguous()).clamp(1, last)
        beyond = radii > self.radii[:, -1:]
        trend = torch.searchsorted(self.radii, TREND * self.radii[:, -1:]).clamp(max=last - 1)
        left = torch.where(beyond, trend, right - 1)
        low, high = (self.radii.gather(1, point)[..., None] for point in (left, right))
        start, end = (self.constants.take_along_dim(point[..., None], 1) for point in (left, right))
        share = torch.where(high > low, (radii[..., None] - low) / (high - low), 0)
        return start + share * (end - start)
