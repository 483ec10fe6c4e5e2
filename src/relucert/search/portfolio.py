"""A portfolio of methods: the largest radius that they prove within a time, each from what is proven before.

A step is a function that takes what is proven and yields what it proves beyond that, at any moment ready to be cut
off: `Step` in this file says what it gets. Methods are steps as they are (`method_step`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import torch

from relucert.arithmetic.region import RegionShape
from relucert.arithmetic.rigor import RIGOROUS, Arithmetic
from relucert.bounding.boxes import suits_cuts
from relucert.common.deadline import TimeUp, until
from relucert.common.progress import Reporter
from relucert.errors import FAULTS, RelucertError, in_one_line
from relucert.methods.alpha import AlphaMethod
from relucert.methods.method import Method
from relucert.methods.quadratic.cost import least_seconds
from relucert.methods.sdp import QuadraticMethod
from relucert.methods.table import find_method
from relucert.network import Network
from relucert.network.work import backward_work, forward_work
from relucert.query.problem import Problem
from relucert.query.questions import Inquiry, Question
from relucert.search.end import SearchEnd
from relucert.search.radius import Searcher

WIDE = 100  # neurons from which on quadratic certificates are a step: tuned on mnist-3x20, where splits end sooner, and
# MNIST networks of 2x[100], where certificates prove 1.3 to 1.7 times as much in the same time
MOMENT = 10**9  # multiplications of one evaluation, up to which the first step is done whatever the time


Evidence = dict[str, Any]
"""The fields of a proof file besides its claim."""


class Evidential(Protocol):
    """Keeps the evidence of radii, for proof files."""

    def proves(self, method: str) -> bool:
        """Whether a method's radii have proof files."""

    def recorded(self, method: Method) -> Method:
        """The method, keeping the evidence of its radii."""

    def evidence(self, method: Method, problem: Problem, end: SearchEnd) -> Evidence:
        """The evidence of the radius that a search by this method ended with, for a problem of one question."""


@dataclass(frozen=True, eq=False)
class Task:
    """One question of an inquiry, and how its radius is to be proven.

    Attributes:
        shape: The meaning of a radius.
        keeper: Keeps the evidence, where proofs are to be written.
        reporter: Told how far the work is.
    """

    network: Network
    inquiry: Inquiry
    question: Question
    shape: RegionShape
    arithmetic: Arithmetic = RIGOROUS
    tolerance: float = 1e-4
    keeper: Evidential | None = None
    reporter: Reporter = field(default_factory=Reporter)

    @cached_property
    def problem(self) -> Problem:
        """The question, whose radius is sought, as a problem of its own."""
        return self.inquiry.problem(self.network, self.shape, [self.question])


@dataclass(frozen=True)
class ProvenRadius:
    """A radius that a step proved.

    Attributes:
        weakest: The row of the least margin there.
        step: The name of the step.
        evidence: The content of a proof file, where one is to be written.
    """

    radius: float
    weakest: int
    step: str
    evaluations: int = 0
    evidence: Evidence | None = None


Run = Callable[[Task, ProvenRadius | None, float], Iterator[ProvenRadius]]
"""From a task, what is proven of it so far, and by the monotonic clock when time ends, to what is proven beyond it."""


@dataclass(frozen=True)
class Step:
    """One way to prove a larger radius.

    Attributes:
        suits: Whether the step can do anything about a task.
        seconds: An estimate of the least time that the step takes; with less time left it is not begun.
    """

    name: str
    run: Run
    suits: Callable[[Task], bool] = lambda task: True
    seconds: Callable[[Task], float] = lambda task: 0.0


@dataclass(eq=False)
class PortfolioRun:
    """The steps of a portfolio for one task, one after the other.

    Attributes:
        best: The largest radius that is proven so far.
        cut_off: The steps that were cut off by time.
        errors: By the name of a step, what its error said.
        without_proof: The steps left out because they have no proof files.
    """

    task: Task
    best: ProvenRadius | None = None
    cut_off: list[str] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    evaluations: int = 0
    without_proof: list[str] = field(default_factory=list)

    def run(self, steps: Sequence[Step], ends: float, latest: float | None = None) -> None:
        """Runs the steps as long as there is time.

        The first step, without which nothing would be known, is always done on a network on which it takes a moment;
        on a larger one it may take until `latest`, by default as long as all of them.
        """
        network = self.task.network
        quick = min(forward_work(network), backward_work(network)) <= MOMENT
        first_ends = math.inf if quick else ends if latest is None else latest
        keeper, suited = self.task.keeper, [step for step in steps if step.suits(self.task)]
        self.without_proof = [step.name for step in suited if keeper is not None and not keeper.proves(step.name)]
        for number, step in enumerate(step for step in suited if step.name not in self.without_proof):
            if self.best is not None and self.best.radius == math.inf:
                return
            if number and time.monotonic() + step.seconds(self.task) >= ends:
                self.cut_off.append(step.name)
                continue
            try:
                with until(ends if number else first_ends):
                    for proven in step.run(self.task, self.best, ends if number else math.inf):
                        self.evaluations += proven.evaluations
                        if self.best is None or proven.radius > self.best.radius:
                            self.best = proven
            except TimeUp:
                pass
            except RelucertError:
                raise
            except FAULTS as error:
                self.errors[step.name] = in_one_line(error)
            if time.monotonic() >= (ends if number else first_ends):
                self.cut_off.append(step.name)


def method_step(
    name: str,
    suits: Callable[[Task], bool] = lambda task: True,
    seconds: Callable[[Task], float] = lambda task: 0.0,
) -> Step:
    """A method of the table as a step: its search starts from what is proven."""

    def run(task: Task, best: ProvenRadius | None, ends: float) -> Iterator[ProvenRadius]:
        method = find_method(name, report=task.reporter)
        if isinstance(method, (AlphaMethod, QuadraticMethod)):
            method = replace(method, ends=ends)
        if task.keeper is not None:
            method = task.keeper.recorded(method)
        searcher = Searcher(task.network, method, task.arithmetic, task.tolerance, task.reporter)
        start = [] if best is None else [SearchEnd(0, best.radius, best.weakest, 0, True, best.step)]
        with torch.inference_mode():  # whose end no step may wait for
            (end,) = searcher.run(task.problem.region, task.problem.prop, start, ends)
        if end.radius is not None and (best is None or end.radius > best.radius):
            evidence = None if task.keeper is None else task.keeper.evidence(method, task.problem, end)
            yield ProvenRadius(end.radius, end.weakest, end.method, end.evaluations, evidence)

    def suited(task: Task) -> bool:
        return suits(task) and (task.network.rectifiers_only or not find_method(name).needs_rectifiers)

    return Step(name, run, suited, seconds)


def is_wide(task: Task) -> bool:
    """Whether quadratic certificates prove far more than linear relaxations do, and sooner than splitting."""
    neurons = sum(task.network.sizes[value] for value in task.network.preactivations)
    return neurons >= WIDE and not suits_cuts(task.network, task.problem.region)


CHEAP_STEPS = (
    method_step("fast-lin"), method_step("crown"), 
    method_step("sdp", is_wide, lambda task: least_seconds(task.network) * task.problem.prop.rows.shape[1]),
    method_step("alpha"),
)  # fmt: skip
