"""The backward driver: linear forms on a value are pulled back to the input (the paper's own direction).

A form `A z` is replaced, ReLU after ReLU, by a smaller one: where a coefficient is positive the neuron's lower
line stands in for it, where it is negative the upper line. At the input the region gives the minimum in closed form.
Where both lines of every neuron are parallel, one and the same pull-back gives the maximum too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from relucert.bounding.forward import forward
from relucert.bounding.interval import Bounds, Interval, propagate
from relucert.bounding.relaxers import FAST_LIN, Relaxation, Relaxer, free_below
from relucert.network import INPUT, Affine, Network, pull_back, transposed
from relucert.region import Deviation, Region
from relucert.rigor import SLICE_BYTES, Arithmetic

LOST = 2.0**-960  # gamma times it is above what underflow takes from one sum of a million products
ROW_BYTES = 2**26  # how large one chunk of forms may get while every neuron of a layer is bounded


@dataclass(frozen=True, eq=False)
class DualVariables:
    """What a lower bound is free to choose, for every form of its own; any choice gives a bound.

    Attributes:
        slopes: By the value of a ReLU, the slopes of unstable neurons' lower lines, (batch, forms, size), in [0, 1].
        multipliers: By the value of a ReLU, how many times the pre-activations are taken off, (batch, forms, size):
            what is known to be positive can only be missed, never gained.
    """

    slopes: dict[int, Tensor] = field(default_factory=dict)
    multipliers: dict[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class PulledBack:
    """Bounds of linear forms over a region, (batch, forms), and the forms on the way.

    Attributes:
        lower: Lower bounds; they hold at every point of the region at which the neurons' bounds do.
        upper: Upper bounds; None where lower and upper lines are not parallel.
        coefficients: By the value of a ReLU, the forms on it: (batch or 1, forms, size).
    """

    lower: Tensor
    upper: Tensor | None
    coefficients: dict[int, Tensor]


def bound_forms(
    network: Network, region: Region, forms: Tensor, value: int, bounds: Bounds, arithmetic: Arithmetic,
    *, relaxer: Relaxer = FAST_LIN, duals: DualVariables | None = None, offsets: Tensor | None = None,
) -> PulledBack:  # fmt: skip
    """Bounds of linear forms on a value over the region.

    Args:
        forms: (batch or 1, forms, size). Network, region and forms are in the arithmetic's dtype.
        bounds: Those of every pre-activation before the value.
        duals: Free choices of each form's own; without them the relaxer's lines hold.
        offsets: Constants to add to the forms, (batch, forms).
    """
    return _Pull(network, region, bounds, relaxer, arithmetic, duals or DualVariables()).run(forms, value, offsets)


def backward(
    network: Network, region: Region, relaxer: Relaxer, arithmetic: Arithmetic, wanted: tuple[int, ...],
    *, unstable_only: bool = False,
) -> Bounds:  # fmt: skip
    """Bounds of every wanted value and of every pre-activation before it: the paper's Algorithm 1, layer after layer.

    unstable_only: whether neurons whose sign is known from interval bounds keep those: a tighter bound would not
    change what comes after them.
    """
    needed = network.ancestors(wanted)
    values = sorted(set(network.rectified) & needed | set(wanted))
    first = tuple(value for value in values if not network.relu_depths[value])
    bounds = _closed_form(network, region, first, arithmetic)
    for value in values:
        if value not in bounds:
            known = None
            if unstable_only and value not in wanted:
                known = propagate(network, region, bounds, value, arithmetic)
            bounds[value] = enclose(network, region, value, bounds, arithmetic, relaxer=relaxer, known=known)
    return bounds


def _closed_form(network: Network, region: Region, values: tuple[int, ...], arithmetic: Arithmetic) -> Bounds:
    """Bounds of values that no ReLU comes before: each is a linear form on the input."""
    bounds = forward(network, region, FAST_LIN, arithmetic, values)
    return {value: bounds[value] for value in values}


def enclose(
    network: Network, region: Region, value: int, bounds: Bounds, arithmetic: Arithmetic,
    *, relaxer: Relaxer = FAST_LIN, known: Interval | None = None,
) -> Interval:  # fmt: skip
    """Bounds of all neurons of one value, from those of every pre-activation before it; they hold where those do.

    known: bounds that hold already; only the neurons that they leave unstable in some batch member are bounded anew.
    """
    if not network.relu_depths[value]:
        return _closed_form(network, region, (value,), arithmetic)[value]
    size = network.sizes[value]
    neurons = torch.arange(size) if known is None else known.unstable.any(0).nonzero().flatten()
    step = max(1, ROW_BYTES // (16 * max(network.sizes) * len(region.radius)))
    lower, upper = [], []
    for chosen in neurons.split(step) if len(neurons) else ():
        place, forms, offsets = _unit_forms(network, region, value, chosen)
        pulled = bound_forms(network, region, forms, place, bounds, arithmetic, relaxer=relaxer, offsets=offsets)
        lower.append(pulled.lower)
        if pulled.upper is None:
            negated = None if offsets is None else -offsets
            pulled = bound_forms(network, region, -forms, place, bounds, arithmetic, relaxer=relaxer, offsets=negated)
            upper.append(-pulled.lower)
        else:
            upper.append(pulled.upper)
    if known is None:
        return Interval(torch.cat(lower, 1), torch.cat(upper, 1))
    if not lower:
        return known
    return known.replaced(neurons, Interval(torch.cat(lower, 1), torch.cat(upper, 1)))


def _unit_forms(network: Network, region: Region, value: int, neurons: Tensor) -> tuple[int, Tensor, Tensor | None]:
    """Some neurons of a value as forms, plus offsets, on a value: on its input, where it is a matrix times that."""
    operation, inputs = network.nodes[value - 1].operation, network.nodes[value - 1].inputs
    if isinstance(operation, Affine) and operation.matrix is not None and operation.constant is not None:
        constant = operation.constant.expand(network.shapes[value]).flatten()[neurons]
        return inputs[0], operation.matrix[neurons][None], constant.expand(len(region.radius), -1)
    forms = region.radius.new_zeros(1, len(neurons), network.sizes[value])
    forms[0, torch.arange(len(neurons)), neurons] = 1
    return value, forms, None


@dataclass(eq=False)
class _Pull:
    """One pull-back, the rule of the walk over the network.

    `constant` is the value of the relaxed forms at the region's reference, as far as it is gathered yet, and `slack`
    what they may lie from it apart from the input's own deviation; both (batch, forms).
    """

    network: Network
    region: Region
    bounds: Bounds
    relaxer: Relaxer
    arithmetic: Arithmetic
    duals: DualVariables

    def run(self, forms: Tensor, value: int, offsets: Tensor | None) -> PulledBack:
        self.constant = forms.new_zeros(len(self.region.radius), forms.shape[1])
        self.slack = torch.zeros_like(self.constant)
        self.two_sided = self.relaxer.parallel and not self.duals.slopes and not self.duals.multipliers
        self.coefficients: dict[int, Tensor] = {}
        self.reach = self._reaches(value) if self.arithmetic.rigorous else {}
        if offsets is not None:
            self._gather(offsets)
        if value == INPUT:
            self._at_reference(forms)
        left = pull_back(self.network, value, forms, self, self._only_entrance(value))
        below, above = self.slack, self.slack
        for last, form in left.items():  # what it is worth at the reference is in the constant, or will be
            if last == INPUT:
                moved = self.region.deviation(form, self.arithmetic, self.two_sided)
            else:
                moved = self._enter(last, form)
            below, above = moved.map(lambda side: self.arithmetic.above(side + self.slack, 1))
        upper = self.arithmetic.ceil(self.constant + above) if self.two_sided else None
        return PulledBack(self.arithmetic.floor(self.constant - below), upper, self.coefficients)

    def _only_entrance(self, value: int) -> int:
        """The one value that is made of the input, by an affine operation; the input itself where that is not so."""
        needed = self.network.ancestors((value,))
        entrances = [place for place, node in self.network.steps() if place in needed and INPUT in node.inputs]
        if len(entrances) != 1 or not isinstance(self.network.nodes[entrances[0] - 1].operation, Affine):
            return INPUT
        return entrances[0] if self.network.nodes[entrances[0] - 1].inputs == (INPUT,) else INPUT

    def _enter(self, value: int, form: Tensor) -> Deviation:
        """Takes a form on the only entrance at the reference, and returns how far it deviates in the region.

        The forms on the input are larger than those before it: they are made and measured in slices of a cache's size.
        """
        operation = self.network.nodes[value - 1].operation
        assert isinstance(operation, Affine)
        shape = self.network.input_shape
        at_reference = self.region.at_reference(
            lambda points: operation.apply(points.unflatten(-1, shape)).flatten(1)
        )  # fmt: skip
        self._gather((form @ at_reference[..., None]).squeeze(-1))
        self._lose(form, self.reach.get(-value), 3 * (max(operation.terms, form.shape[-1]) + 2))
        step = max(1, SLICE_BYTES // (form.shape[1] * self.network.sizes[INPUT] * form.element_size()))
        parts = (transposed(self.network, value, part)[0] for part in form.split(step))
        if len(form) < len(self.region.radius):
            return self.region.deviation(next(parts), self.arithmetic, self.two_sided)
        return self.region.deviation_in_parts(parts, self.arithmetic, self.two_sided)

    def affine(self, value: int, form: Tensor) -> list[Tensor]:
        node, shape = self.network.nodes[value - 1], self.network.shapes[value]
        operation = node.operation
        assert isinstance(operation, Affine)
        if operation.constant is not None:
            self._gather(form @ operation.constant.expand(shape).flatten())
        self._lose(form, self.reach.get(-value), max(operation.terms, form.shape[-1]) + 2)
        pulled = transposed(self.network, value, form)
        for source, part in zip(node.inputs, pulled, strict=True):
            if source == INPUT:
                self._at_reference(part)
        return pulled

    def relu(self, value: int, source: int, form: Tensor) -> Tensor:
        self.coefficients[value] = form
        lines = self.relaxer(self.bounds[source], self.arithmetic)
        if value in self.duals.slopes:
            lines = free_below(lines, self.bounds[source], self.duals.slopes[value])
        pulled = self._parallel(lines, form) if lines.parallel else self._between(lines, form)
        self._lose(pulled, self.reach.get(source), 2)
        if value in self.duals.multipliers:
            pulled = pulled - allowed(self.duals.multipliers[value], self.bounds[source])
            self._lose(pulled, self.reach.get(source), 1)
        if source == INPUT:
            self._at_reference(pulled)
        return pulled

    def join(self, value: int, one: Tensor, other: Tensor) -> Tensor:
        total = one + other
        self._lose(total, self.reach.get(value), 1)
        return total

    def _parallel(self, lines: Relaxation, form: Tensor) -> Tensor:
        """Both sides at once: the middle between the lines, and half their distance to either side."""
        middle, half = lines.middle, lines.half_width
        self._gather((form @ middle[..., None]).squeeze(-1))
        size = form.shape[-1]
        self._lose(form, middle.abs(), size + 2)
        width = (form.abs() @ half[..., None]).squeeze(-1)
        self.slack = self.arithmetic.above(self.slack + self.arithmetic.above(width, size + 3), 1)
        return form * lines.slope_below[:, None]

    def _between(self, lines: Relaxation, form: Tensor) -> Tensor:
        """The lower line for positive coefficients, the upper one for negative ones."""
        positive, negative = form.clamp(min=0), form.clamp(max=0)
        for part, offset in ((positive, lines.low), (negative, lines.high)):
            if offset is not None:
                self._gather((part @ offset[..., None]).squeeze(-1))
                self._lose(part, offset.abs(), form.shape[-1] + 2)
        slope = lines.slope_below if lines.slope_below.ndim == 3 else lines.slope_below[:, None]
        return positive * slope + negative * lines.slope_above[:, None]

    def _at_reference(self, form: Tensor) -> None:
        """Takes a form on the input at the region's reference."""
        reference = self.region.reference
        self._gather((form @ reference[..., None]).squeeze(-1))
        self._lose(form, reference.abs(), form.shape[-1] + 2)

    def _gather(self, amount: Tensor) -> None:
        """Adds to the constant; the sum's own rounding goes to the slack."""
        self.constant = self.constant + amount
        if self.arithmetic.rigorous:
            self.slack = self.slack + self.arithmetic.gamma(1) * self.constant.abs()

    def _lose(self, form: Tensor, reach: Tensor | None, terms: int) -> None:
        """Adds to the slack what `terms` roundings of a form's coefficients may move where the value is within `reach`.

        A coefficient that underflows to nothing is charged, too: it may meet a value of any size.
        """
        if self.arithmetic.rigorous:
            assert reach is not None
            cost = ((form.abs() + LOST) @ reach[..., None]).squeeze(-1)
            cost = self.arithmetic.above(cost, form.shape[-1]) * self.arithmetic.gamma(terms)
            self.slack = self.arithmetic.above(self.slack + cost, 4)

    def _reaches(self, last: int) -> dict[int, Tensor]:
        """Upper bounds of every value's absolute size over the region, (batch, size).

        Under the value's negative index: the same for an affine value before the neurons' bounds sharpen it, the
        sum of the absolute values of all terms that make it.
        """
        above = self.arithmetic.above
        reach = {INPUT: above(self.region.reference.abs() + self.region.spans(self.arithmetic).largest, 1)}
        needed = self.network.ancestors((last,))
        for value, node in self.network.steps():
            if value not in needed:
                continue
            if isinstance(node.operation, Affine):
                shapes = [self.network.shapes[source] for source in node.inputs]
                parts = [reach[source].unflatten(-1, shape) for source, shape in zip(node.inputs, shapes, strict=True)]
                total = node.operation.magnitude(*parts)
                if node.operation.constant is not None:
                    total = total + node.operation.constant.abs()
                reach[-value] = reach[value] = above(total.flatten(1), 2 * node.operation.terms + 10)
            else:
                reach[value] = self.bounds[node.inputs[0]].upper.clamp(min=0)
            if value in self.bounds:
                lower, upper = self.bounds[value]
                reach[value] = torch.minimum(reach[value], torch.maximum(-lower, upper))
        return reach


def allowed(multipliers: Tensor, bounds: Interval) -> Tensor:
    """Those that take off nothing negative: positive ones of positive neurons, negative ones of negative neurons."""
    positive, negative = (bounds.lower >= 0)[:, None], (bounds.upper <= 0)[:, None]
    return multipliers.clamp(min=0) * positive + multipliers.clamp(max=0) * (negative & ~positive)
