"""A reference point of every value, and what a coefficient costs on its way back to the input.

The relaxed network is followed forward from the region's reference: each value gets a middle, and a pull-back only has
to follow deviations from the middles. Constants vanish from it, and every cost (of a relaxation's width, of rounding)
is a map of the value's size that multiplies a form's absolute coefficients.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor
from typing_extensions import assert_never

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import TINY, Arithmetic
from relucert.bounding.interval import Bounds, select
from relucert.bounding.noise import InputSize, noise, rounds, size_within
from relucert.bounding.relaxers import Relaxation, Relaxer
from relucert.network import INPUT, Activation, Affine, Network


class ReferencePath:
    """Middles and costs of a network's values for one region and relaxer, computed when they are needed.

    Write x for a value, m for its middle: a form `a x` is pulled back as `a m + a (x - m)`, and

    - an affine operation's `a (x - m)` is `(a W) (y - m_y)` of its input y, up to `|a| cost`;
    - a ReLU's is at least that of its lines, which pass the middle of its input at known heights.

    `bounds` may grow while the path is in use, as long as what is there does not change.
    """

    def __init__(
        self, network: Network, region: Region, bounds: Bounds, relaxer: Relaxer, arithmetic: Arithmetic,
        *, upper: bool = False,
    ) -> None:  # fmt: skip
        """upper: whether the middles follow the upper lines, as they must where each form has its own lower lines."""
        self.network, self.region, self.bounds = network, region, bounds
        self.relaxer, self.arithmetic, self.upper = relaxer, arithmetic, upper
        self._lines: dict[int, Relaxation] = {}
        self._middles: dict[int, Tensor] = {}
        self._reaches: dict[int, Tensor] = {}
        self._costs: dict[int, Tensor | None] = {}
        self._underflows: dict[int, Tensor] = {}
        self._points, self._which = region.references
        self._at_points = {INPUT: self._points}
        uses = Counter(source for node in network.nodes for source in node.inputs)
        affine = {value for value, node in network.steps() if isinstance(node.operation, Affine)}
        by_sign = network.inference.rounds and not relaxer.parallel  # noise is felt: each line's slope counts
        relus = set(network.preactivations) & affine if not (upper or by_sign or relaxer.flat) else set()
        self._charged_by_relu = {value for value in relus if uses[value] == 1}

    def charged_by_relu(self, value: int) -> bool:
        """Whether the cost of this value is part of that of the only ReLU that it feeds."""
        return value in self._charged_by_relu

    def lines(self, value: int) -> Relaxation:
        """Of the activation that computes this value."""
        if value not in self._lines:
            source, activation = self.network.source(value), self.network.activations[value]
            self._lines[value] = self.relaxer(activation, self.bounds[source], self.arithmetic)
        return self._lines[value]

    def middle(self, value: int) -> Tensor:
        """(batch, size)"""
        if value not in self._middles:
            self._middles[value] = self._middle(value)
        return self._middles[value]

    def height(self, value: int) -> Tensor:
        """How far the upper line of the ReLU that computes this value is above the value's middle, at the middle of
        what feeds it: (batch, size)."""
        lines, source = self.lines(value), self.network.source(value)
        return lines.slope_above * self.middle(source) + lines.high - self.middle(value)

    def reach(self, value: int) -> Tensor:
        """How far a value may be from its middle, at most: (batch, size)."""
        if value not in self._reaches:
            self._reaches[value] = self._reach(value)
        return self._reaches[value]

    def cost(self, value: int) -> Tensor | None:
        """What a form loses per unit of each absolute coefficient when it leaves this value: (batch, size).

        Of a ReLU with parallel lines this includes half of their distance, of another what rounding loses where
        negative coefficients meet the upper lines' heights. None: nothing.
        """
        if value not in self._costs:
            node = self.network.node(value)
            if isinstance(node.operation, Affine):
                self._costs[value] = self._with_noise(value, self._affine_cost(value))
            elif isinstance(node.operation, Activation):
                self._costs[value] = self._activation_cost(value)
            else:
                assert_never(node.operation)
        return self._costs[value]

    def underflow(self, value: int) -> Tensor | float:
        """What coefficients that underflow may lose from this value to the input: (batch, 1)."""
        if not self.arithmetic.rigorous:
            return 0.0
        if value not in self._underflows:
            met = self.network.ancestors((value,), self.network.activations if self.relaxer.flat else ())
            reaches = [self.reach(source).sum(1, keepdim=True) for source in met]
            self._underflows[value] = TINY * torch.cat(reaches, 1).sum(1, keepdim=True)
        return self._underflows[value]

    def _middle(self, value: int) -> Tensor:
        if value == INPUT:
            return self.region.reference
        node = self.network.node(value)
        if isinstance(node.operation, Affine):
            if not self.network.activation_depths[value]:
                shared = self._before_relus(value)
                return shared if self._which is None else shared[self._which]
            parts = [self.middle(source).unflatten(-1, self.network.shapes[source]) for source in node.inputs]
            return node.operation.apply(*parts).flatten(1)
        lines = self.lines(value)
        if self.relaxer.flat:
            return lines.middle
        before = self.middle(node.inputs[0])
        if lines.parallel and not self.upper:
            return lines.slope_above * before + lines.middle
        if self.upper:
            return lines.slope_above * before + lines.high
        below = lines.slope_below * before
        return below if lines.low is None else below + lines.low

    def _before_relus(self, value: int) -> Tensor:
        """A value that no ReLU comes before: the same for all regions around one point, so (points, size)."""
        if value not in self._at_points:
            node = self.network.node(value)
            parts = [self._before_relus(source).unflatten(-1, self.network.shapes[source]) for source in node.inputs]
            self._at_points[value] = node.operation.apply(*parts).flatten(1)
        return self._at_points[value]

    def _reach(self, value: int) -> Tensor:
        above = self.arithmetic.above
        if value == INPUT:
            return self.region.spans(self.arithmetic).largest
        node, middle = self.network.node(value), self.middle(value)
        if value in self.bounds:
            lower, upper = self.bounds[value]
        elif isinstance(node.operation, Affine):
            parts = [self.reach(source).unflatten(-1, self.network.shapes[source]) for source in node.inputs]
            moved = above(node.operation.magnitude(*parts).flatten(1), 2 * node.operation.terms + 10)
            cost = self.cost(value)
            return moved if cost is None else above(moved + cost, 1)
        elif isinstance(node.operation, Activation):
            lower, upper = node.operation.image(*self.bounds[node.inputs[0]], self.arithmetic)
        else:
            assert_never(node.operation)
        return above(torch.maximum(upper - middle, middle - lower).clamp(min=0), 1)

    def _affine_cost(self, value: int) -> Tensor | None:
        """The middle's own rounding, and that of the product that pulls a form back, which meets the input's reach."""
        node, operation = self.network.node(value), self.network.affine(value)
        if not self.arithmetic.rigorous or (operation.constant is None and not operation.terms):
            return None
        shapes = [self.network.shapes[source] for source in node.inputs]
        gamma = self.arithmetic.gamma(operation.terms + 2)
        parts = [
            (gamma * (self.middle(source).abs() + self.reach(source))).unflatten(-1, shape)
            for source, shape in zip(node.inputs, shapes, strict=True)
        ]
        total = operation.magnitude(*parts).flatten(1)
        if operation.constant is not None:
            total = total + gamma * operation.constant.abs().expand(self.network.shapes[value]).flatten()
        total = self.arithmetic.above(total, 2 * operation.terms + 12)
        return torch.where(self.middle(value).isfinite(), total, torch.inf)  # a middle that overflowed says nothing

    def _with_noise(self, value: int, cost: Tensor | None) -> Tensor | None:
        """What an affine operation costs, with the noise of its evaluation in floating point."""
        if not rounds(self.network, value):
            return cost
        noisy = noise(self.network, value, [self._size(one) for one in self._sources(value)], self.arithmetic)
        return noisy if cost is None else self.arithmetic.above(cost + noisy, 1)

    def _size(self, value: int) -> Tensor | InputSize:
        """How large a value may be in absolute value, up to one rounding: (batch, size)."""
        if value == INPUT:
            return InputSize.within(self.region, self.arithmetic)
        size = size_within(self.network, self.bounds, value, self.arithmetic)
        return self.middle(value).abs().add_(self.reach(value)) if size is None else size

    def _sources(self, value: int) -> tuple[int, ...]:
        return self.network.node(value).inputs

    def _activation_cost(self, value: int) -> Tensor | None:
        lines, source = self.lines(value), self.network.source(value)
        if self.relaxer.flat:
            rounding = self.arithmetic.gamma(4) * (lines.high.abs() + self.middle(value).abs())
            return self.arithmetic.above(lines.half_width + rounding, 4)
        half = lines.half_width if lines.parallel and not self.upper else None
        before = self.cost(source) if self.charged_by_relu(source) else None
        if not self.arithmetic.rigorous:
            return half if before is None else lines.slope_above.abs() * before + (0 if half is None else half)
        slope = torch.maximum(lines.slope_below.abs(), lines.slope_above.abs())
        if self.upper:
            slope = slope.clamp(min=1)  # what the lower lines of a form may have
        size = 2 * slope * self.middle(source).abs() + lines.high.abs() + self.middle(value).abs()
        if lines.low is not None:
            size = size + lines.low.abs()
        cost = self.arithmetic.gamma(4) * (size + slope * self.reach(source))
        if half is not None:
            cost = cost + half
        elif not self.upper:  # what negative coefficients sum up
            cost = cost + self.arithmetic.gamma(self.network.sizes[value] + 2) * self.height(value).abs()
        if before is not None:
            # Where a coefficient times the slope underflows, `underflow` pays: no reach is far below its cost.
            cost = cost + slope * before * (1 + self.arithmetic.gamma(1))
        return self.arithmetic.above(cost, 12)


class PickedPath(ReferencePath):
    """The reference path of some batch members of another, (count,), each as often as it is picked."""

    def __init__(self, whole: ReferencePath, members: Tensor) -> None:
        region, bounds = whole.region.select(members), select(whole.bounds, members)
        super().__init__(whole.network, region, bounds, whole.relaxer, whole.arithmetic, upper=whole.upper)
        self._whole, self._members = whole, members

    def lines(self, value: int) -> Relaxation:
        if value not in self._lines:
            lines = self._whole.lines(value)
            above = lines.slope_above[self._members]
            below = above if lines.parallel else lines.slope_below[self._members]
            low = None if lines.low is None else lines.low[self._members]
            self._lines[value] = Relaxation(below, low, above, lines.high[self._members])
        return self._lines[value]

    def height(self, value: int) -> Tensor:
        return self._whole.height(value)[self._members]

    def underflow(self, value: int) -> Tensor | float:
        known = self._whole.underflow(value)
        return known if isinstance(known, float) else known[self._members]

    def _middle(self, value: int) -> Tensor:
        return self._whole.middle(value)[self._members]

    def _reach(self, value: int) -> Tensor:
        return self._whole.reach(value)[self._members]

    def _with_noise(self, value: int, cost: Tensor | None) -> Tensor | None:
        return cost

    def _affine_cost(self, value: int) -> Tensor | None:
        return self._picked_cost(value)

    def _activation_cost(self, value: int) -> Tensor | None:
        return self._picked_cost(value)

    def _picked_cost(self, value: int) -> Tensor | None:
        known = self._whole.cost(value)
        return None if known is None else known[self._members]
