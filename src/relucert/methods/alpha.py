"""Alpha-CROWN: the lower slopes of every neuron's bound and of every margin's are optimised."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.interval import Bounds
from relucert.bounding.memory import SlopeMemory
from relucert.bounding.optimised import optimised_bounds, optimised_margins
from relucert.bounding.record import Recorder, recording
from relucert.common.progress import Report, silent
from relucert.methods.method import Method, MethodDefaults
from relucert.network import Network


@dataclass(frozen=True, eq=False)
class AlphaMethod(MethodDefaults):
    """Bounds with optimised slopes (alpha-CROWN), each at least as good as those of Fast-Lin and CROWN.

    ends: by the monotonic clock, when the ascent stops; the bounds are then those found so far.
    recorder: keeps what is proven in recorded arithmetic.
    report: called with the layer and the step of the ascent.
    """

    name: str
    weaker: Method
    ends: float = math.inf
    memory: SlopeMemory = field(default_factory=SlopeMemory)
    recorder: Recorder | None = None
    report: Report = silent

    def hidden(self, network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
        return optimised_bounds(
            network,
            region,
            arithmetic,
            memory=self.memory,
            ends=self.ends,
            recorder=recording(self.recorder, arithmetic),
            report=self.report,
        )

    def margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        return optimised_margins(
            network, region, prop.rows, prop.offsets, hidden, arithmetic,
            memory=self.memory, ends=self.ends, recorder=recording(self.recorder, arithmetic), report=self.report,
        )  # fmt: skip
