"""A network that loses, layer after layer, the neurons that are inactive in all of a region: matrices get smaller."""

from __future__ import annotations

from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import Relaxer
from relucert.network import INPUT, Network
from relucert.network.cut import can_be_cut, without_neurons

WORTH_A_CUT = 2**15  # multiplications saved for each form that is pulled back


class ReducedPath:
    """The reference path of a network that has lost the inactive neurons of the layers that are bounded already.

    Attributes:
        whole: The network with all its neurons.
        path: The path without neurons that are inactive in all batch members; values keep their numbers.
        kept: Of the pre-activations that lost neurons, which ones are left, (count,).
        all_bounds: By value so far, the bounds of all its neurons.
    """

    def __init__(
        self, network: Network, region: Region, relaxer: Relaxer, arithmetic: Arithmetic, *, upper: bool = False
    ) -> None:
        """upper: As for a `ReferencePath`."""
        self.whole, self.kept, self.all_bounds = network, dict[int, Tensor](), Bounds()
        self.path = ReferencePath(network, region, {}, relaxer, arithmetic, upper=upper)

    def add(self, value: int, interval: Interval, cut: bool = True) -> None:
        """Takes a value's bounds, and cuts its inactive neurons, if they are many."""
        path, network, bounds = self.path, self.path.network, self.path.bounds
        kept = (~(interval.upper <= 0)).any(0).nonzero().flatten()
        inactive = interval.lower.shape[1] - len(kept)
        bounds[value] = self.all_bounds[value] = interval
        work = inactive * sum(network.sizes[layer] for layer in (INPUT, *network.preactivations))
        if cut and len(kept) and work >= WORTH_A_CUT and can_be_cut(network, value):
            network = without_neurons(network, value, kept)
            bounds[value] = Interval(interval.lower[:, kept], interval.upper[:, kept])
            self.kept[value] = kept
            self.path = ReferencePath(network, path.region, bounds, path.relaxer, path.arithmetic, upper=path.upper)
