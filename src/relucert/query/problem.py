"""The question that searches and provers answer: do the outputs of a network keep a property in a region?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE
from relucert.network import Network
from relucert.network.squared_products import balanced

POINTS = 16  # of a region, at which the spreads of the factors of products are compared


@dataclass(frozen=True, eq=False)
class Problem:
    """A batch of questions: whether every row of a property stays positive in a region.

    Attributes:
        network: The network whose outputs the property is about, in the precision that it is stored in.
        region: One region per question, in float64. A search for radii ignores those that the regions have.
        prop: One batch member per question, in float64.
    """

    network: Network
    region: Region
    prop: Property

    def __len__(self) -> int:
        return len(self.prop)

    @cached_property
    def exact(self) -> Network:
        """The network in float64."""
        return self.network.cast(torch.float64)

    @property
    def centre(self) -> Tensor:
        """The centre of the first region, (size,)."""
        return self.region.centre[0]

    def balanced(self) -> Problem:
        """The same questions about the same function, whose products of two values are written so that both squares are
        tight in the first region."""
        if not self.network.products:
            return self
        generator = torch.Generator().manual_seed(0)
        spans = self.region.spans(DOUBLE).largest[0]
        moves = 2 * torch.rand(POINTS, len(spans), generator=generator, dtype=spans.dtype) - 1
        with torch.no_grad():
            network = balanced(self.network, self.region.reference[0] + moves * spans)
        return replace(self, network=network)

    def at(self, radius: float | Tensor) -> Problem:
        """The questions about regions of another radius: a number, or one radius per question, (batch,)."""
        radii = torch.as_tensor(radius, dtype=self.region.points.dtype).expand(len(self))
        return replace(self, region=self.region.resized(radii))

    def select(self, questions: Tensor) -> Problem:
        """The problem of the questions with these indices, (count,)."""
        return replace(self, region=self.region.select(questions), prop=self.prop.select(questions))

    def narrow(self, rows: Tensor) -> Problem:
        """The problem with these rows of each property alone, (batch, fewer rows) indices."""
        return replace(self, prop=self.prop.narrow(rows))
