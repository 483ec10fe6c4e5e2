"""Methods that bound how steep the margins are: a margin at the centre, less what moving away from it can cost.

If L bounds a margin's Lipschitz constant over a region of radius r, the margin falls by at most r L in it. The finer
form splits the region into shells: on its way out a point crosses them one by one, and within the region that ends
with a shell the constant of that smaller region holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from relucert.batching import COSY, coefficient_bytes
from relucert.bounding.forward import forward
from relucert.bounding.gradient import gradient_sizes
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.point import lower_margins
from relucert.bounding.relaxers import FAST_LIN
from relucert.checks import shown
from relucert.errors import InputError
from relucert.network import Network
from relucert.query.property import Property
from relucert.region import Region
from relucert.rigor import Arithmetic

SHELLS = 30  # the paper's published numbers use so many
FORM_BYTES = 2**24  # what the forms of some shells may take at once

Constant = Callable[[Network, Region, Tensor, Bounds, Arithmetic], Tensor]
"""Upper bounds (batch, forms) of the Lipschitz constants, in the region's norm and scale, of forms (batch, forms,
classes) on the output, wherever the bounds of the neurons hold."""


def fast_lip(network: Network, region: Region, forms: Tensor, bounds: Bounds, arithmetic: Arithmetic) -> Tensor:
    """Fast-Lip: the dual norm of the largest absolute value of every component of the gradient."""
    return region.dual_norm(gradient_sizes(network, forms, bounds, arithmetic), arithmetic)


@dataclass(frozen=True)
class LipschitzMethod:
    """Margins from local Lipschitz constants in regions of 1/shells, 2/shells ... of the radius.

    Fast-Lin bounds the neurons in each of them; `hidden` puts them side by side, from the smallest region to the whole.
    """

    name: str
    constant: Constant
    shells: int = SHELLS
    local: bool = True  # whether the constant depends on the neurons' bounds; a global one needs none, and no shells
    weaker: ClassVar[None] = None
    takes_inference: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if type(self.shells) is not int or self.shells < 1:
            raise InputError(f"a ball is split into a whole number of shells >= 1, not {shown(self.shells)}")

    def remark(self, point: Tensor, rows: Tensor) -> None:
        return None

    def bounds_stable_neurons(self, network: Network) -> bool:
        return True

    def hidden(self, network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
        if not self.local:
            return {}
        step = max(1, COSY // max(1, len(region.radius) * coefficient_bytes(network)))
        shares = self._radii(region.radius).split(step, 1)
        parts = [_in_shells(network, region, radii, arithmetic) for radii in shares]
        return {
            value: Interval(*(torch.cat([part[value][side] for part in parts], 1) for side in (0, 1)))
            for value in parts[0]
        }

    def margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        height = lower_margins(network, region.points, region.which, prop, arithmetic)
        radii = self._radii(region.radius)
        widths = arithmetic.above(radii.diff(dim=1, prepend=torch.zeros_like(radii[:, :1])), 1)
        spent = (widths[..., None] * self.constants(network, region, prop.rows, hidden, arithmetic)).sum(1)
        return arithmetic.floor(height - arithmetic.above(spent, self.shells + 1))

    def constants(
        self, network: Network, region: Region, rows: Tensor, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        """Of every shell's region, smallest first: (batch, shells, rows); one for all where neurons have one."""
        count = max((hidden[value].lower.shape[1] // network.sizes[value] for value in hidden), default=1)
        step = max(1, FORM_BYTES // (16 * max(network.sizes) * rows.shape[0] * rows.shape[1]))
        parts = []
        for first in range(0, count, step):
            some = slice(first, min(first + step, count))
            inside = {value: _shells(interval, network.sizes[value], some) for value, interval in hidden.items()}
            repeated = rows.repeat_interleave(some.stop - some.start, 0)
            lengths = self.constant(network, region, repeated, inside, arithmetic)
            parts.append(lengths.unflatten(0, (len(rows), -1)))
        # The constant of a region holds in every smaller one.
        return torch.cat(parts, 1).flip(1).cummin(1).values.flip(1)

    def _radii(self, radius: Tensor) -> Tensor:
        """Of the regions, smallest first: (batch, shells); the last is the radius itself."""
        return radius[:, None] * (torch.arange(1, self.shells + 1, dtype=radius.dtype) / self.shells)


def _in_shells(network: Network, region: Region, radii: Tensor, arithmetic: Arithmetic) -> Bounds:
    """Bounds of the neurons in regions of several radii (batch, shells): (batch, shells * size)."""
    count, shells = radii.shape
    which = torch.arange(count) if region.which is None else region.which
    nested = replace(region, radius=radii.flatten(), which=which.repeat_interleave(shells))
    bounds = forward(network, nested, FAST_LIN, arithmetic, network.rectified)
    return {value: Interval(*(side.reshape(count, -1) for side in interval)) for value, interval in bounds.items()}


def _shells(bounds: Interval, size: int, some: slice) -> Interval:
    """Those of some shells, one row each."""
    return Interval(*(side.unflatten(1, (-1, size))[:, some].flatten(0, 1) for side in bounds))
