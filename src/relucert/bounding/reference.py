"""A reference point of every value, and what a coefficient costs during back-substitution.

The relaxed network is evaluated at the region's reference point: each value gets a reference of its own, and
back-substitution only has to follow deviations from the references. Constants vanish from it, and every cost (of
a relaxation's width, of rounding) is a map of the value's size that multiplies a form's absolute coefficients.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from typing_extensions import assert_never

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import TINY, Arithmetic
from relucert.bounding.interval import Bounds, Interval, activation_bounds, propagate, select, size_within
from relucert.bounding.noise import InputSize, noise, rounds
from relucert.bounding.product_planes import SquareLines, gains
from relucert.bounding.relaxers import Relaxation, Relaxer
from relucert.common.deadline import check_time
from relucert.network import INPUT, Activation, Add, Affine, FlatAffine, Network
from relucert.network.cut import can_be_cut, without_neurons

WORTH_A_CUT = 2**15  # multiplications saved for each form that is pulled back

_Path = TypeVar("_Path", bound="ReferencePath")
_Result = TypeVar("_Result")


def computed_once(function: Callable[[_Path, int], _Result]) -> Callable[[_Path, int], _Result]:
    """Decorator: what a path has for each value is computed when it is first asked for, unless time is over."""

    name = function.__name__

    @wraps(function)
    def lookup(path: _Path, value: int) -> _Result:
        results = path._computed[name]
        if value not in results:
            check_time()
            results[value] = function(path, value)
        result: _Result = results[value]
        return result

    return lookup


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
        self._computed: dict[str, dict[int, Any]] = defaultdict(dict)  # by what it is and by value
        uses = Counter(source for node in network.nodes for source in node.inputs)
        affine = {value for value, node in network.steps() if isinstance(node.operation, Affine)}
        by_sign = network.inference.rounds and not relaxer.parallel  # noise is felt: each line's slope counts
        relus = set(network.preactivations) & affine if not (upper or by_sign or relaxer.flat) else set()
        self._charged_at_activation = {value for value in relus if uses[value] == 1}
        sums = [node.inputs for node in network.nodes if isinstance(node.operation, Add)]
        self._charged_at_sum = {value for inputs in sums for value in inputs if value in affine and uses[value] == 1}
        self._joined = {value for value in network.activations if uses[value] == 2}
        planes = not (arithmetic.recorded or relaxer.parallel or network.inference.rounds)
        self.products = {product.plus: product for product in network.products} if planes else {}
        self.minuends = {product.minus: product.plus for product in self.products.values()}  # by the subtracted square

    @property
    def bounded(self) -> tuple[int, ...]:
        """The values that bounds are wanted of, in order: pre-activations, and roots of factors where planes count."""
        return self.network.bounded if self.products else self.network.preactivations

    def charged_later(self, value: int) -> bool:
        """Whether the cost of this value is part of the cost of the only activation or sum that it feeds."""
        return value in self._charged_at_activation or value in self._charged_at_sum

    def charges_join(self, value: int) -> bool:
        """Whether the cost of this value includes what rounds where forms of two branches are added."""
        return value in self._joined

    @computed_once
    def lines(self, value: int) -> Relaxation:
        """The linear relaxation of the activation that computes this value."""
        return self.relaxer(self.network.activations[value], self.bounds[self.network.source(value)], self.arithmetic)

    @computed_once
    def reference(self, value: int) -> Tensor:
        """The reference of a value: (batch, size)."""
        if value == INPUT:
            return self.region.reference
        if value not in self.network.activations:
            if not self.network.activation_depths[value]:
                shared, which = self._shared_reference(value), self.region.references[1]
                return shared if which is None else shared[which]
            return FlatAffine.of(self.network, value).apply(*map(self.reference, self._sources(value)))
        lines = self.lines(value)
        if self.relaxer.flat:
            return lines.middle
        before = self.reference(self.network.source(value))
        if self.upper:
            return lines.slope_above * before + lines.high
        if lines.parallel:
            return lines.slope_above * before + lines.middle
        below = lines.slope_below * before
        return below if lines.low is None else below + lines.low

    @computed_once
    def _shared_reference(self, value: int) -> Tensor:
        """The reference of a value before the first activations, shared by regions around one point: (points, size)."""
        if value == INPUT:
            return self.region.references[0]
        return FlatAffine.of(self.network, value).apply(*map(self._shared_reference, self._sources(value)))

    @computed_once
    def steepest(self, value: int) -> Tensor:
        """The largest absolute slope that lines around the activation which computes this value may have, those of
        forms with lines of their own included: (batch, size)."""
        lines, activation = self.lines(value), self.network.activations[value]
        slope = torch.maximum(lines.slope_below.abs(), lines.slope_above.abs())
        if not self.upper:
            return slope
        if activation.rectifier:
            return slope.clamp(min=1)
        flattest, steepest = activation.derivatives(*self.bounds[self.network.source(value)])
        return torch.maximum(slope, torch.maximum(flattest.abs(), steepest.abs()))

    @computed_once
    def factors(self, value: int) -> tuple[Interval, Interval] | None:
        """The intervals of a product's factors, by the value of its first square, where there are bounds of both.

        Half of the sum and half of the difference of `x + y` and `x - y` are x and y, too.
        """
        product = self.products[value]
        known = {root: self.bounds[root] for root in product.roots if root in self.bounds}
        if not all(root in known or root in self.network.activations for root in product.roots):
            return None
        first, second = (
            propagate(self.network, self.region, self.bounds, factor, self.arithmetic, ends=known)
            for factor in product.factors
        )
        plus, minus = (self.bounds[self.network.source(square)] for square in (value, product.minus))
        floor, ceil = self.arithmetic.floor, self.arithmetic.ceil
        half_sum = Interval(floor((plus.lower + minus.lower) / 2), ceil((plus.upper + minus.upper) / 2))
        half_difference = Interval(floor((plus.lower - minus.upper) / 2), ceil((plus.upper - minus.lower) / 2))
        return first.meet(half_sum), second.meet(half_difference)

    @computed_once
    def product_gains(self, value: int) -> tuple[Tensor, Tensor] | None:
        """What planes around a product gain over the lines of both its squares, by the value of the first one: per unit
        of each positive coefficient on it, and of each negative one, (batch, size)."""
        factors = self.factors(value)
        if factors is None:
            return None
        plus, minus = self.lines(value), self.lines(self.products[value].minus)
        nothing = torch.zeros_like(plus.high)
        plus_low, minus_low = (nothing if lines.low is None else lines.low for lines in (plus, minus))
        below = SquareLines(plus.slope_below, plus_low, minus.slope_above, minus.high)
        above = SquareLines(plus.slope_above, plus.high, minus.slope_below, minus_low)
        everywhere = torch.ones_like(nothing, dtype=torch.bool)
        return (
            gains(factors, below, everywhere, self.arithmetic),
            gains(factors, above, ~everywhere, self.arithmetic),
        )

    def height(self, value: int) -> Tensor:
        """How far the upper line of the activation that computes this value lies above the value's reference, at the
        reference of the pre-activation: (batch, size)."""
        lines, source = self.lines(value), self.network.source(value)
        return lines.slope_above * self.reference(source) + lines.high - self.reference(value)

    @computed_once
    def max_deviation(self, value: int) -> Tensor:
        """How far a value may lie from its reference, at most: (batch, size)."""
        if value == INPUT:
            return self.region.spans(self.arithmetic).largest
        operation = self.network.node(value).operation
        if value in self.bounds:
            lower, upper = self.bounds[value]
        elif isinstance(operation, Affine):
            moved = FlatAffine.of(self.network, value).magnitude(*map(self.max_deviation, self._sources(value)))
            moved, cost = self.arithmetic.above(moved, 2 * operation.terms + 10), self.cost(value)
            return moved if cost is None else self.arithmetic.above(moved + cost, 1)
        elif isinstance(operation, Activation):
            lower, upper = activation_bounds(self.network, self.bounds, value, self.arithmetic)
        else:
            assert_never(operation)
        reference = self.reference(value)
        return self.arithmetic.above(torch.maximum(upper - reference, reference - lower).clamp(min=0), 1)

    @computed_once
    def cost(self, value: int) -> Tensor | None:
        """The cost per unit of each absolute coefficient of a form that leaves this value: (batch, size).

        Of a ReLU with parallel lines this includes half of their distance, of another what rounding loses where
        negative coefficients meet the upper lines' heights. None: nothing.
        """
        operation = self.network.node(value).operation
        if isinstance(operation, Affine):
            return self._cost_of_affine(value)
        if isinstance(operation, Activation):
            cost = self._cost_of_activation(value)
            if cost is None or not self.arithmetic.rigorous or value not in self._joined:
                return cost
            return self.arithmetic.above(cost + self.arithmetic.gamma(1) * self.max_deviation(value), 3)
        assert_never(operation)

    @computed_once
    def costs_by_sign(self, value: int) -> tuple[Tensor, Tensor]:
        """What a form loses per unit of each coefficient when it leaves an activation's value, and per unit of each
        negative one besides: `|a|` is a, less twice its negative part, which takes the upper line: (batch, size)."""
        cost, height = self.cost(value), self.height(value)
        return (torch.zeros_like(height), -height) if cost is None else (cost, -(2 * cost + height))

    @computed_once
    def interval_about_reference(self, value: int) -> tuple[Tensor, Tensor]:
        """The interval of an activation's value, given by the bounds of its pre-activation: how far its middle lies
        above the reference, and how far it reaches to either side, what the sum of a form rounds included:
        (batch, size) each."""
        interval = activation_bounds(self.network, self.bounds, value, self.arithmetic)
        middle = interval.middle
        centre = middle - self.reference(value)
        spread = torch.maximum(interval.upper - middle, middle - interval.lower).clamp(min=0)
        if self.arithmetic.rigorous:
            rounding = self.arithmetic.gamma(self.network.sizes[value] + 4) * (centre.abs() + middle.abs())
            spread = self.arithmetic.above(spread + rounding, 4)
        return centre, spread

    @computed_once
    def underflow(self, value: int) -> Tensor | float:
        """The loss by coefficients that underflow between this value and the input: (batch, 1)."""
        if not self.arithmetic.rigorous:
            return 0.0
        met = self.network.ancestors((value,), self.network.activations if self.relaxer.flat else ())
        deviations = [self.max_deviation(source).sum(1, keepdim=True) for source in met]
        return TINY * torch.cat(deviations, 1).sum(1, keepdim=True)

    def _sources(self, value: int) -> tuple[int, ...]:
        return self.network.node(value).inputs

    def _cost_of_affine(self, value: int) -> Tensor | None:
        """The cost of an affine operation: what rounds, the noise of its evaluation in floating point, and the costs of
        the operands that it has been left to pay for."""
        sources, total = self._sources(value), self._rounding(value)
        costs = [self.cost(source) for source in sources if source in self._charged_at_sum]
        if rounds(self.network, value):
            costs = [noise(self.network, value, [self._size(source) for source in sources], self.arithmetic), *costs]
        for cost in costs:
            if cost is not None:
                total = cost if total is None else self.arithmetic.above(total + cost, 1)
        return total

    def _rounding(self, value: int) -> Tensor | None:
        """The reference's own rounding, and that of the product that pulls a form back, times the input's deviation."""
        affine = FlatAffine.of(self.network, value)
        terms = affine.operation.terms
        if not self.arithmetic.rigorous or (affine.constant is None and not terms):
            return None
        gamma = self.arithmetic.gamma(terms + 2)
        sizes = (self.reference(source).abs() + self.max_deviation(source) for source in self._sources(value))
        total = affine.plus_constant(affine.magnitude(*(gamma * size for size in sizes)), gamma)
        total = self.arithmetic.above(total, 2 * terms + 12)
        return torch.where(self.reference(value).isfinite(), total, torch.inf)  # one that overflowed says nothing

    def _size(self, value: int) -> Tensor | InputSize:
        """How large a value may be in absolute value, up to one rounding: (batch, size)."""
        if value == INPUT:
            return InputSize.within(self.region, self.arithmetic)
        size = size_within(self.network, self.bounds, value, self.arithmetic)
        return self.reference(value).abs().add_(self.max_deviation(value)) if size is None else size

    def _cost_of_activation(self, value: int) -> Tensor | None:
        lines, source = self.lines(value), self.network.source(value)
        if self.relaxer.flat:
            rounding = self.arithmetic.gamma(4) * (lines.high.abs() + self.reference(value).abs())
            return self.arithmetic.above(lines.half_width + rounding, 4)
        half = lines.half_width if lines.parallel and not self.upper else None
        before = self.cost(source) if source in self._charged_at_activation else None
        if not self.arithmetic.rigorous:
            return half if before is None else lines.slope_above.abs() * before + (0 if half is None else half)
        slope = self.steepest(value)
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

    @computed_once
    def lines(self, value: int) -> Relaxation:
        return self._whole.lines(value).select(self._members)

    @computed_once
    def reference(self, value: int) -> Tensor:
        return self._whole.reference(value)[self._members]

    def height(self, value: int) -> Tensor:
        return self._whole.height(value)[self._members]

    @computed_once
    def max_deviation(self, value: int) -> Tensor:
        return self._whole.max_deviation(value)[self._members]

    @computed_once
    def cost(self, value: int) -> Tensor | None:
        cost = self._whole.cost(value)
        return None if cost is None else cost[self._members]

    @computed_once
    def underflow(self, value: int) -> Tensor | float:
        underflow = self._whole.underflow(value)
        return underflow if isinstance(underflow, float) else underflow[self._members]


class ReducedPath:
    """The reference path of a network that loses, layer after layer, the neurons that are inactive in all of a region:
    matrices get smaller.

    Attributes:
        whole: The network with all its neurons.
        path: The path without neurons that are inactive in all batch members; values keep their numbers.
        kept: Of the pre-activations that lost neurons, which ones are left, (count,).
        all_bounds: By value so far, the bounds of all its neurons.
    """

    def __init__(
        self, network: Network, region: Region, relaxer: Relaxer, arithmetic: Arithmetic, *, upper: bool = False
    ) -> None:
        """upper: As for a `ReferencePath`."""
        self.whole, self.kept, self.all_bounds = network, dict[int, Tensor](), Bounds()
        self.path = ReferencePath(network, region, {}, relaxer, arithmetic, upper=upper)

    def kept_of(self, activation: int) -> Tensor | None:
        """The neurons of an activation's value that are left, (count,); None: all."""
        return self.kept.get(self.whole.source(activation))

    def widen(self, activation: int, table: Tensor) -> Tensor:
        """A table with a column per neuron left of an activation's value, with those of lost ones, which are 0."""
        kept = self.kept_of(activation)
        if kept is None:
            return table
        return table.new_zeros(*table.shape[:-1], self.whole.sizes[activation]).index_copy_(-1, kept, table)

    def add(self, value: int, interval: Interval, cut: bool = True) -> None:
        """Takes a value's bounds, and cuts its inactive neurons, if they are many."""
        path, network, bounds = self.path, self.path.network, self.path.bounds
        kept = (~(interval.upper <= 0)).any(0).nonzero().flatten()
        inactive = interval.lower.shape[1] - len(kept)
        bounds[value] = self.all_bounds[value] = interval
        work = inactive * sum(network.sizes[layer] for layer in (INPUT, *network.preactivations))
        if cut and len(kept) and work >= WORTH_A_CUT and can_be_cut(network, value):
            network = without_neurons(network, value, kept)
            bounds[value] = interval.pick(kept)
            self.kept[value] = kept
            self.path = ReferencePath(network, path.region, bounds, path.relaxer, path.arithmetic, upper=path.upper)
