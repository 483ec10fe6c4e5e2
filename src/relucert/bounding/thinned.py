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


class Thinned:
    """A network as far as it is bounded, and the reference path of what is left of it.

    Attributes:
        whole: The network with all its neurons.
        network: Without neurons that are inactive in all batch members; values keep their numbers.
        bounds: Those of its pre-activations.
        kept: Of the pre-activations that lost neurons, which ones are left, (count,).
    """

    def __init__(
        self, network: Network, region: Region, relaxer: Relaxer, arithmetic: Arithmetic, *, upper: bool = False
    ) -> None:
        """upper: As for a `ReferencePath`."""
        self.network = self.whole = network
        self.region, self.relaxer, self.arithmetic = region, relaxer, arithmetic
        self.bounds: Bounds = {}
        self.kept: dict[int, Tensor] = {}
        self.upper = upper
        self.path = self._path()

    def add(self, value: int, interval: Interval, cut: bool = True) -> None:
        """Takes a value's bounds, and cuts its inactive neurons, if they are many."""
        kept = (~(interval.upper <= 0)).any(0).nonzero().flatten()
        inactive = interval.lower.shape[1] - len(kept)
        self.bounds[value] = interval
        work = inactive * sum(self.network.sizes[place] for place in (INPUT, *self.network.preactivations))
        if cut and len(kept) and work >= WORTH_A_CUT and can_be_cut(self.network, value):
            self.network = without_neurons(self.network, value, kept)
            self.bounds[value] = Interval(interval.lower[:, kept], interval.upper[:, kept])
            self.kept[value] = kept
            self.path = self._path()

    def _path(self) -> ReferencePath:
        return ReferencePath(self.network, self.region, self.bounds, self.relaxer, self.arithmetic, upper=self.upper)
