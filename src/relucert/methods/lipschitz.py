"""Methods that bound how steep the margins are: a margin at the centre, less what moving away from it can cost.

If L bounds a margin's Lipschitz constant over a region of radius r, the margin falls by at most r L in it. The finer
form splits the region into shells: on its way out a point crosses them one by one, and within the region that ends
with a shell the constant of that smaller region holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.gradient import gradient_sizes
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.nested import nested_bounds
from relucert.bounding.point import lower_margins
from relucert.common.checks import shown
from relucert.errors import InputError
from relucert.methods.method import MethodDefaults
from relucert.network import Network

SHELLS = 30  # as in the paper's published numbers
COARSE = 6  # shells that are looked at first; with fewer than twice as many, all are
PLENTY = 0.25  # a margin above this share of what was spent stays: the other shells would take less
FORM_BYTES = 2**24  # what the forms of some shells may take at once

Constant = Callable[[Network, Region, Tensor, Bounds, Arithmetic], Tensor]
"""Upper bounds (batch, forms) of the Lipschitz constants, in the region's norm and scale, of forms (batch, forms,
classes) on the output, wherever the bounds of the neurons hold."""


Kept = TypeVar("Kept")


class Memo(Generic[Kept]):
    """What a constant computes once per network: results by network, norm, scale and arithmetic, held by the constant
    and gone with either."""

    def __init__(self, compute: Callable[[Network, Region, Arithmetic], Kept]) -> None:
        self._compute = compute
        self._kept: WeakKeyDictionary[Network, dict[tuple[Norm, bytes | None, Arithmetic], Kept]] = WeakKeyDictionary()

    def __call__(self, network: Network, region: Region, arithmetic: Arithmetic) -> Kept:
        known = self._kept.setdefault(network, {})
        scale = None if region.scale is None else region.scale.numpy().tobytes()
        key = region.norm, scale, arithmetic
        if key not in known:
            known[key] = self._compute(network, region, arithmetic)
        return known[key]


def fast_lip(network: Network, region: Region, forms: Tensor, bounds: Bounds, arithmetic: Arithmetic) -> Tensor:
    """Fast-Lip: the dual norm of the largest absolute value of every component of the gradient."""
    return region.dual_norm(gradient_sizes(network, forms, bounds, arithmetic), arithmetic)


@dataclass(frozen=True)
class LipschitzMethod(MethodDefaults):
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

    def hidden(self, network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
        if not self.local:
            return {}
        return nested_bounds(network, region, self._radii(region.radius), arithmetic)

    def margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        constants = self.constants(network, region, prop.rows, hidden, arithmetic)
        return self._spend(network, region, prop, constants, arithmetic)[0]

    def least_margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> tuple[Tensor, Tensor]:
        """The margins, (batch, rows), and the constants that they come from, (batch, shells, rows), for a search.

        A row whose margin stays large with a few shells is not bounded more closely.
        """
        if _count(network, hidden) < 2 * COARSE:
            constants = self.constants(network, region, prop.rows, hidden, arithmetic)
            return self._spend(network, region, prop, constants, arithmetic)[0], constants
        every = torch.arange(self.shells)
        coarse = every.flip(0)[:: self.shells // COARSE].flip(0)
        constants = self.constants(network, region, prop.rows, hidden, arithmetic, coarse)
        constants = constants[:, torch.searchsorted(coarse, every)]
        margins, spent = self._spend(network, region, prop, constants, arithmetic)
        count = max(1, int((margins < PLENTY * spent).sum(1).max()))
        rows = (margins / spent.clamp(min=1e-30)).topk(count, largest=False).indices
        others = every[~torch.isin(every, coarse)]
        closer = self.constants(network, region, prop.narrow(rows).rows, hidden, arithmetic, others)
        constants[torch.arange(len(rows))[:, None, None], others[:, None], rows[:, None]] = closer
        constants = _nonincreasing(constants)
        return self._spend(network, region, prop, constants, arithmetic)[0], constants

    def _spend(
        self, network: Network, region: Region, prop: Property, constants: Tensor, arithmetic: Arithmetic
    ) -> tuple[Tensor, Tensor]:
        """The margins that the constants of the shells leave, and what they take: (batch, rows) each."""
        height = lower_margins(network, region.points, region.which, prop, arithmetic)
        radii = self._radii(region.radius)
        widths = arithmetic.above(radii.diff(dim=1, prepend=torch.zeros_like(radii[:, :1])), 1)
        spent = arithmetic.above((widths[..., None] * constants).sum(1), self.shells + 1)
        return arithmetic.floor(height - spent), spent

    def constants(
        self, network: Network, region: Region, rows: Tensor, hidden: Bounds, arithmetic: Arithmetic,
        shells: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Lipschitz constants in the region that each shell, or each of some, ends with: (batch, shells, rows).

        The smallest region is first; there is a single constant where neurons are bounded in one region only.
        """
        if shells is None:
            shells = torch.arange(_count(network, hidden))
        step = max(1, FORM_BYTES // (16 * max(network.sizes) * rows.shape[0] * rows.shape[1]))
        lengths_by_shell = []
        for some in shells.split(step):
            inside = {value: _shells(interval, network.sizes[value], some) for value, interval in hidden.items()}
            lengths = self.constant(network, region, rows.repeat_interleave(len(some), 0), inside, arithmetic)
            lengths_by_shell.append(lengths.unflatten(0, (len(rows), -1)))
        return _nonincreasing(torch.cat(lengths_by_shell, 1))

    def _radii(self, radius: Tensor) -> Tensor:
        """The radii of the regions, smallest first: (batch, shells); the last is the radius itself."""
        return radius[:, None] * (torch.arange(1, self.shells + 1, dtype=radius.dtype) / self.shells)


def _count(network: Network, hidden: Bounds) -> int:
    """The number of nested regions in which the neurons are bounded."""
    return max((interval.lower.shape[1] // network.sizes[value] for value, interval in hidden.items()), default=1)


def _nonincreasing(constants: Tensor) -> Tensor:
    """The constant of a region holds in every smaller one."""
    return constants.flip(1).cummin(1).values.flip(1)


def _shells(bounds: Interval, size: int, some: Tensor) -> Interval:
    """The bounds in the regions of some shells, one row each."""
    return bounds.map(lambda side: side.unflatten(1, (-1, size))[:, some].flatten(0, 1))
