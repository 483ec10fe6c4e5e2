"""`relucert.robust_at`: can no valid input within a radius of an image change its class?"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from relucert.answers.verdicts import HOLDS, LATE, UNKNOWN, VIOLATED, RobustnessVerdict
from relucert.api.arguments import Arguments, one_by_one
from relucert.api.verify import ATTACK, DIFFERING, PROVER, prove_by_lines
from relucert.arithmetic.norm import NormLike
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.arithmetic.rigor import check_subnormals
from relucert.attacks.attacker import Attacker, AttackOptions, answered_at_image
from relucert.attacks.witness import AdversarialCheck, AdversarialPoint, check_staying
from relucert.branch_and_bound.prove import prove
from relucert.common.checks import check_number, check_seed, check_time_limit, checked_path
from relucert.common.deadline import TimeUp, until
from relucert.common.names import InferenceName
from relucert.common.numbers import NumberLike, number_above, stated_fraction
from relucert.common.progress import Progress, ProgressLike, Report, Reporter, about_image, silent
from relucert.errors import FAULTS, in_one_line
from relucert.execution.execution import Execution
from relucert.execution.job import in_steps
from relucert.inputs.loading.runtime import Origin
from relucert.inputs.storage.store import StoreLike
from relucert.network import Network
from relucert.network.split_neurons import fold_split_neurons
from relucert.proofs.files import BY_LINES, check_provable, claimed, relaxation_evidence, write_proof
from relucert.query.questions import Inquiry, Question
from relucert.query.types import BoxLike, ImagesLike, LabelsLike, NetworkLike, ScaleLike, TargetLike
from relucert.report.verdict_list import Verdicts
from relucert.verification.search import ATTACK_SHARE, bounded

STEPS = 40  # gradient steps of each attack
ITSELF = "the image itself"
UNDECIDED_NORM = "branch and bound needs the norm 1, 2 or inf, and neither bounds nor an attack decided it"


def robust_at(
    network: NetworkLike,
    images: ImagesLike,
    labels: LabelsLike | None = None,
    *,
    radius: NumberLike,
    norm: NormLike = "inf",
    target: TargetLike = "untargeted",
    property: Property | None = None,
    box: BoxLike | None = None,
    scale: ScaleLike | None = None,
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
) -> Verdicts:
    """Whether every image keeps its class within a radius, in the images' order (with target "all": rivals in turn).

    Args:
        network: A Network, a torch.nn.Module, a torch.export.ExportedProgram, a file or a zoo name. What an .onnx file
            computes is also replayed by onnxruntime.
        images: An array or a tensor, one row per image, in the network's own input range, or a data set: relucert's, or
            a torch Dataset or DataLoader of image and label. A row has the input's shape, or is flat, or differs by
            axes of length one.
        labels: One class per image; by default those of the data set, else the network's predictions.
        radius: How far an input may be from the image: a number, or a fraction, as in "8/255", which is rounded up.
        norm: "inf" (or "linf"), "2" ("l2"), "1" ("l1") or any number >= 1; branch and bound needs one of the three.
        target: As for `certify`.
        property: As for `certify`, in place of labels and targets.
        box: The valid inputs, as for `certify`.
        scale: How far each coordinate may move per unit of radius, as for `certify`.
        time_limit: Seconds for each verdict; None: as long as it takes.
        inference: What the network is evaluated in, as for `verify`.
        seed: Of random targets and of the attack's random starts.
        proof: A file for the proof that it holds, which `relucert check` verifies; for one question only.
        overwrite: Whether that file may be replaced where it holds anything but a proof of the same claim.
        input_shape: Of one image, where neither the network nor the images tell it.
        workers: As for `certify`.
        ray: As for `certify`.
        store: A file that keeps the answers, as for `certify`.
        progress: As for `certify`.
    """
    return Verdicts(robust_at_each(**locals()))


@one_by_one(robust_at)
def robust_at_each(
    arguments: Arguments, radius: NumberLike, time_limit: float | None, proof: str | os.PathLike[str] | None,
    overwrite: bool,
) -> Iterator[RobustnessVerdict]:  # fmt: skip
    """The verdicts of `robust_at`, one by one as they are found.

    Everything is checked at the call; the work is done as verdicts are asked for.
    """
    posed = arguments.pose()
    if proof is not None:
        check_provable(BY_LINES[0], posed.network)
    path = None if proof is None else checked_path(proof, "a proof")
    fraction = stated_fraction(radius, "the radius")
    options = _RobustnessOptions(
        posed.shape, number_above(radius, "the radius"), time_limit, arguments.seed, path, fraction
    )
    check_staying(posed.inquiry.images, posed.network, posed.shape)
    check_subnormals()
    posed.check_proof(path, overwrite)
    decider = _RobustnessAnswerer(posed.network, options, posed.origin)
    items, again = in_steps(posed.inquiry, 1), path is not None
    further = {} if fraction is None else {"fraction": str(fraction)}
    most = posed.most_searches()
    return posed.start("verify", decider, items, options, most, again=again, further=further, divisible=True)


@dataclass(frozen=True)
class _RobustnessOptions:
    """Options of `robust_at`, which explains them; checked when built."""

    shape: RegionShape
    radius: float
    time_limit: float | None
    seed: int
    proof: Path | None
    fraction: Fraction | None = None  # the radius, where it was given as one

    def __post_init__(self) -> None:
        check_number("radius", self.radius, 0, 1e300)
        check_time_limit(self.time_limit)
        check_seed(self.seed)


class _RobustnessAnswerer:
    """Answers questions about one network, one after the other; origin: that of the network's runtime."""

    def __init__(self, network: Network, options: _RobustnessOptions, origin: Origin) -> None:
        self.network, self.options, self.origin = network, options, origin
        self.bounded = network if options.proof is not None else fold_split_neurons(network)  # proofs need the original
        self.replay = origin.runtime(network)
        self.check = AdversarialCheck(network, options.shape, self.replay)

    def __reduce__(self) -> tuple[Any, ...]:
        return _RobustnessAnswerer, (self.network, self.options, self.origin)

    def run(self, inquiry: Inquiry, report: Report) -> Iterator[list[RobustnessVerdict]]:
        """Yields the verdicts, in the order of the questions."""
        for question in inquiry.questions:
            yield [_RobustnessSearch(self, inquiry, question, report).run()]

    def lost(self, inquiry: Inquiry, question: Question, reason: str) -> RobustnessVerdict:
        """The verdict about a question whose worker process died."""
        return _RobustnessSearch(self, inquiry, question, report=silent).verdict(UNKNOWN, reason, None, failed=True)


class _RobustnessSearch:
    """The verification of one image: cheap bounds, attacks, then branch and bound, until one of them settles it."""

    def __init__(self, answerer: _RobustnessAnswerer, inquiry: Inquiry, question: Question, report: Report) -> None:
        self.network, self.bounded, self.options = answerer.network, answerer.bounded, answerer.options
        self.replay, self.check = answerer.replay, answerer.check
        self.inquiry, self.question = inquiry, question
        self.reporter = Reporter(about_image(report, question.image))
        self.witness: AdversarialPoint | None = None
        self.nodes, self.differing = 0, 0
        self.stage: str | None = None
        self.started, limit = time.monotonic(), self.options.time_limit
        self.ends = self.started + (math.inf if limit is None else limit)

    def run(self) -> RobustnessVerdict:
        answered = answered_at_image(self.check, self.inquiry, self.question)
        if answered is not None:
            self.witness, reason = answered
            return self.verdict(UNKNOWN if self.witness is None else VIOLATED, reason, ITSELF)
        try:
            check_subnormals()  # in the process that proves it
            with until(self.ends):
                method, failure = self._decide()
        except TimeUp:
            method, failure = None, LATE
        except FAULTS as error:
            return self.verdict(UNKNOWN, f"the search broke down: {in_one_line(error)}", None, failed=True)
        if self.witness is not None:
            proven = "" if self.check.rounds else "proven in rigorous arithmetic, and "
            return self.verdict(VIOLATED, f"{proven}shown by {self.replay.by}", method)
        if failure is None:
            return self.verdict(HOLDS, None, method)
        return self.verdict(UNKNOWN, self._unsure(failure), None)

    def _decide(self) -> tuple[str | None, str | None]:
        """Returns the method that was last, and the reason why it did not decide the question; None where it did."""
        problem = self.inquiry.problem(self.bounded, self.options.shape, [self.question]).at(self.options.radius)
        self.prop = problem.prop
        rows, hidden = list(range(self.prop.rows.shape[1])), None
        if self.options.proof is None:
            problem = problem.balanced()
            ends = self.started + (1 - ATTACK_SHARE) * (self.ends - self.started)
            rows, method, hidden = bounded(problem, ends, self.reporter)
            if not rows:
                return method, None
        if self._attack():
            return ATTACK, None
        if problem.region.norm.body is None:
            return None, UNDECIDED_NORM
        path = self.options.proof
        if path is not None and not self.network.rectifiers_only:
            outcome = prove_by_lines(problem, self.ends)
            method = outcome.stage
        else:
            self.reporter.enter(Progress(stage=PROVER))
            outcome = prove(
                problem.narrow(torch.tensor([rows])), self.ends,
                lambda point: self._violates(self.check.beyond(problem.centre, point, self.prop)),
                hidden=hidden, record=path is not None, report=self.reporter,
            )  # fmt: skip
            method, self.nodes, self.stage = PROVER, outcome.nodes, outcome.stage
        if path is not None and outcome.proven and outcome.record is not None:
            evidence = relaxation_evidence(outcome.record, self.options.radius, self.network)
            write_proof(path, claimed(problem, self.question.image), evidence)
        return method, None if outcome.proven or self.witness is not None else outcome.failure or "no answer"

    def _attack(self) -> bool:
        remaining = self.ends - time.monotonic()
        if remaining <= 0:
            return False
        limit = None if math.isinf(remaining) else min(remaining, ATTACK_SHARE * (self.ends - self.started))
        options = AttackOptions(self.options.shape, steps=STEPS, time_limit=limit, seed=self.options.seed)
        attacker = Attacker(self.network, options, self.replay)
        return self._violates(attacker.nearest(self.inquiry, self.question, self.reporter)[0])

    def _violates(self, witness: AdversarialPoint | None) -> bool:
        """Whether a point that the check passed is within the radius, and the runtime shows the violation."""
        if witness is None or witness.distance > (self.options.fraction or self.options.radius):
            return False
        rounded = witness.point.to(self.replay.precision)
        unchanged = torch.equal(rounded.double(), witness.point.double())
        if not unchanged or not self.prop.fails_at(self.replay.run(rounded)):
            self.differing += 1
            return False
        self.witness = witness
        return True

    def _unsure(self, reason: str) -> str:
        return f"{reason}; {DIFFERING.format(by=self.replay.by)}" if self.differing else reason

    def verdict(self, status: str, reason: str | None, method: str | None, failed: bool = False) -> RobustnessVerdict:
        question, options = self.question, self.options
        example = outputs = coordinates = weakest = None
        if status == VIOLATED and self.witness is not None:
            point = self.witness.point
            example = point.double().reshape(self.network.input_shape).clone()
            outputs = self.replay.run(point.to(self.replay.precision))
            coordinates = tuple(map(Fraction, point.double().tolist()))
            if question.refusal is None:
                weakest = self.check.weakest(point, self.inquiry.property([question]))
        return RobustnessVerdict(
            **question.fields(options.shape, weakest), status=status, witness=example, outputs=outputs, reason=reason,
            seconds=time.monotonic() - self.started, nodes=self.nodes, method=None if status == UNKNOWN else method,
            coordinates=coordinates, failed=failed, inference=self.network.inference.name, stage=self.stage,
            radius=options.radius, clean=not question.misclassified, fraction=options.fraction,
        )  # fmt: skip
