"""Margins by quadratic certificates: the dual of a semidefinite relaxation (SDP-CROWN's kind), for every network.

The solver of the multipliers is not trusted. With a rigorous arithmetic a positive margin is what `quadratic.proof`
makes of them, or the linear relaxation's bound where that is higher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from relucert.arithmetic.property import Property, QuestionKey, question_key, question_keys
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.interval import Bounds, select
from relucert.common.deadline import until
from relucert.common.progress import Progress, Report, silent
from relucert.methods.linear import LinearMethod
from relucert.methods.method import Method, MethodDefaults
from relucert.methods.quadratic.cost import MOST_SECONDS, tightening_seconds
from relucert.methods.quadratic.evidence import Evidence
from relucert.methods.quadratic.memory import Memory, SharedMemory
from relucert.methods.quadratic.rows import RegionRows
from relucert.network import Network

GROWTH = 1.4  # of what a margin loses, with the radius, while one radius is evaluated
STEEPEST = 6.0
COLLAPSED = 2.0  # times a row's value is what it loses where a margin breaks down
NEAREST = 0.05  # share of the way between two radii by which a guess keeps away from both
BADLY = 2.0  # times worse is a negative margin known than a positive one
HOPELESS = 10.0  # times a row's value is what it loses where intervals are tightened
REMEMBERED = 2**30  # bytes of multipliers that are kept, about
BYTES_EACH = 100  # of them per input and neuron


@dataclass(frozen=True)
class QuadraticMethod(MethodDefaults):
    """Margins by quadratic certificates, with the hidden bounds of a weaker method, which the search starts from.

    ends: by the monotonic clock, when an evaluation is given up.
    report: called with every few steps of an ascent.
    """

    name: str
    weaker: LinearMethod
    ends: float = torch.inf
    report: Report = silent
    _curves: dict[bytes, DecidingMargin] = field(default_factory=dict, init=False, repr=False, compare=False)
    _notes: dict[QuestionKey, _Notes] = field(default_factory=dict, init=False, repr=False, compare=False)
    gain: ClassVar[float] = 1.8
    resolution: ClassVar[float] = 2e-3

    @property
    def surrogate(self) -> Method:
        return FittedMargins(self)

    def remark(self, point: Tensor, prop: Property) -> str | None:
        notes = [self._notes[asked] for asked in question_keys(point, prop) if asked in self._notes]
        if not notes or notes[0].stable or notes[0].evidence is not None:
            return None
        return f"the radius is that of {self.weaker.name}: quadratic certificates proved no larger one"

    def bounds_stable_neurons(self, network: Network) -> bool:
        return self.weaker.bounds_stable_neurons(network)

    def hidden(self, network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
        return self.weaker.hidden(network, region, arithmetic)

    def margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        """The least margin is the certificates' own; the others are bounded as far as it takes to know that.

        A margin that is not positive is as computed: it claims nothing, and tells the search how far off the radius is.
        """
        margins = self.weaker.margins(network, region, prop, hidden, arithmetic).clone()
        wide, exact = region.cast(torch.float64), network.cast(torch.float64)
        for member in range(len(margins)):
            if bool((margins[member] > 0).all()):
                continue
            chosen = torch.tensor([member])
            bounds = select(hidden, chosen)
            notes = self._note(network, question_key(region.centre[member], prop, member))
            self._curves[_rounded(region.centre[member])] = notes.curve
            with until(self.ends):
                rows = RegionRows.of(
                    exact, wide.select(chosen), prop.select(chosen), bounds,
                    [notes.memories.get(row) for row in range(margins.shape[1])], self._reported(notes),
                )  # fmt: skip
                if not rows.linearised.finite:
                    continue  # an activation is not defined everywhere, or bounds are infinite
                if not rows.relaxed:
                    notes.stable = True  # nothing is relaxed: no margin could be larger
                    continue
                if _is_hopeless(rows.heights, margins[member]) and tightening_seconds(exact, bounds) < MOST_SECONDS:
                    rows = rows.tightened(bounds, notes.layers)
                margins[member] = self._bounded(rows, margins[member], notes, arithmetic)
        return margins

    def _bounded(self, rows: RegionRows, known: Tensor, notes: _Notes, arithmetic: Arithmetic) -> Tensor:
        """Margins of one region, (rows,), at least these."""
        notes.weakest = weakest = rows.least(notes.weakest)
        found = rows.solver.bounds.to(known.dtype)
        passed = bool((found > 0).all())
        notes.curve.add(weakest, float(rows.region.radius[0]), float(found[weakest]), float(rows.heights[weakest]))
        for row, solution in enumerate(rows.solver.solutions):
            if solution is not None and solution.memory is not None:
                notes.remember(row, solution.memory, passed)
        if rows.tight is not None and (passed or not notes.passed):
            notes.layers = rows.tight.memories
        if not passed:
            # Rows that were not climbed say nothing; the least one that was says how far off the radius is.
            return torch.maximum(known, found[weakest].clamp(max=0))
        if arithmetic.rigorous:
            found = rows.prove()
            least = torch.maximum(known, found)
            if bool((least > 0).all()) and rows.proofs:
                notes.keep(Evidence.of(rows, known > 0))
        return torch.maximum(known, found)

    def evidence(self, point: Tensor, prop: Property) -> Evidence | None:
        """What proves the largest radius that certificates proved of a question; None: they proved none."""
        notes = self._notes.get(question_key(point, prop))
        return None if notes is None else notes.evidence

    def curve(self, point: Tensor) -> DecidingMargin:
        """The margins, by radius, of the question that was asked last about a point, (size,)."""
        return self._curves.get(_rounded(point), DecidingMargin())

    def _reported(self, notes: _Notes) -> Report:
        def report(state: Progress) -> None:
            self.report(replace(state, part=f"certificate {len(notes.memories) + 1}"))

        return report

    def _note(self, network: Network, key: QuestionKey) -> _Notes:
        notes = self._notes.pop(key, None) or _Notes()
        self._notes[key] = notes  # the latest last
        most = max(1, REMEMBERED // (BYTES_EACH * sum(network.sizes)))
        while len(self._notes) > most:
            del self._notes[next(iter(self._notes))]
        return notes


def _is_hopeless(heights: Tensor, margins: Tensor) -> bool:
    """Whether the linear relaxation's bounds are so far off that its intervals of deep layers are of no use.

    Args:
        heights: The rows at the centre, (rows,).
        margins: Their bounds, (rows,).
    """
    return bool(((heights - margins) > HOPELESS * heights.abs()).any())


def _rounded(point: Tensor) -> bytes:
    """Tells points apart, whichever precision they come in."""
    return point.float().contiguous().numpy().tobytes()


@dataclass(eq=False)
class _Notes:
    """The state of a question, kept from radius to radius.

    Attributes:
        curve: Margins by radius.
        weakest: The row that decided last.
        memories: By row, what to start from.
        passed: The rows whose memories are of a radius that passed.
        layers: By layer, what to start from where intervals are tightened.
        stable: Whether nothing was relaxed.
        evidence: Of the largest radius at which certificates proved all margins.
    """

    curve: DecidingMargin = field(default_factory=lambda: DecidingMargin())
    weakest: int | None = None
    memories: dict[int, Memory] = field(default_factory=dict)
    passed: set[int] = field(default_factory=set)
    layers: dict[int, SharedMemory] = field(default_factory=dict)
    stable: bool = False
    evidence: Evidence | None = None

    def remember(self, row: int, memory: Memory, passed: bool) -> None:
        """Takes the memory of a radius that passed, or any where none did: a radius far too large leads astray."""
        if passed or row not in self.passed:
            self.memories[row] = memory.over(self.memories.get(row))
        if passed:
            self.passed.add(row)

    def keep(self, evidence: Evidence) -> None:
        if self.evidence is None or evidence.radius > self.evidence.radius:
            self.evidence = evidence


@dataclass(frozen=True)
class CurvePoint:
    """The margin of a row at an evaluated radius, and its value at the centre."""

    row: int
    radius: float
    margin: float
    height: float

    @property
    def fall(self) -> float:
        return max(self.height - self.margin, 1e-9 * self.height)

    @property
    def doubt(self) -> float:
        """How little the point tells about where the margin is 0; a margin below 0 is known badly."""
        return abs(self.margin) * (1 if self.margin >= 0 else 1 + BADLY)


@dataclass(eq=False)
class DecidingMargin:
    """The deciding margin of a question by radius: `height - a radius^growth` through what is known."""

    points: list[CurvePoint] = field(default_factory=list)

    def add(self, row: int, radius: float, margin: float, height: float) -> None:
        if math.isfinite(margin) and height > 0 and radius > 0:
            self.points.append(CurvePoint(row, radius, margin, height))

    def at(self, radii: Tensor) -> Tensor | None:
        """The margins at other radii, as guessed; None: nothing is known."""
        if not self.points:
            return None
        if (bracket := self._bracket()) is not None:
            return _between(*bracket, radii)
        nearest = min(self.points, key=lambda point: point.doubt)
        others = [point for point in self.points if point.row == nearest.row and point.radius != nearest.radius]
        growth = GROWTH
        if others:
            other = min(others, key=lambda point: point.doubt)
            growth = math.log(other.fall / nearest.fall) / math.log(other.radius / nearest.radius)
        return nearest.height - nearest.fall * (radii / nearest.radius) ** min(max(growth, 1.0), STEEPEST)

    def _bracket(self) -> tuple[CurvePoint, CurvePoint] | None:
        """The largest radius that passed and the least beyond it that did not."""
        passed = max((point for point in self.points if point.margin > 0), key=lambda point: point.radius, default=None)
        if passed is None:
            return None
        rest = (point for point in self.points if not point.margin > 0 and point.radius > passed.radius)
        failed = min(rest, key=lambda point: point.radius, default=None)
        return None if failed is None else (passed, failed)


def _between(passed: CurvePoint, failed: CurvePoint, radii: Tensor) -> Tensor:
    """Margins by a power law through two known ones; where they break down, some that are 0 half-way between."""
    below, above = math.log(passed.height / passed.fall), math.log(failed.fall / failed.height)
    share = 0.5 if failed.fall > COLLAPSED * failed.height else below / max(below + above, 1e-9)
    share = min(max(share, NEAREST), 1 - NEAREST)
    steps = torch.log(radii / passed.radius) / math.log(failed.radius / passed.radius) - share
    falls = passed.height * torch.exp(torch.where(steps < 0, below * steps / share, above * steps / (1 - share)))
    return passed.height - falls


@dataclass(frozen=True)
class FittedMargins(MethodDefaults):
    """What a quadratic method's margins look like between the radii where they were evaluated: no bounds at all."""

    method: QuadraticMethod
    name: ClassVar[str] = "fitted"
    weaker: ClassVar[None] = None

    def bounds_stable_neurons(self, network: Network) -> bool:
        return True

    def hidden(self, network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
        return {}

    def margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        centre = prop.values(network(region.centre))
        asked = zip(region.centre, region.radius, strict=True)
        guesses = [self.method.curve(point).at(radius) for point, radius in asked]
        return torch.stack([
            values if guess is None else guess.expand_as(values)
            for guess, values in zip(guesses, centre, strict=True)
        ])  # fmt: skip
