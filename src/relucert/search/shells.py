"""Predictions for methods that split a region into shells: one evaluation tells the bounds in many smaller regions.

Bounds hardly bend from the region of one shell to that of the next. Between them, as at every radius below the
evaluated one, they are predicted nearly exactly: which neurons are stable there, and so where margins jump.

Nothing here is a bound. A prediction chooses where to look next, and a wrong one costs time, not truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relucert.bounding.interval import Bounds, Interval
from relucert.search.prediction import PerQuestion, RelativeWidths

HALVINGS = 24  # of the bracket around a roughly predicted root
TREND = 0.75  # the share of the evaluated radius from which on bounds tell how they go on beyond it
NEARBY = 0.01  # relative distance of a root to which bounds tell how they go on
FARTHEST = 8.0  # how many times that radius a prediction goes


@dataclass(frozen=True, eq=False)
class ShellBounds(PerQuestion):
    """Hidden bounds and Lipschitz constants in the regions that the shells within one radius of each question end with.

    Attributes:
        radii: The radii, (batch,).
        heights: The rows' values at the centre, (batch, rows).
        constants: Of every row, at the centre and then in region after region: (batch, 1 + shells, rows).
        hidden: By value, lower and upper bounds likewise: (batch, 1 + shells, 2, size).
        measured: Whether they come of an evaluation of the same questions.
    """

    radii: Tensor
    heights: Tensor
    constants: Tensor
    hidden: dict[int, Tensor]
    measured: bool = False

    @classmethod
    def start(
        cls, shells: int, radii: Tensor, heights: Tensor, steepness: Tensor, centre: Mapping[int, Tensor]
    ) -> ShellBounds:
        """Bounds at the centre, said of all regions.

        Args:
            steepness: How fast the rows fall at the centre, (batch, rows), none positive.
            centre: By value, the pre-activations there, (batch, size).
        """
        constants = -steepness[:, None].expand(-1, 1 + shells, -1)
        hidden = {
            value: numbers[:, None, None].expand(-1, 1 + shells, 2, -1).contiguous()
            for value, numbers in centre.items()
        }
        return cls(radii, heights, constants, hidden)

    @property
    def shells(self) -> int:
        return self.constants.shape[1] - 1

    @property
    def logs(self) -> Tensor:
        return self.radii.log()

    def evaluated(self, radii: Tensor, better: Tensor, hidden: Bounds, constants: Tensor) -> ShellBounds:
        """The bounds of an evaluation where they are better, (batch,), and else those before.

        Args:
            radii: Of the evaluation, (batch,).
            hidden: Its bounds, from the smallest region on side by side: (batch, shells * size).
            constants: (batch, shells, rows), or (batch, 1, rows) where they are the same in all regions.
        """
        tables = {
            value: torch.stack([bound.unflatten(1, (self.shells, -1)) for bound in interval], 2)
            for value, interval in hidden.items()
        }

        def joined(before: Tensor, regions: Tensor) -> Tensor:
            table = torch.cat([before[:, :1], regions.to(before.dtype)], 1)
            return torch.where(better.view(-1, *[1] * (table.ndim - 1)), table, before)

        return replace(
            self,
            radii=torch.where(better, radii, self.radii),
            constants=joined(self.constants, constants.expand(-1, self.shells, -1)),
            hidden={value: joined(self.hidden[value], table) for value, table in tables.items()},
            measured=True,
        )

    def of_rows(self, heights: Tensor, steepness: Tensor, constants: Tensor) -> ShellBounds:
        """The bounds in the same regions for other rows, whose constants are (batch, shells, rows)."""
        return replace(
            self, heights=heights, constants=torch.cat([-steepness[:, None], constants.expand(-1, self.shells, -1)], 1)
        )

    def bounds(self, radii: Tensor) -> Bounds:
        """The hidden bounds in the regions within candidate radii, (batch, candidates), one row per question and
        candidate: side by side, (batch * candidates, shells * size)."""
        count = radii.numel()
        hidden = {value: self._at(table, radii) for value, table in self.hidden.items()}
        return {
            value: Interval(*(bound.reshape(count, -1) for bound in table.unbind(2))) for value, table in hidden.items()
        }

    def rough_roots(self) -> Tensor:
        """The radius at which each margin is predicted to vanish by the constants alone, (batch, rows)."""
        batch, rows = self.heights.shape
        constants = self.constants.mT.reshape(batch * rows, -1, 1)
        alone = ShellBounds(self.radii.repeat_interleave(rows), self.heights.view(-1, 1), constants, {})
        low = torch.zeros_like(alone.radii)
        high = FARTHEST * alone.radii
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            spent = middle * alone._at(alone.constants, middle[:, None]).mean(1).squeeze(1)
            passes = alone.heights.squeeze(1) > spent
            low, high = torch.where(passes, middle, low), torch.where(passes, high, middle)
        return high.view(batch, rows)

    def _at(self, table: Tensor, radii: Tensor) -> Tensor:
        """Entries in the regions within candidate radii, (batch, candidates * shells, ...): on chords between
        neighbours, or beyond the evaluated radius by the trend."""
        shells = self.shells
        positions = (radii / self.radii[:, None])[..., None] * torch.arange(1, shells + 1, dtype=radii.dtype)
        positions = positions.flatten(1)
        right = positions.ceil().long().clamp(1, shells)
        left = torch.where(positions > shells, int(TREND * shells), right - 1)
        share = ((positions - left) / (right - left)).to(table.dtype).view(*positions.shape, *[1] * (table.ndim - 2))
        batch = torch.arange(len(table))[:, None]
        return torch.lerp(table[batch, left], table[batch, right], share)


PredictionModel = RelativeWidths | ShellBounds
"""What evaluations tell of the hidden bounds at other radii."""
