"""The claim that branch and bound is to prove."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region, RegionShape
from relucert.network import Network


@dataclass(frozen=True, eq=False)
class Obligation:
    """The claim that the rows of a property stay positive in regions of one shape around a point.

    centre: the point, (size,); prop: a batch of one, in float64.
    """

    network: Network
    centre: Tensor
    shape: RegionShape
    prop: Property

    @classmethod
    def of(cls, network: Network, centre: Tensor, shape: RegionShape, prop: Property) -> Obligation:
        return cls(network, centre, shape, prop.cast(torch.float64))

    @cached_property
    def exact(self) -> Network:
        """The network in float64."""
        return self.network.cast(torch.float64)

    def region(self, radius: float) -> Region:
        """The region of this radius, as a batch of one."""
        return self.shape.around(self.centre[None], radius)
