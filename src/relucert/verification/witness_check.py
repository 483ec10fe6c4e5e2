"""The re-check of violations, outside any search: what does not pass it was never found.

A point passes if it lies in the stated box exactly, if the network that was asked about violates the property there in
rigorous or rational arithmetic, and if it also does when its own runtime evaluates it in its own precision. For a
network that is evaluated in floating point the last one alone counts, in that precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from relucert.arithmetic.box import Box
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.point import scores_at
from relucert.common.numbers import Float, float_above, float_below
from relucert.inputs.loading.runtime import RoundedEvaluation, Runtime
from relucert.network import Network
from relucert.verification.rational import outputs_at
from relucert.verification.specification.violations import MET_EVERYWHERE, Constraint, Violation

DTYPES: dict[torch.dtype, type[Float]] = {
    torch.float16: np.float16, torch.bfloat16: np.float32, torch.float32: np.float32, torch.float64: np.float64,
}  # fmt: skip
NEAR = 1e-5  # share of a constraint's size by which float64 may miss it where exact arithmetic is asked
MOST_EXACT = 200  # evaluations in rational arithmetic


@dataclass(frozen=True, eq=False)
class Witness:
    """An input that violates a property.

    Attributes:
        point: Its coordinates, exactly.
        outputs: What the runtime gives there.
        arithmetic: How the violation was proven: "rigorous" or "rational"; None for a network that is evaluated in
            floating point, whose runtime shows it.
    """

    point: tuple[Fraction, ...]
    outputs: Tensor
    arithmetic: str | None


class WitnessCheck:
    """Checks points that may violate a property, for one network."""

    def __init__(self, network: Network, replay: Runtime) -> None:
        self.exact = network.cast(torch.float64)
        self.rounds = network.inference.rounds
        self.evaluate = RoundedEvaluation(network) if self.rounds else self.exact
        self.original, self.replay = network, replay
        self.differing = 0  # violations in real arithmetic that the runtime does not show
        self._rational = 0

    def examine(self, points: Tensor, stated: StatedBox) -> Witness | None:
        """The first of some points (count, size) that passes, after rounding into the box."""
        inputs = stated.represent(points)
        if self.rounds and not stated.representable:  # no input of that precision is in the box
            return None
        for index in stated.promising(inputs, self.evaluate(inputs.double()).double()).tolist():
            witness = self._check(inputs[index], stated)
            if witness is not None:
                return witness
        return None

    def _check(self, point: Tensor, stated: StatedBox) -> Witness | None:
        exact_point = stated.coordinates(point)
        proven = None if self.rounds else self._proven(exact_point, stated)
        if proven is None and not self.rounds:
            return None
        replayed = self.replay.run(point)
        outputs = (
            [Fraction(number) for number in replayed.double().tolist()] if bool(replayed.isfinite().all()) else None
        )
        if outputs is None or not stated.violated(exact_point, outputs):
            self.differing += not self.rounds
            return None
        return Witness(exact_point, replayed, proven)

    def _proven(self, exact_point: tuple[Fraction, ...], stated: StatedBox) -> str | None:
        """In which arithmetic the violation is proven; None where it is not."""
        nearest = [float(number) for number in exact_point]
        missed = [float_above(abs(number - Fraction(near))) for number, near in zip(exact_point, nearest, strict=True)]
        point, errors = torch.tensor([[nearest], [missed]], dtype=torch.float64)
        scores, doubts = scores_at(self.exact, point, RIGOROUS, errors)
        if bool((scores.isfinite() & doubts.isfinite()).all()):
            centres, radii = ([Fraction(number) for number in numbers[0].tolist()] for numbers in (scores, doubts))
            if stated.violated(exact_point, centres, radii):
                return "rigorous"
        if self._rational >= MOST_EXACT:
            return None
        self._rational += 1
        outputs = outputs_at(self.original, exact_point)
        if outputs is None or not stated.violated(exact_point, outputs):
            return None
        return "rational"


class ConstraintTables(NamedTuple):
    """Of every constraint the coefficients on outputs and on inputs and the bound, in float64, the number of its
    violation, and whether it is strict."""

    rows: Tensor
    input_rows: Tensor
    bounds: Tensor
    owners: Tensor
    strict: Tensor


class StatedBox:
    """The violations of one box, and the largest box within it whose ends the network's precision represents.

    Where a box has no such number between two ends, what the network is given is next to it, and the exact number
    counts.
    """

    def __init__(self, violations: Sequence[Violation], precision: torch.dtype) -> None:
        self.violations, self.precision = tuple(violations), precision
        dtype = DTYPES[precision]
        first = violations[0]
        low = [_above(float_above(end, dtype), precision) for end in first.low]
        high = [-_above(-float_below(end, dtype), precision) for end in first.high]
        for index in first.open_low:
            low[index] = _past(low[index], first.low[index], precision)
        for index in first.open_high:
            high[index] = -_past(-high[index], -first.high[index], precision)
        self.exact = {
            index: (first.low[index] + first.high[index]) / 2
            for index, (least, most) in enumerate(zip(low, high, strict=True))
            if not least <= most
        }
        for index, number in self.exact.items():
            low[index] = high[index] = float(torch.tensor(float(number), dtype=torch.float64).to(precision))
        self.box = Box(torch.tensor(low, dtype=precision), torch.tensor(high, dtype=precision))

    @property
    def representable(self) -> bool:
        return not self.exact

    def represent(self, points: Tensor) -> Tensor:
        """Points as the network takes them, within the box."""
        return torch.clamp(points.to(self.precision), *self.box)

    def coordinates(self, point: Tensor) -> tuple[Fraction, ...]:
        """The exact coordinates of what `represent` gave."""
        numbers = [Fraction(number) for number in point.double().tolist()]
        for index, number in self.exact.items():
            numbers[index] = number
        return tuple(numbers)

    def violated(
        self, point: Sequence[Fraction], outputs: Sequence[Fraction], doubts: Sequence[Fraction] | None = None
    ) -> bool:
        """Whether a violation happens at a point and its outputs, wherever these are within their doubts, exactly."""
        if not self.violations[0].has_inputs(point):
            return False

        def met(constraint: Constraint) -> bool:
            doubt = 0 if doubts is None else sum(abs(number) * doubts[index] for index, number in constraint.outputs)
            return constraint.is_met_by(constraint.excess(point, outputs) + doubt)

        return any(all(map(met, violation.constraints)) for violation in self.violations)

    @cached_property
    def tables(self) -> ConstraintTables:
        """The tables of all constraints; of one that is met everywhere where a violation has none."""
        groups = [violation.constraints or (MET_EVERYWHERE,) for violation in self.violations]
        constraints = list(chain.from_iterable(groups))
        outputs = 1 + max((index for constraint in constraints for index, _ in constraint.outputs), default=0)
        rows = torch.zeros(len(constraints), outputs, dtype=torch.float64)
        input_rows = torch.zeros(len(constraints), len(self.violations[0].low), dtype=torch.float64)
        bounds = torch.zeros(len(constraints), dtype=torch.float64)
        for row, constraint in enumerate(constraints):
            for table, terms in ((rows, constraint.outputs), (input_rows, constraint.inputs)):
                for index, number in terms:
                    table[row, index] = float(constraint.scale * number)
            bounds[row] = float(constraint.scale * constraint.bound)
        owners = torch.arange(len(groups)).repeat_interleave(torch.tensor([len(group) for group in groups]))
        return ConstraintTables(rows, input_rows, bounds, owners, torch.tensor([one.strict for one in constraints]))

    def excess(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """By how much each constraint is missed, as computed, at (count, size) and (count, outputs)."""
        rows, input_rows, bounds = (table.to(outputs.dtype) for table in self.tables[:3])
        missed = outputs[:, : rows.shape[1]] @ rows.T - bounds
        return missed + inputs.to(outputs.dtype) @ input_rows.T if bool(input_rows.any()) else missed

    def promising(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """The points at which float64 sees a violation, or nearly one, the clearest first: their indices, (count,)."""
        rows, input_rows, bounds, owners, strict = self.tables
        size = outputs[:, : rows.shape[1]].abs() @ rows.abs().T + inputs.double().abs() @ input_rows.abs().T
        excess = self.excess(inputs, outputs)
        missed = excess / (size + bounds.abs() + 1e-300)
        missed = torch.where(strict & (excess >= 0), torch.inf, missed)  # a tie, at best
        worst = torch.full((len(inputs), len(self.violations)), -torch.inf, dtype=torch.float64)
        worst = worst.scatter_reduce(1, owners.expand(len(inputs), -1), missed, "amax")
        least = worst.min(1).values
        near = (least <= NEAR).nonzero().flatten()
        return near[least[near].argsort()]


def _past(number: float, end: Fraction, precision: torch.dtype) -> float:
    """The next larger number of a precision where a given one is the end itself."""
    if not math.isfinite(number) or Fraction(number) != end:
        return number
    return float(torch.nextafter(torch.tensor(number, dtype=precision), torch.tensor(torch.inf, dtype=precision)))


def _above(number: float, precision: torch.dtype) -> float:
    """The smallest number of a precision that is not below a given one."""
    rounded = torch.tensor(number, dtype=torch.float64).to(precision)
    if float(rounded) < number:
        rounded = torch.nextafter(rounded, torch.tensor(torch.inf, dtype=precision))
    return float(rounded)
