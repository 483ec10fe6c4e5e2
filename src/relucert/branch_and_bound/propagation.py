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

from relucert.bounding.interval import Interval
from relucert.branch_and_bound.dual_ascent import DualAscent, Nodes
from relucert.branch_and_bound.products import TINY
from relucert.branch_and_bound.stages import Maps

SWEEPS = 40  # at most
CHUNK_NUMBERS = 2**22  # of products that are compared at once
PULLED = 8  # constraints of one stage that are pulled back for a node
LEAST_CHANGE = 1e-3  # of an interval's width at the root
CLEAR = 1e-4  # of an interval's width at the root: how far it is from zero where the sign is clear
INPUTS = -1  # the number of the inputs, before those of the stages


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
    """The intervals of a batch of nodes: of the inputs, in units of the scale, and of every stage's pre-activations.

    Attributes:
        lower, upper: By the number of a stage, or `INPUTS`: (count, neurons).
        width: Likewise, how wide they are at the root, (neurons,).
        empty: In which nodes the constraints contradict each other, (count,).
        changed: Whether the present sweep narrowed an interval.
    """

    def __init__(self, dual_ascent: DualAscent, low: Tensor, high: Tensor, nodes: Nodes) -> None:
        self.dual_ascent, self.nodes = dual_ascent, nodes
        self.stages, count = self.dual_ascent.stages, len(nodes.rows)
        self.first = low, high
        self.lower, self.upper = {INPUTS: low.repeat(count, 1)}, {INPUTS: high.repeat(count, 1)}
        self.width = {INPUTS: (high - low).clamp(min=TINY)}
        for number, stage in enumerate(self.stages):
            active = len(stage.neurons) - stage.unstable_count
            signs = nodes.signs[:, stage.columns]
            lower, upper = stage.lower.repeat(count, 1), stage.upper.repeat(count, 1)
            lower, upper = torch.where(signs > 0, 0.0, lower), torch.where(signs < 0, 0.0, upper)
            self.lower[number] = torch.cat([lower, torch.zeros(count, active)], 1)
            self.upper[number] = torch.cat([upper, torch.full((count, active), torch.inf)], 1)
            self.width[number] = torch.cat([stage.upper - stage.lower, torch.full((active,), torch.inf)])
        self.row = self.dual_ascent.rows.pick(nodes.rows)
        self.row_matrix = None if self.dual_ascent.row_matrix is None else self.dual_ascent.row_matrix[nodes.rows]
        self.empty = torch.zeros(count, dtype=torch.bool)
        self.changed = False

    def run(self, most: int = SWEEPS) -> Implied:
        known = torch.zeros_like(self.nodes.signs)
        sweeps = torch.zeros(known.shape, dtype=torch.int16)
        for sweep in range(most):
            self.changed = False
            for number in range(len(self.stages)):
                self._tighten(number, *self._range(number))
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

    def _terms(self, maps: Maps, matrix: Tensor | None) -> list[tuple[int, Tensor, Tensor, Tensor]]:
        """What affine functions are sums of: numbers of stages or `INPUTS`, with matrices and ends of intervals."""
        terms = [] if matrix is None else [(INPUTS, matrix, self.lower[INPUTS], self.upper[INPUTS])]
        for number, weight in maps.weights.items():
            terms.append((number, weight, self.lower[number].clamp(min=0), self.upper[number].clamp(min=0)))
        return terms

    def _stage_terms(self, number: int) -> list[tuple[int, Tensor, Tensor, Tensor]]:
        return self._terms(self.stages[number].maps, self.dual_ascent.matrices[number])

    def _range(self, number: int) -> tuple[Tensor, Tensor]:
        """The values of a stage by the intervals of its arguments, (count, neurons) each."""
        lower = upper = self.stages[number].maps.bias.repeat(len(self.empty), 1)
        for _, weight, low, high in self._stage_terms(number):
            middle, half = (low + high) / 2 @ weight.T, (high - low) / 2 @ weight.abs().T
            lower, upper = lower + middle - half, upper + middle + half
        return lower, upper

    def _unit(self, number: int) -> Tensor:
        """The widths of intervals at the root, 1 where they are infinite: (neurons,)."""
        return self.width[number].where(self.width[number].isfinite(), 1)

    def _tighten(self, number: int, lower: Tensor, upper: Tensor) -> None:
        """Intersects intervals with others; empty ones end the propagation of a node."""
        unit, before = self._unit(number), Interval(self.lower[number], self.upper[number])
        narrower = (lower > before.lower + LEAST_CHANGE * unit) | (upper < before.upper - LEAST_CHANGE * unit)
        self.changed |= bool(narrower[~self.empty].any())
        lower, upper = before.meet(Interval(lower, upper))
        self.empty |= (lower > upper + CLEAR * unit).any(1)
        middle, crossed = (lower + upper) / 2, lower > upper
        self.lower[number], self.upper[number] = lower.where(~crossed, middle), upper.where(~crossed, middle)

    def _row(self) -> None:
        """The row is at most 0: each of its terms is at most what the least of the others leaves."""
        least, terms = self.row.bias.clone(), self._terms(self.row, self.row_matrix)
        for _, weight, low, high in terms:
            least += (torch.where(weight > 0, low, high) * weight).sum(1)
        slack = (-least).clamp(min=0)[:, None]
        for number, weight, low, high in terms:
            room = slack / weight.abs().clamp(min=TINY)
            top = torch.where(weight > 0, low + room, torch.inf)
            bottom = torch.where(weight < 0, high - room, -torch.inf)
            self._narrow(number, bottom, top)

    def _narrow(self, number: int, low: Tensor, high: Tensor) -> None:
        """Takes intervals of a stage's activations, or of the inputs."""
        if number != INPUTS:
            active = torch.arange(low.shape[1]) >= self.stages[number].unstable_count
            low = torch.where((low > 0) | active, low, -torch.inf)
            high = torch.where(active, high, high.clamp(min=0))
        self._tighten(number, low, high)

    def _slacks(self, number: int) -> tuple[Tensor, Tensor]:
        """How far the least values of a stage are below its upper bounds, the largest above its lower bounds.

        Infinite where the arguments imply the bound, so that it tells nothing about them. (count, neurons) each.
        """
        lower, upper = self._range(number)
        change = LEAST_CHANGE * self._unit(number)
        below = torch.where(self.upper[number] < upper - change, (self.upper[number] - lower).clamp(min=0), torch.inf)
        above = torch.where(self.lower[number] > lower + change, (upper - self.lower[number]).clamp(min=0), torch.inf)
        return below, above

    def _backward(self, number: int) -> None:
        """The bounds of a stage bound the arguments of its neurons."""
        rates = 1 / torch.cat(self._slacks(number), 1).clamp(min=TINY)
        for earlier, weight, low, high in self._stage_terms(number):
            plus, minus = weight.clamp(min=0), (-weight).clamp(min=0)
            rise = 1 / _largest_products(rates, torch.cat([plus, minus]))
            fall = 1 / _largest_products(rates, torch.cat([minus, plus]))
            self._narrow(earlier, high - fall, low + rise)

    def _pulled(self, number: int) -> None:
        """Pulls constraints of a later stage, those with the least slack, back to the input."""
        width, low, high = self.width[number], self.lower[INPUTS][:, None], self.upper[INPUTS][:, None]
        relative = torch.cat(self._slacks(number), 1) / width.repeat(2)
        slack, chosen = relative.topk(min(PULLED, 2 * len(width)), largest=False)
        if not bool(slack.isfinite().any()):
            return
        used, neurons = slack.isfinite(), chosen % len(width)
        signs = torch.where(chosen < len(width), 1.0, -1.0)
        limits = torch.where(signs > 0, self.upper[number].gather(1, neurons), -self.lower[number].gather(1, neurons))
        constants, forms = self._pull(number, neurons, signs)
        least = constants + torch.where(forms > 0, forms * low, forms * high).sum(2)
        room = torch.where(used, limits - least, torch.inf).clamp(min=0)[..., None] / forms.abs().clamp(min=TINY)
        top = torch.where(forms > 0, low + room, torch.inf).amin(1)
        bottom = torch.where(forms < 0, high - room, -torch.inf).amax(1)
        self._tighten(INPUTS, bottom, top)

    def _pull(self, number: int, neurons: Tensor, signs: Tensor) -> tuple[Tensor, Tensor]:
        """Linear functions of the inputs below neurons of a stage times signs, (count, some) each.

        Returns constants, (count, some), and coefficients, (count, some, inputs).
        """
        chosen = torch.zeros(*neurons.shape, len(self.width[number]))
        forms = {number: chosen.scatter_(2, neurons[..., None], signs[..., None])}
        constants = torch.zeros(neurons.shape)
        at_input = torch.zeros(*neurons.shape, len(self.width[INPUTS]))
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

    def _unstable(self) -> list[Tensor]:
        """Lower and upper bounds of all unstable neurons, (count, unstable), and widths at the root, (unstable,)."""
        columns = [(number, slice(stage.unstable_count)) for number, stage in enumerate(self.stages)]
        tables = self.lower, self.upper, self.width
        return [torch.cat([table[number][..., some] for number, some in columns], -1) for table in tables]

    def _signs(self) -> Tensor:
        lower, upper, width = self._unstable()
        return (lower > CLEAR * width).to(torch.int8) - (upper < -CLEAR * width).to(torch.int8)

    def _nearly(self) -> Tensor:
        lower, upper, width = self._unstable()
        return (lower > -CLEAR * width) | (upper < CLEAR * width)

    def _influence(self) -> tuple[Tensor, Tensor]:
        """How much the inputs of each neuron weigh in constraints, those with little slack first, and in which sense.

        A constraint counts 2^(-slack) in units of its largest term (the rule of Jeroslow and Wang for clauses).
        """
        widths = self.upper[INPUTS] - self.lower[INPUTS]
        weights, pull = torch.zeros_like(widths), torch.zeros_like(widths)
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
            sizes = torch.zeros(1, widths.shape[1]) if matrix is None else matrix
            sizes = sizes[: stage.unstable_count].expand(stage.unstable_count, -1)
            sizes = sizes / sizes.abs().sum(1, keepdim=True).clamp(min=TINY)
            influences.append(weights @ sizes.abs().T + TINY)
            preferred.append(pull @ sizes.T)
        return torch.cat(influences, 1), torch.cat(preferred, 1)

    def _points(self) -> Tensor:
        """The middles of the intervals, or their ends where an interval has shrunk to an end of the region's own."""
        low, high, near = self.lower[INPUTS], self.upper[INPUTS], CLEAR * self.width[INPUTS]
        middle = torch.where(high < self.first[0] + near, self.first[0], (low + high) / 2)
        return torch.where(low > self.first[1] - near, self.first[1], middle)


def _largest_products(factors: Tensor, matrix: Tensor) -> Tensor:
    """The largest `factors[n, k] * matrix[k, j]` over k, none being negative: (count, columns)."""
    if not len(matrix):
        return torch.full((len(factors), matrix.shape[1]), TINY)
    step = max(1, CHUNK_NUMBERS // max(1, matrix.numel()))
    chunks = [(some[:, :, None] * matrix).amax(1) for some in factors.split(step)]
    return torch.cat(chunks).clamp(min=TINY)
