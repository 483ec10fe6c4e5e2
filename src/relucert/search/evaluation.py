"""Questions of a radius search, and results of evaluating a method for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.bounding.interval import Bounds, Interval


@dataclass(frozen=True, eq=False)
class Questions:
    """A batch of searches: in every dtype needed, regions whose radii are sought, and the properties to prove there."""

    regions: dict[torch.dtype, Region]
    properties: dict[torch.dtype, Property]

    @classmethod
    def of(cls, region: Region, prop: Property, dtypes: Iterable[torch.dtype]) -> Questions:
        needed = {torch.float64, *dtypes}
        return cls({dtype: region.cast(dtype) for dtype in needed}, {dtype: prop.cast(dtype) for dtype in needed})

    def __len__(self) -> int:
        return len(next(iter(self.properties.values())))

    def select(self, chosen: Tensor) -> Questions:
        return Questions(
            {dtype: region.select(chosen) for dtype, region in self.regions.items()},
            {dtype: prop.select(chosen) for dtype, prop in self.properties.items()},
        )

    def narrow(self, rows: Tensor) -> Questions:
        """The questions with some rows of each property, (batch, fewer rows)."""
        return replace(self, properties={dtype: prop.narrow(rows) for dtype, prop in self.properties.items()})

    def without_box(self) -> Questions:
        return replace(self, regions={dtype: replace(region, box=None) for dtype, region in self.regions.items()})

    def region(self, radii: Tensor, dtype: torch.dtype) -> Region:
        return self.regions[dtype].resized(radii.to(dtype))


class Evaluation(NamedTuple):
    """Result of evaluating a method for a batch of questions, one radius for each.

    margins: lower bounds of the margins, (batch, rows), in float64.
    corrections: the least margin less that of the surrogate, (batch,), in float64.
    hidden: the bounds of the hidden neurons.
    constants: where the method has shells, the Lipschitz constants in each shell's region: (batch, shells, rows).
    """

    margins: Tensor
    hidden: Bounds
    corrections: Tensor
    constants: Tensor | None = None

    @classmethod
    def join(cls, parts: Sequence[Evaluation], order: Tensor, dtype: torch.dtype) -> Evaluation:
        """Joins evaluations of parts of the questions and puts them into the given order; bounds are in this dtype."""

        def joined(tensors: Iterable[Tensor]) -> Tensor:
            return torch.cat(list(tensors))[order]

        def sides(value: int, side: int) -> Tensor:
            return joined(part.hidden[value][side].to(dtype) for part in parts)

        constants = [part.constants for part in parts if part.constants is not None]
        return cls(
            joined(part.margins for part in parts),
            {value: Interval(sides(value, 0), sides(value, 1)) for value in parts[0].hidden},
            joined(part.corrections for part in parts),
            joined(constants) if constants else None,
        )
