"""Methods that bound how steep the margins are: a margin at the centre, less what moving away from it can cost.

If L bounds a margin's Lipschitz constant over a ball of radius r, the margin falls by at most r L in it. The finer
form splits the ball into shells: on its way out a point crosses them one by one, and within the ball that ends
with a shell the constant of that smaller ball holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from relucert.batching import COSY, coefficient_bytes
from relucert.bounding.forward import Bounds, forward
from relucert.bounding.gradient import gradient_sizes
from relucert.bounding.point import lower_margins
from relucert.bounding.relaxers import Interval, parallel
from relucert.errors import InputError
from relucert.network import Network
from relucert.norm import Norm
from relucert.query.property import Property
from relucert.region import Ball
from relucert.rigor import Arithmetic

SHELLS = 30  # the paper's published numbers use so many
FORM_BYTES = 2**24  # what the forms of some shells may take at once

Constant = Callable[[Network, Norm, Tensor, Bounds, Arithmetic], Tensor]
"""Upper bounds (batch, forms) of the Lipschitz constants of forms (batch, forms, classes) on the output, wherever the
bounds of the neurons hold."""


def fast_lip(network: Network, norm: Norm, forms: Tensor, bounds: Bounds, arithmetic: Arithmetic) -> Tensor:
    """Fast-Lip: the dual norm of the largest absolute value of every component of the gradient."""
    return norm.dual_bound(gradient_sizes(network, forms, bounds, arithmetic), -1, arithmetic)


@dataclass(frozen=True)
class LipschitzMethod:
    """Margins from local Lipschitz constants in balls of 1/shells, 2/shells ... of the radius.

    Fast-Lin bounds the neurons in each of them; `hidden` puts them side by side, from the smallest ball to the whole.
    """

    name: str
    constant: Constant
    shells: int = SHELLS
    local: bool = True  # whether the constant depends on the neurons' bounds; a global one needs none, and no shells
    weaker: ClassVar[None] = None

    def __post_init__(self) -> None:
        if type(self.shells) is not int or self.shells < 1:
            raise InputError(f"a ball is split into a whole number of shells >= 1, not {self.shells!r}")

    def remark(self, point: Tensor) -> None:
        return None

    def hidden(self, network: Network, ball: Ball, arithmetic: Arithmetic) -> Bounds:
        if not self.local:
            return {}
        step = max(1, COSY // max(1, len(ball.radius) * coefficient_bytes(network)))
        shares = self._radii(ball.radius).split(step, 1)
        parts = [_in_shells(network, ball, radii, arithmetic) for radii in shares]
        return {
            value: Interval(*(torch.cat([part[value][side] for part in parts], 1) for side in (0, 1)))
            for value in parts[0]
        }

    def margins(self, network: Network, ball: Ball, prop: Property, hidden: Bounds, arithmetic: Arithmetic) -> Tensor:
        rows = prop.rows(network.classes, arithmetic.dtype)
        height = lower_margins(network, ball.points, ball.which, rows, arithmetic)
        radii = self._radii(ball.radius)
        widths = arithmetic.above(radii.diff(dim=1, prepend=torch.zeros_like(radii[:, :1])), 1)
        spent = (widths[..., None] * self.constants(network, ball.norm, rows, hidden, arithmetic)).sum(1)
        return arithmetic.floor(height - arithmetic.above(spent, self.shells + 1))

    def constants(self, network: Network, norm: Norm, rows: Tensor, hidden: Bounds, arithmetic: Arithmetic) -> Tensor:
        """Of every ball within the ball, smallest first: (batch, shells, rows); one for all where neurons have one."""
        count = max((hidden[value].lower.shape[1] // network.sizes[value] for value in hidden), default=1)
        step = max(1, FORM_BYTES // (16 * max(network.sizes) * rows.shape[0] * rows.shape[1]))
        found = []
        for first in range(0, count, step):
            some = slice(first, min(first + step, count))
            inside = {value: _shells(own, network.sizes[value], some) for value, own in hidden.items()}
            repeated = rows.repeat_interleave(some.stop - some.start, 0)
            lengths = self.constant(network, norm, repeated, inside, arithmetic)
            found.append(lengths.unflatten(0, (len(rows), -1)))
        # The constant of a ball holds in every smaller one.
        return torch.cat(found, 1).flip(1).cummin(1).values.flip(1)

    def _radii(self, radius: Tensor) -> Tensor:
        """Of the balls, smallest first: (batch, shells); the last is the radius itself."""
        return radius[:, None] * (torch.arange(1, self.shells + 1, dtype=radius.dtype) / self.shells)


def _in_shells(network: Network, ball: Ball, radii: Tensor, arithmetic: Arithmetic) -> Bounds:
    """Bounds of the neurons in balls of several radii (batch, balls): (batch, balls * size)."""
    count, balls = radii.shape
    which = torch.arange(count) if ball.which is None else ball.which
    nested = replace(ball, radius=radii.flatten(), which=which.repeat_interleave(balls))
    found = forward(network, nested, parallel, arithmetic, network.rectified)
    return {value: Interval(*(side.reshape(count, -1) for side in own)) for value, own in found.items()}


def _shells(bounds: Interval, size: int, some: slice) -> Interval:
    """Those of some balls, as rows of their own."""
    return Interval(*(side.unflatten(1, (-1, size))[:, some].flatten(0, 1) for side in bounds))
