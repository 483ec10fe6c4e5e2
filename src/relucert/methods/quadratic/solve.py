"""Certificates of all rows of a property in one region, from the cheapest to the tightest.

1. One composed certificate for all rows, with slopes as CROWN would choose them, and the best factor of its weights.
2. Rows that are left climb on slopes, centres and factors.
3. Rows that are still left climb with weights of their own.

The results are numbers, of which `proof` makes bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.bounding.adam import Adam
from relucert.common.progress import Progress, Report, silent
from relucert.methods.quadratic.ascent import AGAIN, CHECKED, COOLED, DECAY, Climb, Layout
from relucert.methods.quadratic.composed import Composed, compose
from relucert.methods.quadratic.dual import DualPoint, Weights, bound, pull
from relucert.methods.quadratic.joint import PowerIteration
from relucert.methods.quadratic.memory import Memory
from relucert.methods.quadratic.scene import Scene

MOST_JOINT = 6000  # unstable neurons of a joint certificate, whose matrix has one row for each
FACTORS = torch.logspace(-6, 4, 25)  # of the composed weights, that are tried


@dataclass(frozen=True)
class Effort:
    """The numbers of steps.

    Attributes:
        shared: With the composed certificate.
        own: With weights of each form's own.
        again: The same, from what was found at another radius.
    """

    shared: int = 80
    own: int = 200
    again: int = 100


EFFORT = Effort()


@dataclass(frozen=True, eq=False)
class Solution:
    """What bounds one row, in float64, (1, ...) each.

    Attributes:
        bound: The bound that these numbers are said to give.
        point: The dual point.
        weights: Weights of the row's own; None: those of the composed certificate, times `factor`.
        factor: Of the composed weights.
        memory: Where to start at another radius.
    """

    bound: float
    point: DualPoint
    weights: Weights | None = None
    factor: float = 1.0
    memory: Memory | None = None


class Solver:
    """All rows in one region.

    Args:
        scene: In float64.
        forms: The rows on the output, (rows, classes).
        heights: Their values at the reference, offsets included, (rows,).
        effort: How much to spend.
        report: Called with every few steps.
    """

    def __init__(
        self, scene: Scene, forms: Tensor, heights: Tensor, effort: Effort | None = None, report: Report = silent
    ) -> None:
        self.scene, self.quick = scene, scene.quick()
        self.forms, self.heights = forms.float(), heights.float()
        self.effort, self.report = effort or EFFORT, report
        self.pulled = pull(self.quick, self.forms, self._first_shares)
        self.solutions: list[Solution | None] = [None] * len(forms)
        self.bounds = torch.full((len(forms),), -torch.inf)

    def _first_shares(self, value: int, coefficients: Tensor) -> Tensor:
        """0 or 1 where the lower line of ReLU counts, else the mean slope of chords."""
        neurons = self.quick.neurons[value]
        active = (neurons.centre > 0).to(coefficients.dtype)
        return torch.where(coefficients > 0, active, neurons.slope)

    def start(self) -> Tensor:
        """The composed certificate with the best factor for each row; returns the bounds, (rows,)."""
        hardest = int((self.heights / self.forms.abs().amax(1)).argmin())
        weights = {
            value: torch.full((len(neurons),), float(self.pulled.coefficients[value][hardest].norm()))
            for value, neurons in self.quick.neurons.items()
        }
        self.counted = weights
        self.composed = compose(self.scene, self.quick, weights)
        self.base = self.composed.weights.map(Tensor.float)
        layout = Layout(self.quick, own=False)
        self.table = self.forms.new_zeros(len(self.forms), sum(layout.sizes))
        point = layout.point(self.table)
        for value, shares in point.shares.items():
            shares.copy_(self._first_shares(value, self.pulled.coefficients[value]))
        still = {value: torch.zeros_like(part) for value, part in self.pulled.links.items()}
        best = torch.full_like(self.bounds, -torch.inf)
        for factor in FACTORS:
            found = bound(
                self.quick, self.heights, self.base.times(factor.expand(len(best))), self.pulled, point, still
            ).bounds
            self.table[:, -1] = torch.where(found > best, factor.log(), self.table[:, -1])
            best = torch.maximum(best, found)
        self._keep(torch.arange(len(best)), layout, self.table, best, None)
        return self.bounds

    def recompose(self, surplus: float) -> Composed:
        """The composed certificate with more room above the estimates of its norms."""
        return compose(self.scene, self.quick, self.counted, surplus)

    def climb(self, rows: Tensor, enough: Tensor) -> Tensor:
        """Some rows, (count,), climb with the composed certificate until their bounds are enough, (rows,)."""
        layout = Layout(self.quick, own=False)
        climb = Climb(layout, self.forms[rows], self.heights[rows], self.base, self.table[rows].clone(), None)
        return self._ascend(climb, rows, enough, self.effort.shared)

    def climb_jointly(self, rows: Tensor, enough: Tensor, memories: Sequence[Memory | None]) -> Tensor:
        """Some rows climb with weights of their own, from where they were at another radius or are now."""
        layout = Layout(self.quick, own=True)
        table = self.forms.new_zeros(len(rows), sum(layout.sizes))
        shared = Layout(self.quick, own=False)
        weights = self.base.times(self.table[rows, -1].exp()).map(lambda part: part.clamp(min=1e-30).log())
        _copy(shared.point(self.table[rows]), weights, layout, table)
        power = PowerIteration(self.quick, len(rows), torch.Generator().manual_seed(0))
        known = [memories[row] for row in rows.tolist()]
        warm = all(memory is not None and memory.suits(self.radius) for memory in known)
        if warm:
            for place, memory in enumerate(known):
                assert memory is not None
                memory.recall(layout, table[place : place + 1], self.radius)
        climb = Climb(layout, self.forms[rows], self.heights[rows], self.base, table, power)
        climb.settled()
        if not warm:
            return self._ascend(climb, rows, enough, self.effort.own)
        self._ascend(climb, rows, enough, self.effort.again, AGAIN)
        left = rows[~(self.bounds[rows] > 0)]  # they may have been led astray
        return self.climb_jointly(left, enough, [None] * len(memories)) if len(left) else self.bounds

    @property
    def radius(self) -> float:
        return float(self.scene.region.radius[0])

    def _ascend(self, climb: Climb, rows: Tensor, enough: Tensor, steps: int, speed: float = 1.0) -> Tensor:
        adam, rates = Adam([climb.table], DECAY, 1e-12), speed * climb.layout.rates()
        for step in range(steps):
            if step % CHECKED == 0:
                self.report(Progress(step=step, steps=steps))
            before = climb.table.clone() if climb.power is None else None
            found = climb.step(adam, rates * (1 - (1 - COOLED) * step / steps))
            if before is not None:
                better = found > self.bounds[rows]
                if bool(better.any()):
                    self._keep(rows[better], climb.layout, before[better], found[better], None)
            if step % CHECKED == CHECKED - 1 and step + 1 < steps:
                done = found > enough[rows]
                if climb.power is not None and bool(done.any()):
                    settled, weights = climb.settled()
                    self._keep(rows, climb.layout, climb.table, settled, weights)
                    done = settled > enough[rows]
                if bool(done.any()):
                    left = (~done).nonzero().flatten()
                    climb, rows = climb.select(left), rows[left]
                    adam.select(left)
                if not len(rows):
                    return self.bounds
        settled, weights = climb.settled()
        self._keep(rows, climb.layout, climb.table, settled, weights if climb.power is not None else None)
        return self.bounds

    def _keep(self, rows: Tensor, layout: Layout, table: Tensor, found: Tensor, weights: Weights | None) -> None:
        """Keeps what bounds some rows, where it is better than what is known.

        weights: Own ones; None: those of the composed certificate.
        """
        for place, row in enumerate(rows.tolist()):
            if not float(found[place]) > float(self.bounds[row]):
                continue
            line = table[place : place + 1].clone()
            self.bounds[row] = found[place]
            point = layout.point(line).map(Tensor.double)
            if weights is None:
                self.table[row] = line[0]
                factor = float(line[0, -1].double().exp())
                self.solutions[row] = Solution(float(found[place]), point, factor=factor)
            else:
                own = weights.map(lambda part, place=place: part[place : place + 1].double())  # type: ignore[misc]
                memory = Memory.of(layout, line, self.radius)
                self.solutions[row] = Solution(float(found[place]), point, own, memory=memory)


def _copy(point: DualPoint, weights: Weights, layout: Layout, table: Tensor) -> None:
    """Writes a dual point and logarithms of weights into a table."""
    into, logarithms = layout.point(table), layout.logarithms(table)
    into.inputs.copy_(point.inputs)
    logarithms.inputs.copy_(weights.inputs.expand_as(logarithms.inputs))
    for target, given in (
        (into.shares, point.shares), (into.errors, point.errors),
        (logarithms.deviations, weights.deviations), (logarithms.errors, weights.errors),
    ):  # fmt: skip
        for value, part in target.items():
            part.copy_(given[value].expand_as(part))
