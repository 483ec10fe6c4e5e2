"""How far values may deviate from a reference, below and above it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Deviation(NamedTuple):
    """How far values may lie below and above their reference, none negative; one tensor for both where they agree."""

    below: Tensor
    above: Tensor

    @classmethod
    def join(cls, deviations: Sequence[Deviation], dim: int) -> Deviation:
        """Concatenates deviations, (batch, size) each, along a dimension."""
        below = torch.cat([deviation.below for deviation in deviations], dim)
        symmetric = all(deviation.symmetric for deviation in deviations)
        return cls(below, below if symmetric else torch.cat([deviation.above for deviation in deviations], dim))

    @property
    def symmetric(self) -> bool:
        return self.below is self.above

    @property
    def largest(self) -> Tensor:
        return self.below if self.symmetric else torch.maximum(self.below, self.above)

    @property
    def absolute(self) -> Tensor:
        """How much the absolute values of a form's terms may add up to.

        A region contains, with a point, the one with some coordinates set back to the reference. So the negative terms
        add up to at most `below`, the positive ones to at most `above`.
        """
        return self.below if self.symmetric else self.below + self.above

    def map(self, function: Callable[[Tensor], Tensor]) -> Deviation:
        """The deviation whose ends are a function of these, evaluated once where they agree."""
        below = function(self.below)
        return Deviation(below, below if self.symmetric else function(self.above))

    def plus(self, addend: Deviation) -> Deviation:
        """The deviation of a sum of two values."""
        below = self.below + addend.below
        return Deviation(below, below if self.symmetric and addend.symmetric else self.above + addend.above)
