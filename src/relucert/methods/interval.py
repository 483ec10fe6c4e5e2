"""Interval bound propagation (IBP), as a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.interval import Bounds
from relucert.bounding.interval_propagation import interval_bounds, interval_margins
from relucert.methods.method import MethodDefaults
from relucert.network import Network


@dataclass(frozen=True)
class IntervalMethod(MethodDefaults):
    """Interval bound propagation (IBP): every neuron has an interval that follows from the intervals before it.

    The rows of the property are merged with the last affine operations, and bounded as a whole.
    """

    name: str
    weaker: ClassVar[None] = None

    def bounds_stable_neurons(self, network: Network) -> bool:
        return True

    def hidden(self, network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
        """Bounds of the pre-activations nearest to the output: the margins need no others."""
        return interval_bounds(network, region, arithmetic, network.nearest_preactivations(network.output))

    def margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        return interval_margins(network, region, prop, hidden, arithmetic)
