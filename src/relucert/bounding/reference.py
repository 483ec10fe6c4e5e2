"""A reference point of every value, and what a coefficient costs during back-substitution.

The relaxed network is evaluated at the region's reference point: each value gets a reference of its own, and
back-substitution only has to follow deviations from the references. Constants vanish from it, and every cost (of
a relaxation's width, of rounding) is a map of the value's size that multiplies a form's absolute coefficients.
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
from relucert.common.deadline import check_time
from relucert.network import INPUT, Activation, Add, Affine, Network


class ReferencePath:
    """References and costs of a network's values for one region and relaxer, computed when they are needed.

    Write x for a value, m for its reference: a form `a x` is pulled back as `a m + a (x - m)`, and

    - an affine operation's `a (x - m)` is `(a W) (y - m_y)` of its input y, up to `|a| cost`;
    - an activation's is at least that of its lines, which have known heights at the reference of its input.

    `bounds` may grow while the path is in use, as long as what is there does not change.
    """

    def __init__(
        self, network: Network, region: Region, bounds: Bounds, relaxer: Relaxer, arithmetic: Arithmetic,
        *, upper: bool = False,
    ) -> None:  # fmt: skip
        """upper: whether references lie on the upper lines, as they must where each form has its own lower lines."""
        self.network, self.region, self.bounds = network, region, bounds
        self.relaxer, self.arithmetic, self.upper = relaxer, arithmetic, upper
        self._lines: dict[int, Relaxation] = {}
        self._references: dict[int, Tensor] = {}
        self._max_deviations: dict[int, Tensor] = {}
        self._costs: dict[int, Tensor | None] = {}
        self._costs_by_sign: dict[int, tuple[Tensor, Tensor]] = {}
        self._intervals: dict[int, tuple[Tensor, Tensor]] = {}
        self._underflows: dict[int, Tensor] = {}
        self._points, self._which = region.references
        self._at_points = {INPUT: self._points}
        uses = Counter(source for node in network.nodes for source in node.inputs)
        affine = {value for value, node in network.steps() if isinstance(node.operation, Affine)}
        by_sign = network.inference.rounds and not relaxer.parallel  # noise is felt: each line's slope counts
        relus = set(network.preactivations) & affine if not (upper or by_sign or relaxer.flat) else set()
        self._charged_at_activation = {value for value in relus if uses[value] == 1}
        sums = [node.inputs for node in network.nodes if isinstance(node.operation, Add)]
        self._charged_at_sum = {value for inputs in sums for value in inputs if value in affine and uses[value] == 1}
        self._joined = {value for value in network.activations if uses[value] == 2}

    def charged_later(self, value: int) -> bool:
        """Whether the cost of this value is part of the cost of the only activation or sum that it feeds."""
        return value in self._charged_at_activation or value in self._charged_at_sum

    def charges_join(self, value: int) -> bool:
        """Whether the cost of this value includes what rounds where forms of two branches are added."""
        return value in self._joined

    def lines(self, value: int) -> Relaxation:
        """The linear relaxation of the activation that computes this value."""
        if value not in self._lines:
            source, activation = self.network.source(value), self.network.activations[value]
            self._lines[value] = self.relaxer(activation, self.bounds[source], self.arithmetic)
        return self._lines[value]

    def reference(self, value: int) -> Tensor:
        """The reference of a value: (batch, size)."""
        if value not in self._references:
            check_time()
            self._references[value] = self._reference(value)
        return self._references[value]

    def height(self, value: int) -> Tensor:
        """How far the upper line of the activation that computes this value lies above the value's reference, at the
        reference of the pre-activation: (batch, size)."""
        lines, source = self.lines(value), self.network.source(value)
        return lines.slope_above * self.reference(source) + lines.high - self.reference(value)

    def max_deviation(self, value: int) -> Tensor:
        """How far a value may lie from its reference, at most: (batch, size)."""
        if value not in self._max_deviations:
            check_time()
            self._max_deviations[value] = self._max_deviation(value)
        return self._max_deviations[value]

    def cost(self, value: int) -> Tensor | None:
        """The cost per unit of each absolute coefficient of a form that leaves this value: (batch, size).

        Of a ReLU with parallel lines this includes half of their distance, of another what rounding loses where
        negative coefficients meet the upper lines' heights. None: nothing.
        """
        if value not in self._costs:
            check_time()
            node = self.network.node(value)
            if isinstance(node.operation, Affine):
                self._costs[value] = self._cost_of_affine(value)
            elif isinstance(node.operation, Activation):
                self._costs[value] = self._cost_of_activation(value)
            else:
                assert_never(node.operation)
        return self._costs[value]

    def costs_by_sign(self, value: int) -> tuple[Tensor, Tensor]:
        """What a form loses per unit of each coefficient when it leaves an activation's value, and per unit of each
        negative one besides: `|a|` is a, less twice its negative part, which takes the upper line: (batch, size)."""
        if value not in self._costs_by_sign:
            cost, height = self.cost(value), self.height(value)
            self._costs_by_sign[value] = (
                (torch.zeros_like(height), -height) if cost is None else (cost, -(2 * cost + height))
            )
        return self._costs_by_sign[value]

    def interval_about_reference(self, value: int) -> tuple[Tensor, Tensor]:
        """The interval of an activation's value, given by the bounds of its pre-activation: how far its middle lies
        above the reference, and how far it reaches to either side, what the sum of a form rounds included:
        (batch, size) each."""
        if value not in self._intervals:
            lower, upper = self.network.activations[value].image(
                *self.bounds[self.network.source(value)], self.arithmetic
            )
            middle = lower + (upper - lower) / 2
            centre = middle - self.reference(value)
            spread = torch.maximum(upper - middle, middle - lower).clamp(min=0)
            if self.arithmetic.rigorous:
                rounding = self.arithmetic.gamma(self.network.sizes[value] + 4) * (centre.abs() + middle.abs())
                spread = self.arithmetic.above(spread + rounding, 4)
            self._intervals[value] = centre, spread
        return self._intervals[value]

    def underflow(self, value: int) -> Tensor | float:
        """The loss by coefficients that underflow between this value and the input: (batch, 1)."""
        if not self.arithmetic.rigorous:
            return 0.0
        if value not in self._underflows:
            met = self.network.ancestors((value,), self.network.activations if self.relaxer.flat else ())
            deviations = [self.max_deviation(source).sum(1, keepdim=True) for source in met]
            self._underflows[value] = TINY * torch.cat(deviations, 1).sum(1, keepdim=True)
        return self._underflows[value]

    def _reference(self, value: int) -> Tensor:
        if value == INPUT:
            return self.region.reference
        node = self.network.node(value)
        if isinstance(node.operation, Affine):
            if not self.network.activation_depths[value]:
                shared = self._before_relus(value)
                return shared if self._which is None else shared[self._which]
            operands = [self.reference(source).unflatten(-1, self.network.shapes[source]) for source in node.inputs]
            return node.operation.apply(*operands).flatten(1)
        lines = self.lines(value)
        if self.relaxer.flat:
            return lines.middle
        before = self.reference(node.inputs[0])
        if lines.parallel and not self.upper:
            return lines.slope_above * before + lines.middle
        if self.upper:
            return lines.slope_above * before + lines.high
        below = lines.slope_below * before
        return below if lines.low is None else below + lines.low

    def _before_relus(self, value: int) -> Tensor:
        """The reference of a value before the first activations, shared by regions around one point: (points, size)."""
        if value not in self._at_points:
            node = self.network.node(value)
            operands = [self._before_relus(source).unflatten(-1, self.network.shapes[source]) for source in node.inputs]
            self._at_points[value] = node.operation.apply(*operands).flatten(1)
        return self._at_points[value]

    def _max_deviation(self, value: int) -> Tensor:
        above = self.arithmetic.above
        if value == INPUT:
            return self.region.spans(self.arithmetic).largest
        node, reference = self.network.node(value), self.reference(value)
        if value in self.bounds:
            lower, upper = self.bounds[value]
        elif isinstance(node.operation, Affine):
            deviations = [
                self.max_deviation(source).unflatten(-1, self.network.shapes[source]) for source in node.inputs
            ]
            moved = above(node.operation.magnitude(*deviations).flatten(1), 2 * node.operation.terms + 10)
            cost = self.cost(value)
            return moved if cost is None else above(moved + cost, 1)
        elif isinstance(node.operation, Activation):
            lower, upper = node.operation.image(*self.bounds[node.inputs[0]], self.arithmetic)
        else:
            assert_never(node.operation)
        return above(torch.maximum(upper - reference, reference - lower).clamp(min=0), 1)

    def _cost_of_affine(self, value: int) -> Tensor | None:
        """The cost of an affine operation, and of the operands that it has been left to pay for."""
        cost = self._with_noise(value, self._affine_cost(value))
        for source in self._sources(value):
            before = self.cost(source) if source in self._charged_at_sum else None
            if before is not None:
                cost = before if cost is None else self.arithmetic.above(cost + before, 1)
        return cost

    def _cost_of_activation(self, value: int) -> Tensor | None:
        cost = self._activation_cost(value)
        if cost is None or not self.arithmetic.rigorous or value not in self._joined:
            return cost
        return self.arithmetic.above(cost + self.arithmetic.gamma(1) * self.max_deviation(value), 3)

    def _affine_cost(self, value: int) -> Tensor | None:
        """The reference's own rounding, and that of the product that pulls a form back, times the input's deviation."""
        node, operation = self.network.node(value), self.network.affine(value)
        if not self.arithmetic.rigorous or (operation.constant is None and not operation.terms):
            return None
        shapes = [self.network.shapes[source] for source in node.inputs]
        gamma = self.arithmetic.gamma(operation.terms + 2)
        costs = [
            (gamma * (self.reference(source).abs() + self.max_deviation(source))).unflatten(-1, shape)
            for source, shape in zip(node.inputs, shapes, strict=True)
        ]
        total = operation.magnitude(*costs).flatten(1)
        if operation.constant is not None:
            total = total + gamma * operation.constant.abs().expand(self.network.shapes[value]).flatten()
        total = self.arithmetic.above(total, 2 * operation.terms + 12)
        return torch.where(
            self.reference(value).isfinite(), total, torch.inf
        )  # a reference that overflowed says nothing

    def _with_noise(self, value: int, cost: Tensor | None) -> Tensor | None:
        """The cost of an affine operation, with the noise of its evaluation in floating point."""
        if not rounds(self.network, value):
            return cost
        noisy = noise(self.network, value, [self._size(source) for source in self._sources(value)], self.arithmetic)
        return noisy if cost is None else self.arithmetic.above(cost + noisy, 1)

    def _size(self, value: int) -> Tensor | InputSize:
        """How large a value may be in absolute value, up to one rounding: (batch, size)."""
        if value == INPUT:
            return InputSize.within(self.region, self.arithmetic)
        size = size_within(self.network, self.bounds, value, self.arithmetic)
        return self.reference(value).abs().add_(self.max_deviation(value)) if size is None else size

    def _sources(self, value: int) -> tuple[int, ...]:
        return self.network.node(value).inputs

    def _activation_cost(self, value: int) -> Tensor | None:
        lines, source = self.lines(value), self.network.source(value)
        if self.relaxer.flat:
            rounding = self.arithmetic.gamma(4) * (lines.high.abs() + self.reference(value).abs())
            return self.arithmetic.above(lines.half_width + rounding, 4)
        half = lines.half_width if lines.parallel and not self.upper else None
        before = self.cost(source) if source in self._charged_at_activation else None
        if not self.arithmetic.rigorous:
            return half if before is None else lines.slope_above.abs() * before + (0 if half is None else half)
        slope = torch.maximum(lines.slope_below.abs(), lines.slope_above.abs())
        if self.upper:
            slope = slope.clamp(min=1)  # what the lower lines of a form may have
        size = 2 * slope * self.reference(source).abs() + lines.high.abs() + self.reference(value).abs()
        if lines.low is not None:
            size = size + lines.low.abs()
        # A coefficient times the slopes of both lines, for its sign: four roundings of the larger slope, or two of it.
        cost = self.arithmetic.gamma(8) * (size + slope * self.max_deviation(source))
        if half is not None:
            cost = cost + half
        elif not self.upper:  # what the sum of all coefficients' costs rounds, heights of upper lines among them
            cost = cost + 2 * self.arithmetic.gamma(self.network.sizes[value] + 6) * self.height(value).abs()
        if before is not None:
            # Where a coefficient times the slope underflows, `underflow` pays: no deviation is far below its cost.
            cost = cost + slope * before * (1 + self.arithmetic.gamma(1))
        return self.arithmetic.above(cost, 12 if half is not None or self.upper else 3 * self.network.sizes[value] + 30)


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
        underflow = self._whole.underflow(value)
        return underflow if isinstance(underflow, float) else underflow[self._members]

    def _reference(self, value: int) -> Tensor:
        return self._whole.reference(value)[self._members]

    def _max_deviation(self, value: int) -> Tensor:
        return self._whole.max_deviation(value)[self._members]

    def _cost_of_affine(self, value: int) -> Tensor | None:
        return self._picked_cost(value)

    def _cost_of_activation(self, value: int) -> Tensor | None:
        return self._picked_cost(value)

    def _picked_cost(self, value: int) -> Tensor | None:
        cost = self._whole.cost(value)
        return None if cost is None else cost[self._members]
