"""How far values may deviate from a reference, below and above it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Deviation(NamedTuple):
    """How far values may lie below and above their reference, none negative; one tensor for both where they agree."""

    below: Tensor
    above: Tensor

    @property
    def symmetric(self) -> bool:
        return self.below is self.above

    @property
    def largest(self) -> Tensor:
        return self.below if self.symmetric else torch.maximum(self.below, self.above)

    @property
    def absolute(self) -> Tensor:
        """How much the absolute values of the terms may add up to.

        A region contains, with a point, the one whose coordinates are partly set back to the reference. So the terms
        that are negative together, and those that are positive, are within each side.
        """
        return self.below if self.symmetric else self.below + self.above

    def map(self, function: Callable[[Tensor], Tensor]) -> Deviation:
        """The function of both sides, evaluated once where they agree."""
        below = function(self.below)
        return Deviation(below, below if self.symmetric else function(self.above))

    def plus(self, other: Deviation) -> Deviation:
        below = self.below + other.below
        return Deviation(below, below if self.symmetric and other.symmetric else self.above + other.above)
