"""Interval propagation through the stages for a batch of nodes, forward and backward, to a fixed point.

A point at which a row is not positive satisfies constraints: the row is at most 0, and every split neuron has its sign.
Each is an affine function of inputs and activations, so one that is nearly exhausted bounds each of its arguments, as
a clause with one literal left does (unit propagation, bound tightening). Constraints of later stages are also pulled
back to the input with the relaxations of the node's own intervals, where arguments that depend on each other meet.

All of it is computed in float32 and proves nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relucert.branch_and_bound.dual_ascent import DualAscent, Nodes
from relucert.branch_and_bound.products import TINY

SWEEPS = 40  # at most
CHUNK_NUMBERS = 2**22  # of products that are compared at once
PULLED = 8  # constraints of one stage that are pulled back for a node
LEAST_CHANGE = 1e-3  # of an interval's width at the root
CLEAR = 1e-4  # of an interval's width at the root: how far it is from zero where the sign is clear


class Implied(NamedTuple):
    """What propagation finds about nodes.

    Attributes:
        signs: 1 or -1 where a neuron that is not split seems to have that sign, else 0: (count, unstable), int8.
        sweeps: The sweep in which each was found, (count, unstable).
        nearly: Which neurons have one sign up to rounding, so that a split would gain nothing: (count, unstable).
        influence: How much a split of each neuron tightens constraints that are nearly exhausted, (count, unstable).
        preferred: The sign of each neuron that leaves constraints more slack: positive or negative, (count, unstable).
        empty: In which nodes the constraints contradict each other, (count,).
        points: The middles of the inputs' intervals, in units of the scale, (count, inputs).
    """

    signs: Tensor
    sweeps: Tensor
    nearly: Tensor
    influence: Tensor
    preferred: Tensor
    empty: Tensor
    points: Tensor

    def choice(self, scores: Tensor) -> Tensor:
        """The neuron to split in each node, (count,): the one with the most influence, of those that are not split.

        scores: By the ascent, 0 where a neuron is split; they decide where every sign is nearly known.
        """
        unsettled = torch.where((scores > 0) & ~self.nearly, self.influence, 0.0)
        return torch.where(unsettled.any(1, keepdim=True), unsettled, scores).argmax(1)

    def pick(self, indices: Tensor) -> Implied:
        return Implied(*(table[indices] for table in self))


class Intervals:
    """The intervals of a batch of nodes: of inputs, in units of the scale, and of every stage's pre-activations."""

    def __init__(self, dual_ascent: DualAscent, low: Tensor, high: Tensor, nodes: Nodes) -> None:
        self.dual_ascent, self.nodes = dual_ascent, nodes
        self.stages, count = self.dual_ascent.stages, len(nodes.rows)
        self.low, self.high = low.repeat(count, 1), high.repeat(count, 1)
        self.first = low, high
        self.span = (high - low).clamp(min=TINY)
        self.lower: list[Tensor] = []
        self.upper: list[Tensor] = []
        self.width: list[Tensor] = []
        for stage in self.stages:
            active = len(stage.neurons) - stage.unstable_count
            signs = nodes.signs[:, stage.columns]
            lower, upper = stage.lower.repeat(count, 1), stage.upper.repeat(count, 1)
            lower, upper = torch.where(signs > 0, 0.0, lower), torch.where(signs < 0, 0.0, upper)
            self.lower.append(torch.cat([lower, torch.zeros(count, active)], 1))
            self.upper.append(torch.cat([upper, torch.full((count, active), torch.inf)], 1))
            self.width.append(torch.cat([stage.upper - stage.lower, torch.full((active,), torch.inf)]))
        self.row = self.dual_ascent.rows.pick(nodes.rows)
        self.row_matrix = None if self.dual_ascent.row_matrix is None else self.dual_ascent.row_matrix[nodes.rows]
        self.empty = torch.zeros(count, dtype=torch.bool)
        self.changed = False

    def run(self, most: int = SWEEPS) -> Implied:
        known = torch.zeros_like(self.nodes.signs)
        sweeps = torch.zeros(known.shape, dtype=torch.int16)
        for sweep in range(most):
            self.changed = False
            self._forward()
            self._row()
            for number in reversed(range(len(self.stages))):
                self._backward(number)
            for number in range(1, len(self.stages)):
                self._pulled(number)
            signs = self._signs().masked_fill(self.empty[:, None], 0)
            sweeps[(known == 0) & (signs != 0)] = sweep
            known = torch.where(known == 0, signs, known)
            if not self.changed or bool(self.empty.all()):
                break
        known = known.masked_fill(self.nodes.signs != 0, 0)
        return Implied(known, sweeps, self._nearly(), *self._influence(), self.empty, self._points())

    def _activations(self, number: int) -> tuple[Tensor, Tensor]:
        return self.lower[number].clamp(min=0), self.upper[number].clamp(min=0)

    def _range(self, number: int) -> tuple[Tensor, Tensor]:
        """The values of a stage by the intervals of its arguments, (count, neurons) each."""
        maps, matrix = self.stages[number].maps, self.dual_ascent.matrices[number]
        lower, upper = maps.bias.repeat(len(self.low), 1), maps.bias.repeat(len(self.low), 1)
        sources = [] if matrix is None else [(matrix, self.low, self.high)]
        sources += [(weight, *self._activations(earlier)) for earlier, weight in maps.weights.items()]
        for weight, low, high in sources:
            middle, half = (low + high) / 2 @ weight.T, (high - low) / 2 @ weight.abs().T
            lower, upper = lower + middle - half, upper + middle + half
        return lower, upper

    def _forward(self) -> None:
        for number in range(len(self.stages)):
            lower, upper = self._range(number)
            self._tighten(number, lower, upper)

    def _tighten(self, number: int, lower: Tensor, upper: Tensor) -> None:
        """Intersects the intervals of a stage with others; empty ones end the propagation of a node."""
        width = self.width[number].where(self.width[number].isfinite(), 1)
        self.changed |= bool(
            ((lower > self.lower[number] + LEAST_CHANGE * width) | (upper < self.upper[number] - LEAST_CHANGE * width))[
                ~self.empty
            ].any()
        )
        lower, upper = torch.maximum(self.lower[number], lower), torch.minimum(self.upper[number], upper)
        self.empty |= (lower > upper + CLEAR * width).any(1)
        middle = (lower + upper) / 2
        crossed = lower > upper
        self.lower[number] = torch.where(crossed, middle, lower)
        self.upper[number] = torch.where(crossed, middle, upper)

    def _clip(self, low: Tensor, high: Tensor) -> None:
        """Intersects the intervals of the inputs with others."""
        change = LEAST_CHANGE * self.span
        self.changed |= bool(((low > self.low + change) | (high < self.high - change))[~self.empty].any())
        low, high = torch.maximum(self.low, low), torch.minimum(self.high, high)
        self.empty |= (low > high + CLEAR * self.span).any(1)
        middle, crossed = (low + high) / 2, low > high
        self.low, self.high = torch.where(crossed, middle, low), torch.where(crossed, middle, high)

    def _row(self) -> None:
        """The row is at most 0: each of its terms is at most what the least of the others leaves."""
        least = self.row.bias.clone()
        terms = []
        if self.row_matrix is not None:
            terms.append((-1, self.row_matrix, self.low, self.high))
        terms += [(number, weight, *self._activations(number)) for number, weight in self.row.weights.items()]
        for _, weight, low, high in terms:
            least += (torch.where(weight > 0, low, high) * weight).sum(1)
        slack = (-least).clamp(min=0)[:, None]
        for number, weight, low, high in terms:
            room = slack / weight.abs().clamp(min=TINY)
            top = torch.where(weight > 0, low + room, torch.inf)
            bottom = torch.where(weight < 0, high - room, -torch.inf)
            self._narrow(number, bottom, top)

    def _narrow(self, number: int, low: Tensor, high: Tensor) -> None:
        """Takes intervals of a stage's activations, or with the number -1 of the inputs."""
        if number < 0:
            self._clip(low, high)
        else:
            active = torch.arange(low.shape[1]) >= self.stages[number].unstable_count
            bottom = torch.where((low > 0) | active, low, -torch.inf)
            self._tighten(number, bottom, torch.where(active, high, high.clamp(min=0)))

    def _slacks(self, number: int) -> tuple[Tensor, Tensor]:
        """How far the least values of a stage are below its upper bounds, the largest above its lower bounds.

        Infinite where the arguments imply the bound, so that it tells nothing about them. (count, neurons) each.
        """
        lower, upper = self._range(number)
        change = LEAST_CHANGE * self.width[number].where(self.width[number].isfinite(), 1)
        below = torch.where(self.upper[number] < upper - change, (self.upper[number] - lower).clamp(min=0), torch.inf)
        above = torch.where(self.lower[number] > lower + change, (upper - self.lower[number]).clamp(min=0), torch.inf)
        return below, above

    def _backward(self, number: int) -> None:
        """The bounds of a stage bound the arguments of its neurons."""
        below, above = self._slacks(number)
        maps, matrix = self.stages[number].maps, self.dual_ascent.matrices[number]
        sources = [(earlier, weight, *self._activations(earlier)) for earlier, weight in maps.weights.items()]
        sources += [] if matrix is None else [(-1, matrix, self.low, self.high)]
        for earlier, weight, low, high in sources:
            plus, minus = weight.clamp(min=0), (-weight).clamp(min=0)
            rates = 1 / torch.cat([below, above], 1).clamp(min=TINY)
            rise = 1 / _largest_products(rates, torch.cat([plus, minus]))
            fall = 1 / _largest_products(rates, torch.cat([minus, plus]))
            self._narrow(earlier, high - fall, low + rise)

    def _pulled(self, number: int) -> None:
        """Pulls constraints of a later stage, those with the least slack, back to the input."""
        below, above = self._slacks(number)
        width = self.width[number]
        slack, chosen = (torch.cat([below, above], 1) / torch.cat([width, width])).topk(
            min(PULLED, 2 * len(width)), largest=False
        )
        if not bool(slack.isfinite().any()):
            return
        used, neurons = slack.isfinite(), chosen % len(width)
        signs = torch.where(chosen < len(width), 1.0, -1.0)
        limits = torch.where(signs > 0, self.upper[number].gather(1, neurons), -self.lower[number].gather(1, neurons))
        constants, forms = self._pull(number, neurons, signs)
        least = constants + torch.where(forms > 0, forms * self.low[:, None], forms * self.high[:, None]).sum(2)
        room = torch.where(used, limits - least, torch.inf).clamp(min=0)[..., None] / forms.abs().clamp(min=TINY)
        top = torch.where(forms > 0, self.low[:, None] + room, torch.inf).amin(1)
        bottom = torch.where(forms < 0, self.high[:, None] - room, -torch.inf).amax(1)
        self._clip(bottom, top)

    def _pull(self, number: int, neurons: Tensor, signs: Tensor) -> tuple[Tensor, Tensor]:
        """Linear functions of the inputs below neurons of a stage times signs, (count, some) each.

        Returns constants, (count, some), and coefficients, (count, some, inputs).
        """
        chosen = torch.zeros(*neurons.shape, len(self.width[number]))
        forms = {number: chosen.scatter_(2, neurons[..., None], signs[..., None])}
        constants = torch.zeros(neurons.shape)
        at_input = torch.zeros(*neurons.shape, self.low.shape[1])
        for later in reversed(range(number + 1)):
            form = forms.pop(later, None)
            if form is None:
                continue
            if later < number:
                lower, upper = self.lower[later][:, None], self.upper[later][:, None]
                chord = (upper.clamp(min=0) / (upper - lower.clamp(max=0)).clamp(min=TINY)).clamp(max=1)
                chord = torch.where(upper.isinf(), 1.0, chord)
                adaptive = (upper > -lower).float()
                unstable = (lower < 0) & (upper > 0)
                tilt = torch.where(unstable, torch.where(form < 0, chord, adaptive), (lower >= 0).float())
                rise = torch.where(unstable & (form < 0), -chord * lower, 0.0)
                constants = constants + (form * rise).sum(2)
                form = form * tilt
            maps, matrix = self.stages[later].maps, self.dual_ascent.matrices[later]
            constants = constants + form @ maps.bias
            for earlier, weight in maps.weights.items():
                forms[earlier] = forms[earlier] + form @ weight if earlier in forms else form @ weight
            if matrix is not None:
                at_input = at_input + form @ matrix
        return constants, at_input

    def _unstable(self, tables: list[Tensor]) -> list[Tensor]:
        return [table[..., : stage.unstable_count] for table, stage in zip(tables, self.stages, strict=True)]

    def _signs(self) -> Tensor:
        lower, upper, width = (torch.cat(self._unstable(table), -1) for table in (self.lower, self.upper, self.width))
        return (lower > CLEAR * width).to(torch.int8) - (upper < -CLEAR * width).to(torch.int8)

    def _nearly(self) -> Tensor:
        lower, upper, width = (torch.cat(self._unstable(table), -1) for table in (self.lower, self.upper, self.width))
        return (lower > -CLEAR * width) | (upper < CLEAR * width)

    def _influence(self) -> tuple[Tensor, Tensor]:
        """How much the inputs of each neuron weigh in constraints, those with little slack first, and in which sense.

        A constraint counts 2^(-slack) in units of its largest term (the rule of Jeroslow and Wang for clauses).
        """
        widths, weights, pull = self.high - self.low, torch.zeros_like(self.low), torch.zeros_like(self.low)
        for number, matrix in enumerate(self.dual_ascent.matrices):
            if matrix is None:
                continue
            below, above = self._slacks(number)
            unit = _largest_products(widths, matrix.abs().T).clamp(min=TINY)
            falling, rising = torch.exp2(-below / unit) / unit, torch.exp2(-above / unit) / unit
            weights = weights + (falling + rising) @ matrix.abs() * widths
            pull = pull + (rising - falling) @ matrix * widths
        influences, preferred = [], []
        for stage, matrix in zip(self.stages, self.dual_ascent.matrices, strict=True):
            sizes = torch.zeros(1, self.low.shape[1]) if matrix is None else matrix
            sizes = sizes[: stage.unstable_count].expand(stage.unstable_count, -1)
            sizes = sizes / sizes.abs().sum(1, keepdim=True).clamp(min=TINY)
            influences.append(weights @ sizes.abs().T + TINY)
            preferred.append(pull @ sizes.T)
        return torch.cat(influences, 1), torch.cat(preferred, 1)

    def _points(self) -> Tensor:
        """The middles of the intervals, or their ends where an interval has shrunk to an end of the region's own."""
        middle, near = (self.low + self.high) / 2, CLEAR * self.span
        middle = torch.where(self.high < self.first[0] + near, self.first[0], middle)
        return torch.where(self.low > self.first[1] - near, self.first[1], middle)


def _largest_products(factors: Tensor, matrix: Tensor) -> Tensor:
    """The largest `factors[n, k] * matrix[k, j]` over k, none being negative: (count, columns)."""
    if not len(matrix):
        return torch.full((len(factors), matrix.shape[1]), TINY)
    step = max(1, CHUNK_NUMBERS // max(1, matrix.numel()))
    chunks = [(some[:, :, None] * matrix).amax(1) for some in factors.split(step)]
    return torch.cat(chunks).clamp(min=TINY)
