"""Warm starts: slopes that were found at one radius, for the ascent at the next radius around the same points.

They are proposals, nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.bounding.ascent import Slopes
from relucert.bounding.reference import ReducedPath

NEAR = 0.05  # relative distance of a radius whose slopes need only a few more steps
NEARLY_ALL = 0.9  # of the rows need slopes from a radius nearby, for an ascent of a few steps
MEMORY_BYTES = 2**28  # of all slopes that are kept


@dataclass(eq=False)
class _Rows:
    """The slopes of one point's rows: tables (rows, ...), and the radius at which each row's were found, NaN: none."""

    radii: Tensor
    tables: Slopes = field(default_factory=dict)


class SlopeMemory:
    """Slopes by point and by what they bound, for the points of the latest regions."""

    def __init__(self) -> None:
        self._points: dict[bytes, dict[Hashable, _Rows]] = {}

    def recall(
        self, region: Region, what: Sequence[Hashable], rows: Tensor, count: int, reduced: ReducedPath
    ) -> Recall:
        """Looks up some rows of every batch member.

        Args:
            region: Whose points the slopes belong to.
            what: What the rows of each batch member are, in a word: part of the key.
            rows: Their numbers, (few,), out of `count`.
            reduced: The network that the slopes are for.
        """
        keys = [point.float().numpy().tobytes() for point in region.points]
        self._points = {point: self._points.get(point, {}) for point in keys}
        members = keys if region.which is None else [keys[number] for number in region.which.tolist()]
        entries = [
            self._points[point].setdefault(bounded, _Rows(torch.full((count,), torch.nan, dtype=torch.float64)))
            for point, bounded in zip(members, what, strict=True)
        ]
        return Recall(entries, region.radius.double(), rows, reduced, self._room())

    def _room(self) -> int:
        """How many bytes of slopes may still be kept."""
        entries = (entry for of_point in self._points.values() for entry in of_point.values())
        tables = (table for entry in entries for table in entry.tables.values())
        return MEMORY_BYTES - sum(table.numel() * table.element_size() for table in tables)


@dataclass(frozen=True, eq=False)
class Recall:
    """Some rows of a region's batch members, as far as they are remembered."""

    entries: list[_Rows]
    radius: Tensor
    rows: Tensor
    reduced: ReducedPath
    room: int

    @property
    def near(self) -> bool:
        """Whether nearly all rows of all members have slopes from a radius nearby."""
        shares = [
            float(((entry.radii[self.rows] / radius).log().abs() < NEAR).double().mean())
            for entry, radius in zip(self.entries, self.radius.tolist(), strict=True)
            if radius > 0
        ]
        return bool(shares) and min(shares) >= NEARLY_ALL

    def slopes(self, otherwise: Slopes) -> Slopes | None:
        """The slopes remembered, and others where there are none; None if there are none at all."""
        if not any(bool(entry.radii[self.rows].isfinite().any()) for entry in self.entries):
            return None
        tables = {value: table.clone() for value, table in otherwise.items()}
        for member, entry in enumerate(self.entries):
            recorded = entry.radii[self.rows].isfinite()
            for value, table in tables.items():
                if value in entry.tables:
                    slopes, kept = entry.tables[value][self.rows[recorded]], self.reduced.kept_of(value)
                    table[member, recorded] = (slopes if kept is None else slopes[:, kept]).to(table.dtype)
        return tables

    def put(self, slopes: Slopes) -> None:
        """Remembers slopes of all rows and members, if there is room."""
        count = len(self.entries[0].radii)
        sizes = [self.reduced.widen(value, table[0, :1]).numel() for value, table in slopes.items()]
        if 4 * count * sum(sizes) * len(self.entries) > max(self.room, 0) and not self.entries[0].tables:
            return
        for member, entry in enumerate(self.entries):
            for value, table in slopes.items():
                full = self.reduced.widen(value, table[member]).float()
                if value not in entry.tables:
                    entry.tables[value] = full.new_zeros(count, *full.shape[1:])
                entry.tables[value][self.rows] = full
            entry.radii[self.rows] = float(self.radius[member]) if self.radius[member] > 0 else math.nan
