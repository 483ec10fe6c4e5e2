"""Results of evaluating a method at the radii of a search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.bounding.interval import Bounds, Interval


class Evaluation(NamedTuple):
    """Result of evaluating a method for a batch of questions at one radius each.

    Attributes:
        margins: Lower bounds of the margins, (batch, rows), in float64.
        hidden: The bounds of the hidden neurons.
        corrections: The least margin minus the surrogate's least margin, (batch,), in float64.
        constants: Where the method has shells, the Lipschitz constants in each shell's region: (batch, shells, rows).
    """

    margins: Tensor
    hidden: Bounds
    corrections: Tensor
    constants: Tensor | None = None

    @classmethod
    def join(cls, parts: Sequence[Evaluation], order: Tensor, dtype: torch.dtype) -> Evaluation:
        """Joins evaluations of several batches, reordered by `order`; the bounds of hidden neurons are in `dtype`."""

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
