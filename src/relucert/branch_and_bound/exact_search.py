"""The search over radii for the exact minimum distortion.

It first tries the distance of the nearest violation that an attack found, and smaller radii where time does not
suffice. The lower end is proven at any moment.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from relucert.answers.verdicts import LATE
from relucert.attacks.polish import Polisher
from relucert.attacks.witness import AdversarialCheck, AdversarialPoint
from relucert.bounding.record import Record
from relucert.branch_and_bound.prove import prove
from relucert.common.progress import Progress, Report, silent
from relucert.query.problem import Problem

GROWTH = 1.5  # of the radius, where no violation was found
FIRST = 64  # share of the goal to start with where nothing is certified
INSIDE = 0.9  # share of the tolerance by which the last region stays below the nearest violation
ENDLESS = 1e6  # how many times the image's size a region may have where no violation was found
POLISH_SECONDS = 10.0
FIRST_SECONDS = 5.0  # for a radius, where time does not end
SHARE = 0.15  # of the time that is left, for a radius
NEAR = 4  # tolerances between what is proven and a radius that took too long, below which all time goes to that one


@dataclass(eq=False)
class ExactSearch:
    """Proves ever larger regions around an image, up to the nearest violation.

    Attributes:
        problem: The question, whose radius is sought.
        certified: A radius that is proven without a search.
        witness: The nearest violation found so far.
        lower: The largest radius proven.
        failure: Why the search stopped below its goal.
        nodes: How many nodes were bounded.
        report: Called now and then with how far the search of a region is, the nodes being all so far.
        recorded: Whether a proof is to be written.
        record: What proves the largest radius, where a proof is to be written and that radius is not the certified one.
    """

    problem: Problem
    check: AdversarialCheck
    ends: float
    tolerance: float
    certified: float
    witness: AdversarialPoint | None = None
    report: Report = silent
    lower: float = 0.0
    failure: str | None = None
    nodes: int = 0
    recorded: bool = False
    record: Record | None = None

    def __post_init__(self) -> None:
        self.whole = float(self.problem.region.whole)
        self.limit = ENDLESS * (1 + float(self.problem.centre.abs().max()))
        if self.problem.region.scale is not None:
            self.limit /= float(self.problem.region.scale.max())
        self.lower = self.certified
        self._polished = self.witness
        self._seconds = FIRST_SECONDS

    @property
    def goal(self) -> float:
        """The radius whose proof ends the search."""
        if self.witness is None:
            return self.whole
        return max(self.certified, self.witness.distance * (1 - INSIDE * self.tolerance))

    def run(self) -> None:
        too_large = math.inf  # a radius that some time did not suffice for
        while self.lower < self.goal and self.lower < self.limit and self.failure is None:
            radius = self._aim(too_large)
            last = radius >= too_large
            until = self.ends if last else self._until()
            proven, failure = self._attempt(radius, until)
            if proven:
                self.lower, too_large = radius, math.inf if last else too_large
            elif failure is None:
                too_large = min(too_large, self.goal) if too_large < math.inf else too_large
            elif failure == LATE and time.monotonic() < self.ends and not last:
                too_large, self._seconds = radius, 2 * self._seconds
            else:
                self.failure = failure

    def _aim(self, too_large: float) -> float:
        """The next radius to try: the goal, or one between the largest proven and the smallest that took too long."""
        top = min(self.goal, self.limit, too_large)
        if self.witness is None:
            top = min(top, self.lower * GROWTH or min(self.goal, self.limit) / FIRST)
        if too_large == math.inf or top <= (1 + NEAR * self.tolerance) * self.lower:
            return top
        return math.sqrt(self.lower * top) if self.lower > 0 else top / 4

    def _until(self) -> float:
        now = time.monotonic()
        return now + (self._seconds if math.isinf(self.ends) else max(0.0, SHARE * (self.ends - now)))

    def _attempt(self, radius: float, until: float) -> tuple[bool, str | None]:
        """Searches a region: whether it is proven, and why it is not; neither where a violation ended the search."""
        before = self.nodes

        def violates(point: Tensor) -> bool:
            candidate = self.check.beyond(self.problem.centre, point, self.problem.prop)
            if candidate is not None and (self.witness is None or candidate.distance < self.witness.distance):
                self.witness = candidate
            return self.witness is not None and self.witness.distance <= radius

        report = partial(self._tell, before)
        outcome = prove(self.problem.at(radius), until, violates, record=self.recorded, report=report)
        self.nodes += outcome.nodes
        self._polish()
        if outcome.proven:
            self.record = outcome.record
        return outcome.proven, outcome.failure

    def _tell(self, before: int, state: Progress) -> None:
        upper = None if self.witness is None else self.witness.distance
        self.report(replace(state, nodes=before + (state.nodes or 0), lower=self.lower, upper=upper))

    def _polish(self) -> None:
        """Shortens a witness that the search came upon."""
        polishes = self.problem.network.rectifiers_only  # it looks into linear regions
        if polishes and self.witness is not None and self.witness is not self._polished:
            ends = min(self.ends, time.monotonic() + POLISH_SECONDS)
            with torch.inference_mode():
                polisher = Polisher(self.check, self.problem.centre, self.problem.prop, self.witness, ends)
                self._polished = self.witness = polisher.run()
