"""Back-substitution, as in CROWN and DeepPoly: linear forms on a value are pulled back to the input.

This is the backward driver, the Fast-Lin paper's own direction. A form `A z` is replaced, ReLU after ReLU, by a smaller
one: where a coefficient is positive the neuron's lower line stands in for it, where it is negative the upper line. At
the input the form is concretised: the region gives its minimum in closed form, by the dual norm. Where both lines of
every neuron are parallel, one and the same back-substitution gives the maximum too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.deviation import Deviation
from relucert.arithmetic.rigor import TINY
from relucert.bounding.dual_lines import DualLines, pull_through
from relucert.bounding.interval import Interval
from relucert.bounding.product_planes import SquareLines, gains
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import Relaxation
from relucert.common.slicing import SLICE_BYTES
from relucert.network import INPUT, Affine, Linear, LinearForms, Network, Rows, pull_back, transposed


@dataclass(frozen=True, eq=False)
class DualVariables:
    """Dual variables of a lower bound, for every form of its own; any choice gives a bound.

    Slopes are the variables that alpha-CROWN optimises, multipliers of split neurons those that beta-CROWN adds.

    Attributes:
        slopes: By the value of a ReLU, the slopes (alpha) of unstable neurons' lower lines, in [0, 1]: (batch, forms,
            size), or laid out like the coefficients of the forms on that value. Of another activation, where between
            its least and its largest derivative, 0 and 1, the slope of the line is that a form meets: the lower one
            where its coefficient is positive, the upper one where it is negative.
        multipliers: By the value of a ReLU, the Lagrange multipliers (beta) of known signs, (batch, forms, size): how
            many times each pre-activation is subtracted. What is known to be positive can only lower a bound.
        signs: By the value of a ReLU with slopes, signs of pre-activations that each form may rely on, 1, -1 or 0 for
            none, (batch, forms, size): the bound holds where they do.
        constraints: By pre-activation, the Lagrange multipliers of its bounds [l, u], (batch, forms, size): how many
            times `z - u` is added where they are positive, `z - l` where they are negative. Neither is positive.
        lines: By the value of a ReLU with slopes, its lines as an earlier back-substitution of the same forms along the
            same path has left them here; None: they are not kept.
    """

    slopes: dict[int, Tensor] = field(default_factory=dict)
    multipliers: dict[int, Tensor] = field(default_factory=dict)
    signs: dict[int, Tensor] = field(default_factory=dict)
    constraints: dict[int, Tensor] = field(default_factory=dict)
    lines: dict[int, DualLines] | None = None


NO_DUALS = DualVariables()


@dataclass(frozen=True, eq=False)
class PulledBack:
    """Bounds of linear forms over a region, (batch, forms), and the forms on the way.

    Attributes:
        lower: Lower bounds; they hold at every point of the region at which the neurons' bounds do.
        upper: Upper bounds; None where lower and upper lines are not parallel and some neuron is relaxed.
        forms: By the value of a ReLU, the forms on it.
        last: By its value, the form that was concretised: on the input, or on the one matrix times the input.
        largest: The bytes of the largest forms on the way.
    """

    lower: Tensor
    upper: Tensor | None
    forms: dict[int, LinearForms]
    last: dict[int, LinearForms]
    largest: int

    def on_input(self, network: Network) -> Tensor:
        """The coefficients of the forms on the input that were concretised: (batch or 1, forms, inputs)."""
        for value, form in self.last.items():
            return form.rows() if value == INPUT else transposed(network, value, form.rows())[0]
        return self.lower.new_zeros(*self.lower.shape, network.sizes[INPUT])


def bound_forms(
    path: ReferencePath, value: int, forms: Tensor, *, duals: DualVariables = NO_DUALS, offsets: Tensor | None = None
) -> PulledBack:
    """Bounds of linear forms on a value over the path's region.

    Args:
        path: With bounds of every pre-activation before the value; with duals its references lie on the upper lines.
        forms: (batch or 1, forms, size), in the dtype of the path's arithmetic.
        duals: Dual variables of each form's own; without them the relaxer's lines hold.
        offsets: Constants to add to the forms, (batch, forms).
    """
    return Pull(path, duals).bound(value, forms, offsets)


class Start(NamedTuple):
    """Linear forms on a value, their values at its reference, and what they may lose from these so far, (batch, forms)
    each."""

    value: int
    forms: LinearForms
    constant: Tensor
    slack: Tensor


class Pull:
    """One back-substitution: the rule that `pull_back` applies at every operation.

    `constant` is the forms' values at the reference, and `slack` what they may lose from it apart from the input's
    own deviation; both (batch, forms).
    """

    constant: Tensor
    slack: Tensor

    def __init__(self, path: ReferencePath, duals: DualVariables = NO_DUALS) -> None:
        assert path.upper or not (duals.slopes or duals.multipliers or duals.constraints)
        self.path, self.duals = path, duals
        self.network, self.region, self.arithmetic = path.network, path.region, path.arithmetic
        self.two_sided = path.relaxer.parallel and not path.upper
        self.met: dict[int, LinearForms] = {}
        self.constrained: set[int] = set()
        self.minus_lines: dict[int, tuple[Tensor, Tensor]] = {}  # slopes and offsets, by a product's first square
        self.largest = 1  # bytes of forms

    def bound(self, value: int, forms: Tensor, offsets: Tensor | None = None) -> PulledBack:
        """Bounds of linear forms on a value, (batch or 1, forms, size), plus offsets, (batch, forms)."""
        reference, rows = self.path.reference(value), Rows(forms, self.network.shapes[value])
        self.constant = rows.dot(reference)
        self.slack = torch.zeros_like(self.constant)
        if self.arithmetic.rigorous:
            self.lose(rows, reference.abs(), forms.shape[-1] + 2)
        if offsets is not None:
            self.gather(offsets)
        return self.run(Start(value, rows, self.constant, self.slack))

    def run(self, start: Start) -> PulledBack:
        value, forms, self.constant, self.slack = start
        if not self.network.activation_depths[value]:  # nothing is relaxed
            self.two_sided = True
        if self.path.charged_later(value):
            self._pay(forms, self.path.cost(value))
        if self.arithmetic.rigorous:
            self.slack = self.arithmetic.above(self.slack + self.path.underflow(value), 1)
        remaining = pull_back(self.network, value, forms, self, self._only_entrance(value))
        below, above = self.slack, self.slack
        for last, form in remaining.items():
            moved = self._at_input(form) if last == INPUT else self._enter(last, form)
            below, above = moved.map(lambda side: self.arithmetic.above(side + self.slack, 2))
        if self.arithmetic.rigorous:  # a constant that overflowed says nothing
            below, above = (torch.where(self.constant.isfinite(), side, torch.inf) for side in (below, above))
        upper = self.arithmetic.ceil(self.constant + above) if self.two_sided else None
        return PulledBack(self.arithmetic.floor(self.constant - below), upper, self.met, remaining, self.largest)

    def _only_entrance(self, value: int) -> int:
        """The one value that is a matrix times the input; the input itself where that is not so."""
        needed = self.network.ancestors((value,))
        entrances = [entrance for entrance, node in self.network.steps() if entrance in needed and INPUT in node.inputs]
        if len(entrances) != 1 or not isinstance(self.network.nodes[entrances[0] - 1].operation, Linear):
            return INPUT
        return entrances[0]

    def _at_input(self, form: LinearForms) -> Deviation:
        """Concretises a form on the input."""
        self._note(form)
        return self.region.deviation(form, self.arithmetic, self.two_sided)

    def _enter(self, value: int, form: LinearForms) -> Deviation:
        """Concretises a form on the only entrance: how far it deviates in the region.

        The forms on the input are larger than those before it: they are made and measured in slices of a cache's size.
        """
        if not self.path.charged_later(value):
            self._pay(form, self.path.cost(value))
        rows = form.rows()
        step = max(1, 2 * SLICE_BYTES // (rows.shape[1] * self.network.sizes[INPUT] * rows.element_size()))
        pulled = (transposed(self.network, value, some)[0] for some in rows.split(step))
        if len(rows) < len(self.region.radius):
            return self._at_input(Rows(next(pulled), self.network.input_shape))
        return self.region.chunked_deviation(pulled, self.arithmetic, self.two_sided)

    def affine(self, value: int, form: LinearForms) -> tuple[LinearForms, ...]:
        node = self.network.node(value)
        assert isinstance(node.operation, Affine)
        self._note(form, node.operation.products)
        if not self.path.charged_later(value):
            self._pay(form, self.path.cost(value))
        return node.operation.pull(form, [self.network.shapes[source] for source in node.inputs])

    def activation(self, value: int, source: int, form: LinearForms) -> LinearForms | None:
        pulled = self._through(value, source, form)
        if pulled is None or source not in self.duals.constraints or source in self.constrained:
            return pulled
        self.constrained.add(source)
        return self._with_constraints(source, pulled)

    def _through(self, value: int, source: int, form: LinearForms) -> LinearForms | None:
        """A form on the value of an activation, as a form on its source."""
        self._note(form)
        self.met[value] = form
        lines = self.path.lines(value)
        own = value in self.duals.slopes and not self.network.activations[value].rectifier
        if value in self.path.products and not own:
            self._gain_by_planes(value, form)
        if not (lines.parallel or self.path.upper):
            return self._between(value, lines, form)
        self._pay(form, self.path.cost(value))
        if self.path.relaxer.flat:
            return None
        if own:
            return self._with_own_lines(value, source, form)
        if self.path.upper:
            return self._with_duals(value, source, lines, form)
        return form.times(lines.slope_above)

    def join(self, value: int, one: LinearForms, other: LinearForms) -> LinearForms:
        total = one.plus(other)
        if self.arithmetic.rigorous and not self.path.charges_join(value):
            self.lose(total, self.path.max_deviation(value), 1)
        return total

    def _between(self, value: int, lines: Relaxation, form: LinearForms) -> LinearForms:
        """Pulls back by the lower line where a coefficient is positive, by the upper one where it is negative.

        References lie on the lower lines: what the upper ones are above them is paid by negative coefficients.
        """
        paid = form.dot_by_sign(*self.path.costs_by_sign(value))
        total = self.slack + paid
        if self.arithmetic.rigorous:
            total = (total + self.arithmetic.gamma(4) * (self.slack + paid.abs()) + TINY).clamp(min=0)
        self.slack = total
        return form.times_by_sign(lines.slope_below, lines.slope_above - lines.slope_below)

    def _with_duals(self, value: int, source: int, lines: Relaxation, form: LinearForms) -> LinearForms:
        """Pulls back with lower lines, and multipliers of known signs, of each form's own.

        References lie on the upper lines: what others are below them is paid by the coefficients that take those.
        """
        bounds, signs = self.path.bounds[source], self.duals.signs.get(value)
        before, after = self.path.reference(source), self.path.reference(value)
        if value in self.duals.slopes:
            form, slopes = form.aligned(self.duals.slopes[value])
            rounded, own = self.arithmetic.slopes, self._dual_lines(value, source, form)
        else:
            slopes, fall = form.local(lines.slope_below), -after if lines.low is None else lines.low - after
            rounded, own = None, DualLines.of(form, None, lines.slope_above, before, fall)
        if signs is not None:
            _, known_signs = form.aligned(signs)
            own = own.split(known_signs)
            split, active = (known_signs != 0).to(before.dtype), (known_signs > 0).to(before.dtype)
            by_sign = form.mapped(lambda numbers: numbers * split), form.mapped(lambda numbers: numbers * active)
            self.gather(by_sign[1].dot(before) - by_sign[0].dot(after))
        coefficients, gain = pull_through(form.coefficients, slopes, own, rounded)
        self.gather(gain)
        pulled = form.replaced(coefficients)
        if value in self.duals.multipliers:
            taken = Rows(_allowed(self.duals.multipliers[value], bounds, signs), form.shape)
            self.gather(-taken.dot(before))
            pulled = Rows(pulled.rows() - taken.coefficients, form.shape)
        if self.arithmetic.rigorous:
            # TINY is for what underflows before it is multiplied with a coefficient.
            size = self.path.steepest(value) * before.abs() + after.abs() + TINY
            size = size if lines.low is None else size + lines.low.abs()
            self.lose(form, size, 2 * form.terms + 4)
            if value in self.duals.multipliers:
                self.lose(taken, before.abs(), taken.terms + 2)
                self.lose(pulled, self.path.max_deviation(source), 1)
        return pulled

    def _dual_lines(self, value: int, source: int, form: LinearForms) -> DualLines:
        """The lines of a ReLU whose slopes forms choose: kept ones, if there are any."""
        kept = {} if self.duals.lines is None else self.duals.lines
        if value not in kept:
            unstable, above = self.path.bounds[source].unstable, self.path.lines(value).slope_above
            kept[value] = DualLines.of(form, unstable, above, self.path.reference(source), -self.path.reference(value))
        return kept[value]

    def _with_own_lines(self, value: int, source: int, form: LinearForms) -> LinearForms:
        """Pulls back by one line around each neuron of each form's own: below where a coefficient is positive, above
        where it is negative. What the line's height at the reference is from the value's reference is paid."""
        activation, (lower, upper) = self.network.activations[value], self.path.bounds[source]
        form, shares = form.aligned(self.duals.slopes[value])
        flattest, steepest = (self.arithmetic.any_slopes(side) for side in activation.derivatives(lower, upper))
        slopes = form.local(flattest) + self.arithmetic.shares(shares) * form.local(steepest - flattest)
        ends = form.local(lower), form.local(upper)
        least = activation.least(slopes, *ends, self.arithmetic)
        offsets = torch.where(
            form.coefficients > 0, 0 if least is None else least, activation.largest(slopes, *ends, self.arithmetic)
        )
        if value in self.path.minuends:
            self.minus_lines[self.path.minuends[value]] = slopes, offsets
        elif value in self.path.products:
            self._gain_by_own_planes(value, form, slopes, offsets)
        before, after = self.path.reference(source), self.path.reference(value)
        heights = slopes * form.local(before) + offsets - form.local(after)
        everywhere = torch.ones_like(before)
        self.gather(form.mapped(lambda numbers: numbers * heights).dot(everywhere))
        if self.arithmetic.rigorous:
            moved = before.abs() + self.path.max_deviation(source)
            sizes = slopes.abs() * form.local(moved) + offsets.abs() + form.local(after.abs())
            self.lose(form.mapped(lambda numbers: numbers * sizes), everywhere, 2 * form.terms + 12)
        return form.mapped(lambda numbers: numbers * slopes)

    def _gain_by_planes(self, value: int, form: LinearForms) -> None:
        """Adds what planes around products gain over the lines of both squares; form: on the first one.

        The form on the other square has the same coefficients, negated: nothing but the difference leads to either.
        """
        assert value not in self.minus_lines  # both squares have lines of the path's, or both have the form's own
        found = self.path.product_gains(value)
        if found is not None:
            above, below = map(form.local, found)
            self._gain(value, form, torch.where(form.coefficients > 0, above, below))

    def _gain_by_own_planes(self, value: int, form: LinearForms, slopes: Tensor, offsets: Tensor) -> None:
        """The same with lines of each form's own: slopes and offsets around the first square."""
        factors = self.path.factors(value)
        if factors is not None and value in self.minus_lines:
            local = [factor.map(form.local) for factor in factors]
            lines = SquareLines(slopes, offsets, *self.minus_lines[value])
            self._gain(value, form, gains((local[0], local[1]), lines, form.coefficients > 0, self.arithmetic))

    def _gain(self, value: int, form: LinearForms, per_unit: Tensor) -> None:
        """Adds what every coefficient of a form on a value gains per unit, laid out like them."""
        everywhere = torch.ones_like(self.path.reference(value))
        gained = form.replaced(form.coefficients.abs() * per_unit).dot(everywhere)
        self.gather(self.arithmetic.down(gained, form.terms + 3))

    def _with_constraints(self, source: int, form: LinearForms) -> LinearForms:
        """Adds to a form on a pre-activation its multiples of `z - u` and `z - l`."""
        lower, upper = (side[:, None] for side in self.path.bounds[source])
        multipliers = self.duals.constraints[source]
        ends = torch.where(multipliers > 0, upper, lower)
        usable = ends.isfinite() & multipliers.isfinite()
        multipliers, ends = torch.where(usable, multipliers, 0), torch.where(usable, ends, 0)
        before = self.path.reference(source)
        self.gather((multipliers * (before[:, None] - ends)).sum(2))
        total = Rows(form.rows() + multipliers, form.shape)
        if self.arithmetic.rigorous:
            sizes = Rows(multipliers.abs() * (before.abs()[:, None] + ends.abs()), form.shape)
            self.lose(sizes, torch.ones_like(before), sizes.terms + 6)
            self.lose(total, self.path.max_deviation(source), 1)
        return total

    def gather(self, amount: Tensor) -> None:
        """Adds an amount to the constant, and the sum's own rounding to the slack."""
        self.constant = self.constant + amount
        if self.arithmetic.rigorous:
            rounding = self.arithmetic.gamma(2) * (self.constant.abs() + amount.abs())
            self.slack = self.arithmetic.above(self.slack + rounding, 4)

    def lose(self, form: LinearForms, magnitude: Tensor, terms: int) -> None:
        """Adds to the slack what `terms` roundings of a form's coefficients move, at values up to `magnitude`."""
        cost = self.arithmetic.above(form.absolute_dot(magnitude), form.terms + 2) * self.arithmetic.gamma(terms)
        self.slack = self.arithmetic.above(self.slack + cost, 4)

    def _pay(self, form: LinearForms, cost: Tensor | None) -> None:
        """Adds to the slack the cost of each absolute coefficient."""
        if cost is not None:
            paid = self.arithmetic.above(form.absolute_dot(cost), form.terms + 2)
            self.slack = self.arithmetic.above(self.slack + paid, 1)

    def _note(self, form: LinearForms, products: float = 1.0) -> None:
        """Keeps the bytes of the largest forms met."""
        size = form.coefficients.numel() * form.coefficients.element_size()
        self.largest = max(self.largest, int(size * products))


def _allowed(multipliers: Tensor, bounds: Interval, signs: Tensor | None = None) -> Tensor:
    """Only the sound multipliers: positive ones of active neurons, negative ones of inactive neurons; 0 elsewhere."""
    positive, negative = (bounds.lower >= 0)[:, None], (bounds.upper <= 0)[:, None]
    if signs is not None:
        positive, negative = positive | (signs > 0), negative | (signs < 0)
    return multipliers.clamp(min=0) * positive + multipliers.clamp(max=0) * (negative & ~positive)
