"""The backward driver: linear forms on a value are pulled back to the input (the paper's own direction).

A form `A z` is replaced, ReLU after ReLU, by a smaller one: where a coefficient is positive the neuron's lower
line stands in for it, where it is negative the upper line. At the input the ball gives the minimum in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.bounding.forward import INPUT, Bounds
from relucert.bounding.relaxers import Interval, Relaxer, free_below
from relucert.network import Affine, Network, Node
from relucert.region import Ball
from relucert.rigor import SLICE_BYTES, Arithmetic

LOST = 2.0**-960  # gamma times it is above what underflow takes from one sum of a million products
ROW_BYTES = 2**26  # how large one chunk of forms may get while every neuron of a layer is bounded


Slopes = dict[int, Tensor]
"""For the values that ReLUs make, the slopes of the lower lines: (batch, forms, size), any numbers in [0, 1]."""
Multipliers = dict[int, Tensor]
"""For the values that ReLUs make, how many times the neurons before are taken off: (batch, forms, size)."""


def minimise(
    network: Network, ball: Ball, forms: Tensor, value: int, bounds: Bounds, relaxer: Relaxer, arithmetic: Arithmetic,
    slopes: Slopes | None = None, multipliers: Multipliers | None = None, met: dict[int, Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """Lower bounds of linear forms, (batch or 1, forms, size), on a value over the ball: (batch, forms).

    `bounds` holds every neuron before the value. Network, ball and forms are in the arithmetic's dtype. With `slopes`
    the lower lines of undecided neurons pass through the origin with slopes of each form's own. With `multipliers`
    that many times a neuron is taken off: what is known to be positive can only be missed, never gained.

    The result holds at every point of the ball at which the bounds do.
    """
    pull = _Pull(network, ball, bounds, relaxer, arithmetic, slopes or {}, multipliers or {}, met)
    return pull.run(forms, value)


def backward(network: Network, ball: Ball, relaxer: Relaxer, arithmetic: Arithmetic, wanted: tuple[int, ...]) -> Bounds:
    """Bounds of every wanted value and of every neuron before it: the paper's Algorithm 1, layer after layer."""
    bounds: Bounds = {}
    needed = network.ancestors(wanted)
    for value in sorted(set(network.rectified) & needed | set(wanted)):
        bounds[value] = enclose(network, ball, value, bounds, relaxer, arithmetic)
    return bounds


def enclose(
    network: Network, ball: Ball, value: int, bounds: Bounds, relaxer: Relaxer, arithmetic: Arithmetic
) -> Interval:
    """Bounds of all neurons of one value, from those of every neuron before it; they hold where those do."""
    size = network.sizes[value]
    step = max(1, ROW_BYTES // (16 * max(network.sizes) * len(ball.radius)))
    lower, upper = [], []
    for first in range(0, size, step):
        forms = ball.radius.new_zeros(1, min(step, size - first), size)
        forms[0].diagonal(first).fill_(1)
        lower.append(minimise(network, ball, forms, value, bounds, relaxer, arithmetic))
        upper.append(-minimise(network, ball, -forms, value, bounds, relaxer, arithmetic))
    return Interval(torch.cat(lower, 1), torch.cat(upper, 1))


@dataclass(eq=False)
class _Pull:
    """One pull-back. `constant - slack` is what the forms have gathered on the way, all (batch, forms)."""

    network: Network
    ball: Ball
    bounds: Bounds
    relaxer: Relaxer
    arithmetic: Arithmetic
    slopes: Slopes
    multipliers: Multipliers
    met: dict[int, Tensor] | None  # takes the forms on what ReLUs make, where they are wanted

    def run(self, forms: Tensor, value: int) -> Tensor:
        self.constant = forms.new_zeros(len(self.ball.radius), forms.shape[1])
        self.slack = torch.zeros_like(self.constant)
        self.reach = self._reaches(value) if self.arithmetic.rigorous else {}
        entrance = self._only_entrance(value)
        if value == INPUT:
            self._at_centre(forms)
        pending = {value: forms}
        for current in range(value, entrance, -1):
            if current not in pending:
                continue
            node, form = self.network.nodes[current - 1], pending.pop(current)
            if isinstance(node.operation, Affine):
                pulled = self._through_affine(current, node, form)
            else:
                pulled = [self._through_relu(current, node.inputs[0], form)]
            for source, part in zip(node.inputs, pulled, strict=True):
                if source in pending:
                    part = pending[source] + part
                    self._lose(part, self.reach.get(source), 1)
                pending[source] = part
        loss = self.slack
        for last, form in pending.items():  # what it is worth at the centre is in the constant, or will be
            fall = self._enter(last, form) if last != INPUT else self.ball.fall(form, self.arithmetic)
            loss = self.arithmetic.above(fall + self.slack, 1)
        return self.arithmetic.floor(self.constant - loss)

    def _only_entrance(self, value: int) -> int:
        """The one value that is made of the input, by an affine operation; the input itself where that is not so."""
        needed = self.network.ancestors((value,))
        entrances = [made for made, node in self.network.steps() if made in needed and INPUT in node.inputs]
        if len(entrances) != 1 or not isinstance(self.network.nodes[entrances[0] - 1].operation, Affine):
            return INPUT
        return entrances[0] if self.network.nodes[entrances[0] - 1].inputs == (INPUT,) else INPUT

    def _enter(self, value: int, form: Tensor) -> Tensor:
        """Takes a form on the only entrance at the centre, and returns how far it falls in the ball.

        The forms on the input are larger than those before it: they are made and measured in slices of a cache's size.
        """
        operation, shape = self.network.nodes[value - 1].operation, self.network.shapes[value]
        assert isinstance(operation, Affine)
        at_points = operation.apply(self.ball.points.unflatten(-1, self.network.input_shape)).flatten(1)
        self._gather((form @ self.ball.shared(at_points)[..., None]).squeeze(-1))
        self._lose(form, self.reach.get(-value), 3 * (max(operation.terms, form.shape[-1]) + 2))
        if self.ball.box is not None:
            (rows,) = operation.transpose(form.unflatten(-1, shape))
            return self.ball.fall(rows.reshape(*rows.shape[:2], -1), self.arithmetic)
        step = max(1, SLICE_BYTES // (form.shape[1] * self.network.sizes[INPUT] * form.element_size()))
        lengths = []
        for part in form.split(step):
            (rows,) = operation.transpose(part.unflatten(-1, shape))
            lengths.append(self.ball.norm.dual_length(rows.reshape(*rows.shape[:2], -1), -1))
        return self.ball.gain_of(torch.cat(lengths), self.network.sizes[INPUT], self.arithmetic)

    def _through_affine(self, value: int, node: Node, form: Tensor) -> list[Tensor]:
        operation, shape = node.operation, self.network.shapes[value]
        assert isinstance(operation, Affine)
        if operation.constant is not None:
            self._gather(form @ operation.constant.expand(shape).flatten())
        self._lose(form, self.reach.get(-value), max(operation.terms, form.shape[-1]) + 2)
        parts = operation.transpose(form.unflatten(-1, shape))
        pulled = [part.reshape(*part.shape[:2], -1) for part in parts]
        for source, part in zip(node.inputs, pulled, strict=True):
            if source == INPUT:
                self._at_centre(part)
        return pulled

    def _at_centre(self, form: Tensor) -> None:
        """Takes a form on the input at the ball's centre."""
        self._gather((form @ self.ball.centre[..., None]).squeeze(-1))
        self._lose(form, self.ball.centre.abs(), form.shape[-1] + 2)

    def _through_relu(self, value: int, source: int, form: Tensor) -> Tensor:
        lines = self.relaxer(self.bounds[source], self.arithmetic)
        if self.met is not None:
            self.met[value] = form
        if value in self.slopes:
            lines = free_below(lines, self.bounds[source], self.slopes[value])
        below, above = (form.clamp(min=0), lines.low), (form.clamp(max=0), lines.high)
        for part, offset in (below, above):
            if offset is not None:
                self._gather((part @ offset[..., None]).squeeze(-1))
                self._lose(part, offset.abs(), form.shape[-1] + 2)
        if lines.parallel:
            pulled = form * lines.slope_below[:, None]
        else:
            slope = lines.slope_below if lines.slope_below.ndim == 3 else lines.slope_below[:, None]
            pulled = below[0] * slope + above[0] * lines.slope_above[:, None]
        self._lose(pulled, self.reach.get(source), 2)
        if value in self.multipliers:
            pulled = pulled - allowed(self.multipliers[value], self.bounds[source])
            self._lose(pulled, self.reach.get(source), 1)
        if source == INPUT:
            self._at_centre(pulled)
        return pulled

    def _gather(self, amount: Tensor) -> None:
        """Adds to the constant; the sum's own rounding goes to the slack."""
        self.constant = self.constant + amount
        if self.arithmetic.rigorous:
            self.slack = self.slack + self.arithmetic.gamma(1) * self.constant.abs()

    def _lose(self, form: Tensor, reach: Tensor | None, terms: int) -> None:
        """Takes off what `terms` roundings of a form's coefficients may cost where the value is within `reach`.

        A coefficient that underflows to nothing is charged, too: it may meet a value of any size.
        """
        if self.arithmetic.rigorous:
            assert reach is not None
            cost = ((form.abs() + LOST) @ reach[..., None]).squeeze(-1)
            cost = self.arithmetic.above(cost, form.shape[-1]) * self.arithmetic.gamma(terms)
            self.slack = self.arithmetic.above(self.slack + cost, 4)

    def _reaches(self, last: int) -> dict[int, Tensor]:
        """Upper bounds of every value's size over the ball, (batch, size).

        Under the value's negative index: the same for an affine value before the neurons' bounds sharpen it, the
        sum of the absolute values of all terms that make it.
        """
        above = self.arithmetic.above
        reach = {INPUT: above(self.ball.centre.abs() + self.ball.radius[:, None], 1)}
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
