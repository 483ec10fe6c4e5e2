"""Methods made of a linear relaxation: Fast-Lin (DeepZ) and CROWN (DeepPoly)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.backward import bound_forms
from relucert.bounding.hidden import hidden_bounds, reference_path
from relucert.bounding.interval import Bounds
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import Relaxer
from relucert.methods.method import Method, MethodDefaults
from relucert.network import Network

ROW_BYTES = 2**28  # of the rows of a property that are pulled back at once, in the widest layer


@dataclass(frozen=True)
class LinearMethod(MethodDefaults):
    """Bounds by linear relaxation: margins by back-substitution, hidden layers by whichever driver is cheaper."""

    name: str
    relaxer: Relaxer
    weaker: Method | None = None

    def bounds_stable_neurons(self, network: Network) -> bool:
        return self.relaxer.parallel and network.suits_forward

    def hidden(self, network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
        return hidden_bounds(network, region, self.relaxer, arithmetic)

    def margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        return self.margins_on(reference_path(network, region, hidden, self.relaxer, arithmetic), prop)

    def margins_on(self, path: ReferencePath, prop: Property) -> Tensor:
        """The margins by the lines of a path, which has bounds of every pre-activation: (batch, rows)."""
        network = path.network
        step = max(1, ROW_BYTES // (prop.rows.element_size() * max(network.sizes) * len(path.region.radius)))
        chunks = zip(prop.rows.split(step, 1), prop.offsets.split(step, 1), strict=True)
        return torch.cat(
            [bound_forms(path, network.output, rows, offsets=offsets).lower for rows, offsets in chunks], 1
        )
