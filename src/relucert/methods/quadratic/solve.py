"""Certificates of all rows of a property in one region, from the cheapest to the tightest.

1. One composed certificate for all rows, with slopes as CROWN would choose them, and the best factor of its weights.
2. For rows that this does not prove, an ascent of the dual bound on slopes, centres and factors.
3. For rows that are still not proven, an ascent on weights of their own, too; or on those of one layered certificate,
   where the unstable neurons are too many for a matrix with one row for each.

The results are numbers, of which `proof` makes bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relucert.common.progress import Progress, Report, silent
from relucert.methods.quadratic.ascent import (
    AGAIN,
    CHECKED,
    CertificateAscent,
    VariableLayout,
    best_factors,
)
from relucert.methods.quadratic.composed import Composed, UniformPlan, compose
from relucert.methods.quadratic.dual import DualPoint, Weights, pull
from relucert.methods.quadratic.joint import PowerIteration
from relucert.methods.quadratic.layered import LayeredAscent, PerNeuronPlan
from relucert.methods.quadratic.linearised_network import LinearisedNetwork
from relucert.methods.quadratic.memory import Memory

STEPS = 80  # with weights that stay
STEPS_OWN, STEPS_AGAIN = 200, 100  # with weights that an ascent chooses, too: from nothing, from another radius
INFLATION = 1.0005  # of own weights, beyond what seems to make them feasible
MORE, WORTH = 3, 0.1  # further ascents at the most, while each raises a bound by that share of the row's value
FACTORS = torch.logspace(-5, 1, 25)  # of the composed weights: what the input costs, as a share of the form


@dataclass(frozen=True, eq=False)
class Joint:
    """A certificate with weights of every neuron's own, (1, ...) each, in float64, which seem to be feasible."""

    weights: Weights


@dataclass(frozen=True, eq=False)
class Solution:
    """A lower bound of one row, with the certificate and the dual point that give it.

    Attributes:
        bound: The bound that these numbers are said to give.
        point: The dual point, in float64, (1, ...) each.
        certificate: One of the row's own, or one that rows share.
        factor: Of the certificate's weights.
        memory: Where to start at another radius.
    """

    bound: float
    point: DualPoint
    certificate: Composed | Joint
    factor: float = 1.0
    memory: Memory | None = None


class CertificateSolver:
    """All rows in one region.

    Args:
        linearised: In float64.
        forms: The rows on the output, (rows, classes).
        heights: Their values at the reference, offsets included, (rows,).
        report: Called with every few steps.
    """

    def __init__(
        self, linearised: LinearisedNetwork, forms: Tensor, heights: Tensor, report: Report = silent
    ) -> None:  # fmt: skip
        self.linearised, self.quick = linearised, linearised.quick()
        self.forms, self.heights, self.report = forms.float(), heights.float(), report
        self.pulled = pull(self.quick, self.forms, self.quick.first_shares)
        self.solutions: list[Solution | None] = [None] * len(forms)
        self.bounds = torch.full((len(forms),), -torch.inf)

    def start(self) -> Tensor:
        """The composed certificate with the best factor for each row; returns the bounds, (rows,)."""
        hardest = int((self.heights / self.forms.abs().amax(1)).argmin())
        weights = {
            value: torch.full((len(neurons),), float(self.pulled.coefficients[value][hardest].norm()))
            for value, neurons in self.quick.neurons.items()
        }
        self.composed = compose(self.linearised, self.quick, UniformPlan(weights))
        self.base = self.composed.weights.map(Tensor.float)
        layout = VariableLayout(self.quick, own=False)
        self.table = layout.start(self.pulled)
        point, size = layout.point(self.table), self.heights.abs().mean()
        self.table[:, -1], best = best_factors(self.quick, self.heights, self.base, self.pulled, point, size, FACTORS)
        self._keep(torch.arange(len(best)), layout, self.table, best, self.composed)
        return self.bounds

    def ascend(self, rows: Tensor, enough: Tensor) -> None:
        """Ascent for some rows, (count,), with the composed certificate, until their bounds are enough, (rows,)."""
        self._ascend_with(self.composed, self.table[rows], rows, enough)

    def ascend_with_weights_of(self, donor: int, rows: Tensor, enough: Tensor) -> None:
        """Ascent for some rows with the weights of another row's certificate, if it is its own: one proof suffices."""
        solution = self.solutions[donor]
        if solution is None or solution.certificate is self.composed:
            return
        shared = solution.certificate
        if isinstance(shared, Joint):
            shared = Joint(shared.weights.inflated(torch.tensor([INFLATION], dtype=torch.float64)))
            self.solutions[donor] = replace(solution, certificate=shared)
        table = self.table[rows]
        table[:, -1] = math.log(solution.factor)
        self._ascend_with(shared, table, rows, enough)

    def ascend_layered(self, rows: Tensor, enough: Tensor) -> None:
        """Ascent for some rows with one layered certificate for all of them.

        An ascent that leaves the range of float32 ends with what is known.
        """
        layout, plan = VariableLayout(self.quick, own=False), PerNeuronPlan.of(self.quick, self.composed)
        ascent = LayeredAscent(layout, self.forms[rows], self.heights[rows], self.table[rows].clone(), plan)
        with suppress(torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            ascent.ascend(STEPS_OWN, self.report)
            layered = compose(self.linearised, self.quick, ascent.plan)
            self._ascend_with(layered, ascent.table, rows, enough, AGAIN)

    def _ascend_with(
        self, certificate: Composed | Joint, table: Tensor, rows: Tensor, enough: Tensor, speed: float = 1.0
    ) -> None:  # fmt: skip
        layout, base = VariableLayout(self.quick, own=False), certificate.weights.map(Tensor.float)
        ascent = CertificateAscent(layout, self.forms[rows], self.heights[rows], table, base, None)
        self._ascend(ascent, rows, enough, STEPS, speed, certificate)

    def ascend_jointly(self, rows: Tensor, enough: Tensor, memories: Sequence[Memory | None]) -> None:
        """Ascent for some rows with weights of their own, from what was found at another radius or is known here.

        An ascent that leaves the range of float32 ends with what is known.
        """
        row_memories = [memories[row] for row in rows]
        with suppress(torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            if all(memory is not None and memory.suits(self.radius) for memory in row_memories):
                self._ascend(self.own_ascent(rows, row_memories, warm=True), rows, enough, STEPS_AGAIN, AGAIN)
                rows = rows[~(self.bounds[rows] > 0)]  # they may have been led astray
                if not len(rows):
                    return
            ascent = self.own_ascent(rows, [self._best_memory()] * len(rows), warm=False)
            self._ascend(ascent, rows, enough, STEPS_OWN)
            self._continue_ascents(rows, enough)

    def own_ascent(self, rows: Tensor, memories: Sequence[Memory | None], warm: bool) -> CertificateAscent:
        """The start of an ascent with weights of their own; warm: whether memories are of the same rows."""
        layout, weights = VariableLayout(self.quick, own=True), self.base.times(self.table[rows, -1].exp())
        table = torch.cat([self.table[rows, :-1], layout.weight_columns(weights)], 1)
        for position, memory in enumerate(memories):
            if memory is not None:
                memory.recall(layout, table[position : position + 1], self.radius, own=warm)
        power = PowerIteration(self.quick, len(rows))
        ascent = CertificateAscent(layout, self.forms[rows], self.heights[rows], table, self.base, power)
        ascent.settled()
        return ascent

    def _continue_ascents(self, rows: Tensor, enough: Tensor) -> None:
        """Further ascents for rows that are not positive, for as long as these raise their bounds by much."""
        for _ in range(MORE):
            solutions = [self.solutions[row] for row in rows]
            memories = [None if solution is None else solution.memory for solution in solutions]
            remaining = [
                position for position, memory in enumerate(memories) if memory and not self.bounds[rows[position]] > 0
            ]
            if not remaining:
                return
            rows, before = rows[remaining], self.bounds[rows[remaining]].clone()
            ascent = self.own_ascent(rows, [memories[position] for position in remaining], warm=True)
            self._ascend(ascent, rows, enough, STEPS_OWN, AGAIN)
            rows = rows[self.bounds[rows] - before > WORTH * self.heights[rows].abs()]

    def _best_memory(self) -> Memory | None:
        """What the row with the highest bound found at this radius, where it has weights of its own."""
        candidates = [(solution.bound, solution.memory) for solution in self.solutions if solution and solution.memory]
        return max(candidates, key=lambda pair: pair[0])[1] if candidates else None

    @property
    def radius(self) -> float:
        return float(self.linearised.region.radius[0])

    def _ascend(
        self, ascent: CertificateAscent, rows: Tensor, enough: Tensor, steps: int, speed: float = 1.0,
        shared: Composed | Joint | None = None,
    ) -> None:  # fmt: skip
        """Ascends until all bounds are enough; shared: whose weights factors multiply, None: weights are own ones."""
        self.report(Progress(step=0, steps=steps))
        for step, (before, evaluated) in enumerate(ascent.steps(steps, speed)):
            bounds = evaluated.bounds
            if shared is not None:
                self._keep(rows, ascent.layout, before, bounds, shared)
            if (step + 1) % CHECKED == 0:
                self.report(Progress(step=step + 1, steps=steps))
            every = CHECKED if shared is not None else 3 * CHECKED  # own weights have to settle for a look
            if step % every == every - 1 and step + 1 < steps:
                done = bounds > enough[rows]
                if shared is None and bool(done.any()):
                    bounds = self._settle(ascent, rows)
                    done = bounds > enough[rows]
                if bool(done.any()):
                    remaining = (~done).nonzero().flatten()
                    ascent.keep(remaining)
                    rows = rows[remaining]
                if not len(rows):
                    return
        if shared is None:
            self._settle(ascent, rows)

    def _settle(self, ascent: CertificateAscent, rows: Tensor) -> Tensor:
        """Keeps where rows with weights of their own are, once these are known to be feasible; returns the bounds."""
        bounds, weights = ascent.settled()
        self._keep(rows, ascent.layout, ascent.table, bounds, weights)
        return bounds

    def _keep(
        self, rows: Tensor, layout: VariableLayout, table: Tensor, bounds: Tensor, source: Composed | Joint | Weights
    ) -> None:
        """Keeps what bounds some rows, where it is better than what is known.

        source: A certificate that they share, or weights of their own, (rows, ...) each.
        """
        for position in (bounds > self.bounds[rows]).nonzero().flatten().tolist():
            row, line = int(rows[position]), table[position : position + 1].clone()
            self.bounds[row] = bounds[position]
            point = layout.point(line).map(Tensor.double)
            if isinstance(source, Weights):
                own = source.select(slice(position, position + 1)).map(Tensor.double)
                memory = Memory.of(layout, line, self.radius)
                self.solutions[row] = Solution(float(bounds[position]), point, Joint(own), memory=memory)
                continue
            if source is self.composed:
                self.table[row] = line[0]
            factor = float(line[0, -1].double().exp())
            self.solutions[row] = Solution(float(bounds[position]), point, source, factor)
