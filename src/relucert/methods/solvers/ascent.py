"""Slopes and multipliers by gradient ascent on the bound itself: for networks too wide for a solver, and for many
small questions at once.

The bound is concave in the slopes of any one layer, and at its highest it is the program's value.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, FLOAT
from relucert.bounding.adam import Adam
from relucert.bounding.backward import DualVariables, PulledBack, allowed, bound_forms
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import FAST_LIN
from relucert.common.deadline import TimeUp, check_time, until
from relucert.methods.solvers.solver import Unsolved
from relucert.network import Network

STEPS = 100
RATE = 0.5  # of Adam, at the start
COOLING = 0.01  # the last step's share of it
DECAY = (0.9, 0.99)  # of the running means of gradients and of their squares
Tensors = dict[int, Tensor]


def ascend(
    network: Network, region: Region, forms: Tensor, value: int, bounds: Bounds, slopes: Tensors, time_limit: float
) -> Tensors:
    """Better slopes than these for each form of each batch member; raises `Unsolved` if time runs out."""
    ends = time.monotonic() + time_limit * max(1, len(region.radius) * forms.shape[1])
    try:
        with until(ends):
            ascent = ProgramAscent(network, region, forms, value, bounds, DualVariables(slopes))
            ascent.run(STEPS, RATE)
    except TimeUp:
        check_time()  # whoever asked may have no time left either
        raise Unsolved("Time limit reached") from None
    return ascent.duals.slopes


@dataclass(eq=False)
class ProgramAscent:
    """The highest bounds known of forms on a value, (batch, forms), and the dual variables they are due to.

    All are in the region's precision. Multipliers are counted in units of the coefficients that they are taken off.
    """

    network: Network
    region: Region
    forms: Tensor
    value: int
    bounds: Bounds
    duals: DualVariables
    offsets: Tensor | None = None

    def __post_init__(self) -> None:
        """What comes of an inference mode can't be part of a gradient."""
        self.arithmetic = FLOAT if self.region.radius.dtype == torch.float32 else DOUBLE
        with torch.inference_mode(False):
            self.region = self.region.clone()
            self.bounds = {
                source: Interval(*(side.clone() for side in interval)) for source, interval in self.bounds.items()
            }
            self.forms = self.forms.clone()
            self.offsets = None if self.offsets is None else self.offsets.clone()
            self.duals = DualVariables(_copied(self.duals.slopes), _copied(self.duals.multipliers))
            self.path = ReferencePath(
                self.network, self.region, self.bounds, FAST_LIN, self.arithmetic, upper=bool(self.duals.slopes)
            )
            self.highest = self._bound(self.duals).lower

    def run(self, steps: int, rate: float, enough: float = torch.inf) -> None:
        """At most this many steps: none once every bound is above what is enough. Raises TimeUp once time is over."""
        with torch.inference_mode(False), torch.enable_grad():
            met = self.coefficients()
            units = {
                value: met[value].abs().mean(-1, keepdim=True).clamp(min=torch.finfo(table.dtype).tiny)
                for value, table in self.duals.multipliers.items()
            }
            slopes = {value: table.clone().requires_grad_() for value, table in self.duals.slopes.items()}
            shares = {value: (table / units[value]).requires_grad_() for value, table in self.duals.multipliers.items()}
            if not slopes:
                return
            variables = [*slopes.values(), *shares.values()]
            adam = Adam(variables, DECAY, 1e-8)
            for step in range(steps):
                if bool((self.highest > enough).all()):
                    return
                tried = DualVariables(slopes, {value: share * units[value] for value, share in shares.items()})
                bound = self._bound(tried).lower
                self._keep(bound.detach(), tried)
                gradients = torch.autograd.grad(bound.sum(), variables)
                with torch.no_grad():
                    length = rate * COOLING ** (step / steps)
                    for variable, way in zip(variables, adam.directions(gradients), strict=True):
                        variable.add_(way, alpha=length)
                    for slope in slopes.values():
                        slope.clamp_(0, 1)
                    for value, share in shares.items():
                        share.copy_(allowed(share, self.bounds[self.network.source(value)]))

    def coefficients(self) -> Tensors:
        """Of the values of ReLUs, in the forms on their way to the input: (batch, forms, size)."""
        return self._bound(self.duals).coefficients

    def _bound(self, duals: DualVariables) -> PulledBack:
        return bound_forms(self.path, self.value, self.forms, duals=duals, offsets=self.offsets)

    def _keep(self, bound: Tensor, tried: DualVariables) -> None:
        better = bound > self.highest
        self.highest = torch.where(better, bound, self.highest)

        def merged(kept: Tensors, new: Tensors) -> Tensors:
            return {value: torch.where(better[..., None], new[value].detach(), table) for value, table in kept.items()}

        self.duals = DualVariables(
            merged(self.duals.slopes, tried.slopes), merged(self.duals.multipliers, tried.multipliers)
        )


def _copied(tables: Tensors) -> Tensors:
    return {value: table.clone() for value, table in tables.items()}
