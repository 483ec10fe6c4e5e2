"""Attacks over batches of images; what they find is polished and re-checked image by image, outside of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from relucert.answers.certificates import UpperBound
from relucert.arithmetic.region import RegionShape
from relucert.arithmetic.rigor import check_subnormals
from relucert.attacks.methods import find_attacks
from relucert.attacks.objective import AttackObjective
from relucert.attacks.polish import Polisher
from relucert.attacks.witness import AdversarialCheck, AdversarialPoint
from relucert.common.checks import check_seed, check_time_limit, check_whole, shown
from relucert.common.deadline import TimeUp, until, within
from relucert.common.progress import Progress, Report, Reporter, about_image
from relucert.errors import FAULTS, InputError, in_one_line
from relucert.inputs.loading.runtime import Origin, Runtime, own_precision
from relucert.network import Network
from relucert.query.questions import Inquiry, Question

NOTHING = "no attack found an adversarial example"
CUT_SHORT = "the time limit ended the attack; a nearer example may exist"
NO_TIME = "the time limit ended the attack before it found an adversarial example"
NOT_POSITIVE = "at the image itself a margin is not positive"
SHOWN = f"{NOT_POSITIVE}, as shown by {{by}}"
UNCLEAR = "at the image itself the sign of a margin is unclear within rounding error"
STAGE, POLISH = "attack", "polish"  # stages, as `Progress` names them
BEFORE_POLISH = 0.6  # the attacks' share of a time limit, where a polish follows
BEFORE_CHECK = 0.9  # the attacks' share of a time limit, where no polish follows
MOMENT = 0.1  # seconds for the re-check of an adversarial example, even after the time limit


@dataclass(frozen=True)
class AttackOptions:
    """Options of an attack, checked when built; `attack` explains them."""

    shape: RegionShape
    method: str = "best"
    polish: bool = True
    steps: int = 200
    time_limit: float | None = None
    memory: int = 2**30
    seed: int = 0

    def __post_init__(self) -> None:
        find_attacks(self.method, self.shape.norm)
        if not isinstance(self.polish, bool):
            raise InputError(f"polish is True or False, not {shown(self.polish)}")
        check_whole("number of steps", self.steps, 1, 10**6)
        check_whole("memory budget", self.memory, 1, 2**63 - 1)
        check_seed(self.seed)
        check_time_limit(self.time_limit)


def answered_at_image(
    check: AdversarialCheck, inquiry: Inquiry, question: Question
) -> tuple[AdversarialPoint | None, str] | None:
    """The answer to a question that no search can better, and why: the image is its own witness, which is proven or
    shown by its runtime, or the question is refused. None where a search is needed."""
    if inquiry.overtaken(question) or (check.rounds and question.refusal is None):
        if question.misclassified and question.label is not None:
            predicted = int(inquiry.scores[question.image].argmax())
            prop = inquiry.property([replace(question, rivals=[predicted])])
        else:
            prop = inquiry.property([question])
        witness = check.at_image(inquiry.images[question.image], prop)
        if witness is not None:
            return witness, question.refusal or (NOT_POSITIVE if check.by is None else SHOWN.format(by=check.by))
        if question.misclassified:
            return None, UNCLEAR
    return None if question.refusal is None else (None, question.refusal)


class Attacker:
    """Answers questions about one network: those of an inquiry are attacked at once, and then settled one by one.

    origin: the network's runtime, or what it is made from. count: how many questions share the time limit; a question
    that is answered early leaves its time to later ones.
    """

    def __init__(
        self, network: Network, options: AttackOptions, origin: Origin | Runtime | None = None, count: int = 1
    ) -> None:
        check_subnormals()
        self.network, self.options, self.count = network, options, count
        self.origin = origin
        self.attacks = find_attacks(options.method, options.shape.norm)
        runtime = origin.runtime(network) if isinstance(origin, Origin) else origin
        self.check = AdversarialCheck(network, options.shape, runtime)
        self._unspent = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return Attacker, (self.network, self.options, self.origin, self.count)

    def run(self, inquiry: Inquiry, report: Report) -> Iterator[list[UpperBound]]:
        """Yields the answers one by one, in the order of the questions."""
        ends, started = math.inf, time.perf_counter()
        if self.options.time_limit is not None:
            limit = self._unspent + self.options.time_limit * len(inquiry.questions) / self.count
            ends = time.monotonic() + limit
        settled = {question: answered_at_image(self.check, inquiry, question) for question in inquiry.questions}
        waiting = [question for question, answer in settled.items() if answer is None]
        objective = self._minimise(inquiry, waiting, ends, report) if waiting else None
        shared, numbers = (time.perf_counter() - started) / max(1, len(waiting)), iter(range(len(waiting)))
        for index, (question, answer) in enumerate(settled.items()):
            if answer is not None:
                yield [self._answer(inquiry, question, *answer)]
                continue
            begun = time.perf_counter()
            report(Progress(image=question.image, stage=POLISH))
            assert objective is not None
            share_ends = within(ends, 1 / (len(settled) - index))
            end = self._settle(inquiry, question, objective, next(numbers), share_ends)
            yield [self._answer(inquiry, question, *end, seconds=shared + time.perf_counter() - begun)]
        self._unspent = max(0.0, ends - time.monotonic())

    def lost(self, inquiry: Inquiry, question: Question, reason: str) -> UpperBound:
        """The answer to a question whose worker process died."""
        return self._answer(inquiry, question, None, reason, failed=True)

    def nearest(
        self, inquiry: Inquiry, question: Question, report: Report
    ) -> tuple[AdversarialPoint | None, str | None]:  # fmt: skip
        """The nearest witness that is found for one question, and why the attack broke down, if it did."""
        ((answer,),) = self.run(replace(inquiry, questions=[question]), report)
        failure = answer.reason if answer.failed else None
        if answer.witness is None or answer.distance is None:
            return None, failure
        return AdversarialPoint(answer.witness.flatten(), answer.distance), failure

    def _answer(
        self, inquiry: Inquiry, question: Question, witness: AdversarialPoint | None, reason: str | None,
        failed: bool = False, seconds: float = 0.0,
    ) -> UpperBound:  # fmt: skip
        weakest, predicted, example, distance = None, None, None, None
        if witness is not None:
            if question.label is not None:
                predicted = int(self.check.scores(witness.point).argmax())
            if question.refusal is None:
                weakest = self.check.weakest(witness.point, inquiry.property([question]))
            example = witness.point.unflatten(0, self.network.input_shape).clone()
            distance = witness.distance
        return UpperBound(
            **question.fields(self.options.shape, weakest), method=self.options.method, distance=distance,
            witness=example, predicted=predicted, reason=reason, seconds=seconds, failed=failed,
            inference=self.network.inference.name, shown_by=None if witness is None else self.check.by,
        )  # fmt: skip

    def _minimise(self, inquiry: Inquiry, questions: list[Question], ends: float, report: Report) -> AttackObjective:
        """Runs all attacks on a batch of questions, in a share of the time."""
        deadline = within(ends, BEFORE_POLISH if self.options.polish else BEFORE_CHECK)
        reporter = Reporter(about_image(report, questions[0].image if len(questions) == 1 else None))
        with torch.inference_mode(False):  # whatever the caller's mode: attacks need gradients
            dtype, box = own_precision(self.network), self.check.inner_box
            centres = self.check.represent(inquiry.images[[question.image for question in questions]]).to(dtype)
            shape = replace(self.options.shape, box=None if box is None else box.cast(dtype))
            objective = AttackObjective(self.check.network, centres, inquiry.property(questions), shape, reporter)
            generators = [question.generator(self.options.seed) for question in questions]
            try:
                with until(deadline):
                    for number, run in enumerate(self.attacks, start=1):
                        reporter.enter(Progress(stage=STAGE, part=f"{number} of {len(self.attacks)}"))
                        run(objective, self.options.steps, generators)
            except TimeUp:
                objective.cut_short = True
            except FAULTS as error:
                objective.failure = f"the attack broke down: {in_one_line(error)}"
        return objective

    def _settle(
        self, inquiry: Inquiry, question: Question, objective: AttackObjective, number: int, ends: float
    ) -> tuple[AdversarialPoint | None, str | None, bool]:
        """The witness, re-checked and polished, a remark on it, and whether something broke down."""
        witness, image, prop = None, inquiry.images[question.image], inquiry.property([question])
        try:
            with torch.inference_mode():
                if bool(objective.succeeded[number]):
                    with until(max(ends, time.monotonic() + MOMENT)):
                        witness = self.check.beyond(image, objective.points[number], prop)
                if witness is not None and self.options.polish and self.check.exact.rectifiers_only:
                    polisher = Polisher(self.check, image, prop, witness, ends)
                    try:
                        polisher.run()
                    finally:
                        witness = polisher.witness
        except TimeUp:
            return None, NO_TIME, False
        except FAULTS as error:
            return witness, f"the polish broke down: {in_one_line(error)}", True
        if objective.failure is not None:
            return witness, objective.failure, True
        late = objective.cut_short or (self.options.polish and time.monotonic() > ends)
        if witness is None:
            return None, NO_TIME if late else NOTHING, False
        return witness, CUT_SHORT if late else None, False
