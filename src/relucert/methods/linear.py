"""Methods made of a linear relaxation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from relucert.bounding.backward import backward, bound_forms
from relucert.bounding.forward import forward
from relucert.bounding.interval import Bounds
from relucert.bounding.relaxers import Relaxer
from relucert.network import Network
from relucert.query.property import Property
from relucert.region import Region
from relucert.rigor import Arithmetic


@dataclass(frozen=True)
class LinearMethod:
    """Bounds by linear relaxation: the few rows of the margins backward, hidden layers forward where the relaxer's
    lines are parallel, else backward."""

    name: str
    relaxer: Relaxer
    weaker: ClassVar[None] = None

    def remark(self, point: Tensor, rows: Tensor) -> None:
        return None

    def hidden(self, network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
        if self.relaxer.parallel:
            return forward(network, region, self.relaxer, arithmetic, network.rectified)
        last = network.rectified[-1:]
        return backward(network, region, self.relaxer, arithmetic, last, unstable_only=True) if last else {}

    def margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        return bound_forms(
            network, region, prop.rows, network.output, hidden, arithmetic, relaxer=self.relaxer, offsets=prop.offsets
        ).lower
