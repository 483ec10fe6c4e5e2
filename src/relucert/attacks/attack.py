"""`relucert.attack`: the nearest adversarial examples that attacks find, each with its witness.

Attacks run over batches of images. What they find is polished and re-checked image by image, outside of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relucert.answers import UpperBound
from relucert.attacks.methods import find_attacks
from relucert.attacks.minimum_norm import STARTS
from relucert.attacks.polish import Polisher
from relucert.attacks.pursuit import Box, Pursuit, TimeUp
from relucert.attacks.witness import Judge, Witness
from relucert.batching import attack_size
from relucert.checks import check_number, check_whole
from relucert.errors import InputError
from relucert.loading import load
from relucert.network import Network
from relucert.norm import Norm
from relucert.query.inputs import check_box
from relucert.query.property import Property, parse_target
from relucert.query.questions import Question, pose
from relucert.report.answer_list import Answers
from relucert.rigor import check_subnormals

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

NOTHING = "no attack found an adversarial example"
CUT_SHORT = "the time limit ended the attack; a nearer example may exist"
NO_TIME = "the time limit ended the attack before it found an adversarial example"
LEVEL = "a rival is level with the label at the image itself"
UNCLEAR = "at the image itself the label and a rival can't be told apart within rounding error"
BEFORE_POLISH = 0.6  # the attacks' share of a time limit
FAULTS = (RuntimeError, ArithmeticError, ValueError, MemoryError)
Progress = Callable[[int, int], None]


def attack(
    network: Network | torch.nn.Module | str,
    images: ArrayLike | Tensor,
    labels: Sequence[int] | ArrayLike | Tensor | None = None,
    **options: Any,
) -> Answers[UpperBound]:
    """The nearest adversarial example found for every image, in order; the options are those of `attack_each`."""
    return Answers(attack_each(network, images, labels, **options))


def attack_each(
    network: Network | torch.nn.Module | str,
    images: ArrayLike | Tensor,
    labels: Sequence[int] | ArrayLike | Tensor | None = None,
    *,
    norm: str | float | Norm = "inf",
    method: str = "best",
    target: str | int = "untargeted",
    box: tuple[float, float] | None = (-0.5, 0.5),
    polish: bool = True,
    steps: int = 200,
    time_limit: float | None = None,
    memory: int = 2**30,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[UpperBound]:
    """Adversarial examples one by one, in the images' order (with target "all": an image's rivals in turn).

    network, images, labels, norm, target: as for `certify_each`. Success against a target is that its score is no
    less than the label's, the exact opposite of what a certificate claims.
    method: "best" (several of the others, from several starts), "fmn" or "pgd" (any norm), "cw" (p = 2 or inf),
    "ead" (p = 1) or "ddn" (p = 2).
    box: the least and the largest valid pixel; None: every input is valid.
    polish: whether to shorten what was found by a search over linear regions.
    steps: gradient steps of each attack.
    time_limit: seconds for the whole call, shared evenly among the images; what was found by then is returned.
    memory: how many bytes the attack of one batch may take.
    seed: of random targets and random starts; the same seed gives the same answers.
    progress: called with how many parts of the work are done, and how many there are.

    Everything is checked at the call; the work is done as answers are asked for.
    """
    known = load(network)
    options = _Options(Norm.parse(norm), method, box, polish, steps, time_limit, memory, seed)
    asked = pose(known, images, labels, parse_target(target, known.classes), seed)
    check_inside(asked.images, options.box)
    step = attack_size(known, STARTS, options.memory)
    return _Attacker(known, options, progress).run(asked.images, asked.scores, asked.questions, step)


@dataclass(frozen=True)
class _Options:
    """How to attack, checked when built; the meanings stand at `attack_each`."""

    norm: Norm
    method: str
    box: Box | None
    polish: bool
    steps: int
    time_limit: float | None
    memory: int
    seed: int

    def __post_init__(self) -> None:
        find_attacks(self.method, self.norm)
        check_box(self.box)
        if not isinstance(self.polish, bool):
            raise InputError(f"polish is True or False, not {self.polish!r}")
        check_whole("number of steps", self.steps, 1, 10**6)
        check_whole("memory budget", self.memory, 1, 2**63 - 1)
        check_whole("seed", self.seed, 0, 2**63 - 1)
        if self.time_limit is not None:
            check_number("time limit", self.time_limit, 0, 1e9)


def check_inside(images: Tensor, box: Box | None) -> None:
    """Refuses images (batch, size) that are no valid inputs themselves."""
    if box is None:
        return
    outside = ((images < box[0]) | (images > box[1])).any(1)
    if bool(outside.any()):
        raise InputError(
            f"image {int(outside.int().argmax())} has pixels outside the box from {box[0]:g} to {box[1]:g}: "
            "pass box=(low, high) for the valid inputs, or box=None (--box, --no-box)"
        )


def overtaken(scores: Tensor, question: Question) -> bool:
    """Whether, as float64 tells, a rival is level with the label or ahead of it at the image itself."""
    level = question.refusal is None and bool((scores[question.rivals] >= scores[question.label]).any())
    return question.misclassified or level


def at_image(judge: Judge, image: Tensor, scores: Tensor, question: Question) -> tuple[Witness | None, str]:
    """The image as its own witness where that is proven, and what there is to say of it."""
    rivals = [int(scores.argmax())] if question.misclassified else question.rivals
    witness = judge.at_image(image, question.label, rivals)
    return witness, UNCLEAR if witness is None else question.refusal or LEVEL


class _Attacker:
    """Answers questions about one network, batch after batch."""

    def __init__(self, network: Network, options: _Options, progress: Progress | None) -> None:
        check_subnormals()
        self.network, self.options, self.progress = network, options, progress
        self.attacks = find_attacks(options.method, options.norm)
        self.judge = Judge(network, options.norm, options.box)
        self.total = 0

    def run(self, images: Tensor, scores: Tensor, questions: list[Question], step: int) -> Iterator[UpperBound]:
        ends = math.inf if self.options.time_limit is None else time.monotonic() + self.options.time_limit
        parts = len(self.attacks) + 1
        self.total = len(questions) * parts
        for first in range(0, len(questions), step):
            batch = _Batch(self, questions[first : first + step], first * parts)
            yield from batch.run(images, scores, _share(ends, len(batch.questions), len(questions) - first))

    def known(self, image: Tensor, scores: Tensor, question: Question) -> UpperBound | None:
        """The answer where no attack is needed."""
        if overtaken(scores, question):
            witness, reason = at_image(self.judge, image, scores, question)
            if witness is not None or question.misclassified:
                return self.answer(question, witness, reason, 0.0)
        return None if question.refusal is None else self.answer(question, None, question.refusal, 0.0)

    def answer(self, question: Question, witness: Witness | None, reason: str | None, seconds: float) -> UpperBound:
        target = question.rivals[0] if len(question.rivals) == 1 and question.refusal is None else None
        predicted, example, distance = None, None, None
        if witness is not None:
            scores = self.judge.scores(witness.point)
            predicted = int(scores.argmax())
            if question.refusal is None:
                target = max(question.rivals, key=lambda rival: float(scores[rival]))
            example = witness.point.unflatten(0, self.network.input_shape).clone()
            distance = witness.distance
        return UpperBound(
            question.image, question.label, target, self.options.norm.p, self.options.method, distance, example,
            predicted, self.options.box, reason, seconds,
        )  # fmt: skip

    def report(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, self.total)


class _Batch:
    """Questions that are attacked at once, and then settled one by one."""

    def __init__(self, attacker: _Attacker, questions: list[Question], done: int) -> None:
        self.attacker, self.questions, self.done = attacker, questions, done
        self.judge, self.options = attacker.judge, attacker.options
        self.cut_short = False
        self.failure: str | None = None

    def run(self, images: Tensor, scores: Tensor, ends: float) -> Iterator[UpperBound]:
        started = time.perf_counter()
        known = [self.attacker.known(images[own.image], scores[own.image], own) for own in self.questions]
        waiting = [own for own, answer in zip(self.questions, known, strict=True) if answer is None]
        points = iter(self._pursue(images, waiting, ends) if waiting else [])
        shared = (time.perf_counter() - started) / max(1, len(waiting))
        done = self.done + len(self.attacker.attacks) * len(self.questions)
        for place, (question, answer) in enumerate(zip(self.questions, known, strict=True)):
            self.attacker.report(done + place + 1)
            if answer is not None:
                yield answer
                continue
            begun = time.perf_counter()
            settled = self._settle(images[question.image], next(points), question, _share(ends, 1, len(known) - place))
            yield self.attacker.answer(question, *settled, shared + time.perf_counter() - begun)

    def _pursue(self, images: Tensor, questions: list[Question], ends: float) -> list[Tensor | None]:
        """The nearest point found for every question, if any."""
        options = self.options
        prop = Property(
            torch.tensor([own.label for own in questions]), torch.tensor([own.rivals for own in questions])
        )  # fmt: skip
        centres = self.judge.represent(images[[own.image for own in questions]])
        now = time.monotonic()
        deadline = now + (ends - now) * (BEFORE_POLISH if options.polish else 1)
        pursuit = Pursuit(self.judge.own, centres, prop, options.norm, self.judge.inner_box, deadline)
        try:
            for number, run in enumerate(self.attacker.attacks, start=1):
                run(pursuit, options.steps, [own.generator(options.seed) for own in questions])
                self.attacker.report(self.done + number * len(self.questions))
        except TimeUp:
            self.cut_short = True
        except FAULTS as error:
            self.failure = f"the attack broke down: {_line(error)}"
        return [point if found else None for point, found in zip(pursuit.points, pursuit.found.tolist(), strict=True)]

    def _settle(
        self, image: Tensor, point: Tensor | None, question: Question, ends: float
    ) -> tuple[Witness | None, str | None]:
        """The witness, re-checked and polished, and a remark."""
        witness, label, rivals = None, question.label, question.rivals
        try:
            with torch.inference_mode():
                if point is not None:
                    witness = self.judge.beyond(image, point, label, rivals)
                if witness is not None and self.options.polish:
                    polisher = Polisher(self.judge, image, label, rivals, witness, ends)
                    try:
                        polisher.run()
                    finally:
                        witness = polisher.witness
        except FAULTS as error:
            return witness, f"the polish broke down: {_line(error)}"
        if self.failure is not None:
            return witness, self.failure
        late = self.cut_short or (self.options.polish and time.monotonic() > ends)
        if witness is None:
            return None, NO_TIME if late else NOTHING
        return witness, CUT_SHORT if late else None


def _share(ends: float, part: int, whole: int) -> float:
    """When the time for a part of what is left ends, if every piece gets as much."""
    now = time.monotonic()
    return now + (ends - now) * part / whole


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
