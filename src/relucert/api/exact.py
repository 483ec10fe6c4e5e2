"""`relucert.exact`: the minimum distortion of every image, as an interval with a proven and a witnessed end.

Methods certify a first radius, an attack finds a violation, and branch and bound proves the region just below it, or
smaller ones where time does not suffice (`ExactSearch`).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from relucert.answers.certificates import Exact
from relucert.answers.verdicts import LATE
from relucert.api.arguments import Arguments, one_by_one
from relucert.arithmetic.norm import Norm, NormLike
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.arithmetic.rigor import RECORDED, check_subnormals
from relucert.attacks.attacker import Attacker, AttackOptions, answered_at_image
from relucert.attacks.witness import AdversarialCheck, AdversarialPoint, check_staying
from relucert.branch_and_bound.exact_search import ExactSearch
from relucert.common.checks import check_number, check_seed, check_time_limit, checked_path
from relucert.common.deadline import TimeUp, until
from relucert.common.names import InferenceName
from relucert.common.progress import Progress, ProgressLike, Report, Reporter, about_image
from relucert.errors import FAULTS, InputError, in_one_line
from relucert.execution.execution import Execution
from relucert.execution.job import in_steps
from relucert.inputs.loading.runtime import Origin, Runtime
from relucert.inputs.storage.store import StoreLike
from relucert.network import Network
from relucert.proofs.files import EvidenceKeeper, claimed, relaxation_evidence, write_proof
from relucert.query.questions import Inquiry, Question
from relucert.query.types import BoxLike, ImagesLike, LabelsLike, NetworkLike, ScaleLike, TargetLike
from relucert.report.answer_list import Answers
from relucert.search.portfolio import CHEAP_STEPS, Evidence, PortfolioRun, ProvenRadius, Step, Task, is_wide

METHOD = "exact"
EXACT_TOLERANCE = 1e-3  # of the interval, where exact search is a step of a portfolio
ATTACK_STEPS = 40  # gradient steps of each attack, whose examples branch and bound improves
ATTACK_SHARE = 0.3  # share of the remaining time for the attack
UNREACHABLE = "no valid input at all is adversarial"
INTERRUPTED = "interrupted: the interval so far"
UNKNOWN = "no adversarial example is known"
CERTIFY_SHARE = 0.2  # share of the time limit for the cheap steps of the portfolio
WIDE_SHARE = 0.6  # that share on wide networks, where quadratic certificates prove more than splitting does


def exact(
    network: NetworkLike,
    images: ImagesLike,
    labels: LabelsLike | None = None,
    *,
    norm: NormLike = "inf",
    target: TargetLike = "untargeted",
    property: Property | None = None,
    box: BoxLike | None = None,
    scale: ScaleLike | None = None,
    tolerance: float = 1e-3,
    time_limit: float | None = 60.0,
    inference: InferenceName = "real",
    seed: int = 0,
    proof: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    input_shape: tuple[int, ...] | None = None,
    workers: int | Execution | None = None,
    ray: str | None = None,
    store: StoreLike | None = None,
    progress: ProgressLike = None,
) -> Answers[Exact]:
    """The minimum distortion of every image, in the images' order (with target "all": an image's rivals in turn).

    Args:
        network: A Network, a torch.nn.Module, a torch.export.ExportedProgram, a file or a zoo name.
        images: An array or a tensor, one row per image, in the network's own input range, or a data set: relucert's, or
            a torch Dataset or DataLoader of image and label. A row has the input's shape, or is flat, or differs by
            axes of length one.
        labels: One class per image; by default those of the data set, else the network's predictions.
        norm: "inf", "2" or "1".
        target: As for `certify`.
        property: As for `certify`, in place of labels and targets.
        box: The valid inputs, as for `certify`.
        scale: How far each coordinate may move per unit of radius, as for `certify`.
        tolerance: How wide, relatively, an interval may be that counts as closed.
        time_limit: Seconds for each answer; None: as long as it takes. What was proven by then is returned.
        inference: What the network is evaluated in, as for `certify`: the lower end holds for every such evaluation,
            and the witness fails in that of the network's own runtime.
        seed: Of random targets and of the attack's random starts.
        proof: A file for the proof of the lower end, which `relucert check` verifies; for one question only.
        overwrite: Whether that file may be replaced where it holds anything but a proof of the same claim.
        input_shape: Of one image, where neither the network nor the images tell it.
        workers: As for `certify`.
        ray: As for `certify`.
        store: A file that keeps the answers, as for `certify`.
        progress: As for `certify`.
    """
    return Answers(exact_each(**locals()))


@one_by_one(exact)
def exact_each(
    arguments: Arguments, proof: str | os.PathLike[str] | None, overwrite: bool, **effort: Any
) -> Iterator[Exact]:
    """The intervals of `exact`, one by one as they are found.

    Everything is checked at the call; the work is done as answers are asked for.
    """
    path = None if proof is None else checked_path(proof, "a proof")
    options = ExactOptions(RegionShape(Norm.parse(arguments.norm)), seed=arguments.seed, proof=path, **effort)
    posed = arguments.pose(needs_rectifiers=None if path is None else "a proof of an exact answer")
    options = replace(options, shape=posed.shape)
    check_staying(posed.inquiry.images, posed.network, posed.shape)
    posed.check_proof(path, overwrite)
    check_subnormals()
    answerer = _ExactAnswerer(posed.network, options, posed.origin)
    items, again = in_steps(posed.inquiry, 1), path is not None
    return posed.start("exact", answerer, items, options, posed.most_searches(), again=again, divisible=True)


@dataclass(frozen=True)
class ExactOptions:
    """Options of `exact`, which explains them; checked when built."""

    shape: RegionShape
    tolerance: float
    time_limit: float | None
    seed: int
    proof: Path | None = None

    def __post_init__(self) -> None:
        if self.shape.norm.body is None:
            raise InputError(
                f"an exact answer needs the norm 1, 2 or inf, not {self.shape.norm}; with another, `certify` and "
                "`attack` bound it from both sides"
            )
        check_number("tolerance", self.tolerance, 1e-6, 0.5)
        check_time_limit(self.time_limit)
        check_seed(self.seed)


@dataclass(frozen=True, eq=False)
class _ExactAnswerer:
    """Answers questions about one network, one after the other."""

    network: Network
    options: ExactOptions
    origin: Origin

    def __reduce__(self) -> tuple[Any, ...]:
        return _ExactAnswerer, (self.network, self.options, self.origin)

    @cached_property
    def runtime(self) -> Runtime | None:
        """The runtime that re-checks witnesses; None in real arithmetic."""
        return self.origin.runtime(self.network) if self.network.inference.rounds else None

    def run(self, inquiry: Inquiry, report: Report) -> Iterator[list[Exact]]:
        """Yields the answers, in the order of the questions."""
        for question in inquiry.questions:
            task = Task(
                self.network, inquiry, question, self.options.shape,
                reporter=Reporter(about_image(report, question.image)),
            )  # fmt: skip
            if self.options.proof is not None:
                task = replace(task, arithmetic=RECORDED, keeper=EvidenceKeeper(self.network))
            search = _ExactSearch(task, self.options, runtime=self.runtime)
            yield [search.run()]
            if search.interrupted:
                raise KeyboardInterrupt

    def lost(self, inquiry: Inquiry, question: Question, reason: str) -> Exact:
        """The answer to a question whose worker process died."""
        return _ExactSearch(Task(self.network, inquiry, question, self.options.shape), self.options).lost(reason)


class _ExactSearch:
    """The search for one image's minimum distortion; whatever fails, the interval so far is the answer."""

    def __init__(
        self, task: Task, options: ExactOptions, certified: float | None = None, runtime: Runtime | None = None
    ) -> None:
        """certified: A radius that is proven already; None: the cheap steps of the portfolio prove one first."""
        self.task, self.options, self.certified = task, options, certified
        self.network, self.inquiry, self.question = task.network, task.inquiry, task.question
        self.fault: str | None = None  # why the search broke down
        self.interrupted = False
        self.evidence: Evidence | None = None  # proves the lower end
        self.check, self.runtime = AdversarialCheck(task.network, task.shape, runtime), runtime
        self.started = time.monotonic()
        self.ends = self.started + (math.inf if options.time_limit is None else options.time_limit)

    def run(self) -> Exact:
        answered = answered_at_image(self.check, self.inquiry, self.question)
        if answered is not None:
            witness, reason = answered
            lower = 0.0 if witness is not None or self.question.misclassified else None
            return self._answer(lower, witness, witness is not None, reason, 0)
        search, lower, witness, late = None, 0.0, None, None
        try:
            lower = self._certified() if self.certified is None else self.certified
            with until(self.ends):
                witness = self._attacked()
                search = self._search(lower, witness)
                search.run()
        except TimeUp:
            late = LATE
        except KeyboardInterrupt:
            self.fault, self.interrupted = INTERRUPTED, True
        except FAULTS as error:
            self.fault = f"the search broke down: {in_one_line(error)}"
        if search is None:
            return self._answer(lower, witness, False, self.fault or late, 0)
        return self._conclude(search, lower)

    def _conclude(self, search: ExactSearch, lower: float) -> Exact:
        if search.lower > lower and search.record is not None:
            self.evidence = relaxation_evidence(search.record, search.lower, self.network)
        if self.options.proof is not None and self.evidence is not None:
            write_proof(self.options.proof, claimed(self.task.problem, self.question.image), self.evidence)
        lower, witness = max(lower, search.lower), search.witness
        if witness is None and lower >= search.whole:
            return self._answer(None, None, True, UNREACHABLE, search.nodes)
        closed = witness is not None and lower >= witness.distance * (1 - self.options.tolerance)
        reason = None if closed else self.fault or search.failure or UNKNOWN
        return self._answer(lower, witness, closed, reason, search.nodes)

    def lost(self, reason: str) -> Exact:
        self.fault = reason
        return self._answer(None, None, False, reason, 0)

    def _certified(self) -> float:
        """The radius that a portfolio of methods proves in a share of the time, Fast-Lin's at the least."""
        share = WIDE_SHARE if is_wide(self.task) else CERTIFY_SHARE
        limit = math.inf if self.options.time_limit is None else share * self.options.time_limit
        run = PortfolioRun(self.task)
        run.run(CHEAP_STEPS, self.started + limit, self.ends)
        if run.best is None:
            return 0.0
        self.evidence = run.best.evidence
        return run.best.radius

    def _attacked(self) -> AdversarialPoint | None:
        remaining = self.ends - time.monotonic()
        if remaining <= 0:
            return None
        limit = None if math.isinf(remaining) else remaining * ATTACK_SHARE
        options = AttackOptions(self.task.shape, steps=ATTACK_STEPS, time_limit=limit, seed=self.options.seed)
        attacker = Attacker(self.network, options, self.runtime)
        witness, self.fault = attacker.nearest(self.inquiry, self.question, self.task.reporter)
        return witness

    def _search(self, lower: float, witness: AdversarialPoint | None) -> ExactSearch:
        task = self.task
        task.reporter.enter(Progress(lower=lower, upper=None if witness is None else witness.distance))
        return ExactSearch(
            task.problem, self.check, self.ends, self.options.tolerance, lower, witness, task.reporter,
            recorded=task.keeper is not None,
        )  # fmt: skip

    def _answer(
        self, lower: float | None, witness: AdversarialPoint | None, closed: bool, reason: str | None, nodes: int
    ) -> Exact:
        example = upper = weakest = None
        if witness is not None:
            example, upper = witness.point.reshape(self.network.input_shape).clone(), witness.distance
            if self.question.refusal is None:
                weakest = self.check.weakest(witness.point, self.task.problem.prop)
        return Exact(
            **self.question.fields(self.task.shape, weakest), method=METHOD, lower=lower, upper=upper, closed=closed,
            witness=example, reason=reason, seconds=time.monotonic() - self.started, nodes=nodes,
            failed=self.fault is not None and not closed, inference=self.network.inference.name,
            shown_by=None if witness is None else self.check.by,
        )  # fmt: skip


def _run_step(task: Task, best: ProvenRadius | None, ends: float) -> Iterator[ProvenRadius]:
    """Yields the lower end of an exact search that starts from the best proven radius, if it gets beyond that."""
    limit = max(0.0, ends - time.monotonic())
    options = ExactOptions(task.shape, EXACT_TOLERANCE, None if math.isinf(limit) else limit, 0, None)
    start = 0.0 if best is None else best.radius
    search = _ExactSearch(task, options, start)
    answer = search.run()
    if search.interrupted:
        raise KeyboardInterrupt
    weakest = 0 if best is None else best.weakest
    named = answer.row if task.question.label is None else answer.target
    if named is not None:
        weakest = task.question.rivals.index(named)
    radius = math.inf if answer.unreachable else answer.lower or 0.0
    if radius > start:
        yield ProvenRadius(radius, weakest, METHOD, evidence=search.evidence)


def _suits(task: Task) -> bool:
    rigorous, norm = task.arithmetic.rigorous, task.shape.norm
    return rigorous and norm.body is not None and task.network.rectifiers_only


EXACT_STEP = Step(METHOD, _run_step, _suits)
