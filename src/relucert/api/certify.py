"""The public calls: they check what came, put the question to a method, and build the answers."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relucert.answers.certificates import Certificate, Rounding, parse_rounding
from relucert.api.arguments import Arguments, Posed, one_by_one
from relucert.api.best import BEST, BUDGET, Portfolio
from relucert.arithmetic.norm import Norm, NormLike
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region, RegionShape, check_region
from relucert.arithmetic.rigor import DOUBLE, RECORDED, RIGOROUS, check_subnormals
from relucert.bounding.backward import backward
from relucert.bounding.forward import forward
from relucert.bounding.interval import Interval
from relucert.bounding.interval_propagation import interval_bounds
from relucert.bounding.relaxers import RELAXERS
from relucert.common import names
from relucert.common.checks import check_number, check_whole, checked_path, parse_memory
from relucert.common.names import ArithmeticName, FormName, InferenceName, MethodName, RelaxerName
from relucert.common.numbers import NumberLike
from relucert.common.progress import ProgressLike, Report, Reporter, about_image, silent
from relucert.errors import FAULTS, InputError, RelucertError, RoundingError, in_one_line
from relucert.execution.execution import Execution, check_proof_place
from relucert.execution.job import by_images, in_steps
from relucert.inputs.loading import load
from relucert.inputs.storage.store import StoreLike
from relucert.methods.method import Method
from relucert.methods.programs import ProgramMethod
from relucert.methods.table import check_inference, find_method
from relucert.network import REAL, Inference, Network, find_inference
from relucert.network.batching import INTERVAL, batch_size, question_bytes
from relucert.proofs.files import EvidenceKeeper, ProofWriter, check_provable
from relucert.query.given import BoxLike, ImagesLike, LabelsLike, NetworkLike, ScaleLike, TargetLike
from relucert.query.plausible import warn_of_range
from relucert.query.problem import Problem
from relucert.query.questions import Inquiry, Question, prepare
from relucert.report.answer_list import Answers
from relucert.search.radius import SearchEnd, Searcher

ARITHMETICS = {Rounding.RIGOROUS: RIGOROUS, Rounding.FLOAT: DOUBLE}
FEW = 8  # questions at once where each takes long: an interruption loses no more
FORMS: dict[FormName, Any] = {"forward": forward, "backward": backward}


def certify(
    network: NetworkLike,
    images: ImagesLike,
    labels: LabelsLike | None = None,
    *,
    norm: NormLike = "inf",
    method: MethodName = "fast-lin",
    target: TargetLike = "untargeted",
    property: Property | None = None,
    box: BoxLike | None = None,
    scale: ScaleLike | None = None,
    arithmetic: ArithmeticName = "rigorous",
    inference: InferenceName = "real",
    tolerance: float = 1e-4,
    memory: int | str = 2**30,
    seed: int = 0,
    shells: int | None = None,
    time_limit: float | None = None,
    budget: float | None = None,
    proofs: str | os.PathLike[str] | None = None,
    input_shape: tuple[int, ...] | None = None,
    workers: int | Execution | None = None,
    ray: str | None = None,
    store: StoreLike | None = None,
    progress: ProgressLike = None,
) -> Answers[Certificate]:
    """The certified radius of every image, in the images' order (with target "all": an image's rivals in turn).

    Args:
        network: A Network, a torch.nn.Module, a torch.export.ExportedProgram, a file or a zoo name.
        images: An array or a tensor, one row per image, in the network's own input range, or a data set: relucert's, or
            a torch Dataset or DataLoader of image and label. A row has the input's shape, or is flat, or differs by
            axes of length one.
        labels: One class per image; by default those of the data set, else the network's predictions.
        norm: "inf" (or "linf"), "2" ("l2"), "1" ("l1") or any number >= 1.
        method: "fast-lin", "crown", "alpha", "interval", "fast-lip", "lipschitz-norm", "op-norm", "lp",
            "lp-full", "sdp" or "best".
        target: "runner-up", "least-likely", "random" (drawn with `seed`), a class index, "all" or "untargeted"; or one
            class per image, in a list, an array or a tensor.
        property: What must hold around every image in place of its class, such as `Property.outputs_within`; one for
            all images or one each.
        box: The valid inputs: None (every input), two numbers, or two arrays of the input's shape, the lowest and the
            highest valid value of every coordinate.
        scale: None, or an array of the input's shape: how far each coordinate may move per unit of radius (0: it
            stays).
        arithmetic: "rigorous" (proven, rounding included) or "float" (rounding ignored: no proof).
        inference: What the network is evaluated in: "real" arithmetic, or "float32", "float16" or "bfloat16", which
            round every operation. The certificate then holds for every such evaluation.
        tolerance: How far, relatively, a radius may stay below the largest the method can prove.
        memory: How many bytes all bounds that are worked on at a time may take, by all workers together; or "2G".
        seed: What random targets are drawn with.
        shells: For "fast-lip" and "lipschitz-norm" alone, how many shells the ball is split into (30; 1 is the plain
            form).
        time_limit: For "lp" and "lp-full" alone, how many seconds each program may take (60).
        budget: For "best" alone, how many seconds each answer may take (10).
        proofs: A folder for proofs, one file per certified answer, which `relucert check` verifies: for "interval",
            "fast-lin", "crown", "alpha", "lp", "lp-full" and "best", and
            for "sdp" on chains of linear layers or convolutions and ReLUs.
        input_shape: Of one image, where neither the network nor the images tell it.
        workers: How many processes of one thread each; by default this one, and one per core for what would take long.
        ray: The address of a Ray cluster to work on, or "auto", in the place of `workers`.
        store: A file that keeps the answers as they come: the same call goes on where an earlier one was stopped.
        progress: A function that is called with how far it is, a `Progress`; True: a bar, in notebooks, in terminals
            and as lines in logs; False: none. By default notebooks show a bar.
    """
    return Answers(certify_each(**locals()))


@one_by_one(certify)
def certify_each(arguments: Arguments, proofs: str | os.PathLike[str] | None, **effort: Any) -> Iterator[Certificate]:
    """The certificates of `certify`, one by one as they are found.

    Everything is checked at the call; the work is done as answers are asked for.
    """
    options = Options.parse(arguments.norm, inference=arguments.inference, seed=arguments.seed, **effort)
    posed = arguments.pose()
    options = replace(options, shape=posed.shape)
    folder = None if proofs is None else checked_path(proofs, "a folder of proofs")
    if folder is not None:
        check_proof_place(arguments.workers, arguments.ray)
    return _started(posed, options, folder)


def _started(posed: Posed, options: Options, proofs: Path | None) -> Iterator[Certificate]:
    """Puts the questions to the method, in batches that fit the memory."""
    network, inquiry = posed.network, posed.inquiry
    rows = max(len(question.rivals) for question in inquiry.questions)
    step = batch_size(network, rows, options.memory, options.method)
    if options.method == BEST:
        step = 1
        items = in_steps(inquiry, 1)
    elif options.find_method().weaker is not None:
        step = min(step, FEW)
        items = by_images(inquiry, step)
    else:
        items = by_images(inquiry, step, first=1)
    most_workers = max(1, options.memory // (step * question_bytes(network, rows, options.method)))
    further = {"proofs": None if proofs is None else str(proofs.resolve())}
    if options.method == BEST:  # whose answers need not have proofs
        best = BestCertifier(network, options, proofs)
        return posed.start("certify", best, items, options, most_workers, further=further)
    certifier = Certifier(network, options, step, proofs=proofs)
    return posed.start("certify", certifier, items, options, most_workers, certifier.writer, further=further)


def bounds(
    network: NetworkLike,
    region: Region | ImagesLike,
    *,
    radius: NumberLike | Tensor | None = None,
    norm: NormLike | None = None,
    method: RelaxerName = "fast-lin",
    form: FormName = "forward",
    arithmetic: ArithmeticName = "rigorous",
    inference: InferenceName = "real",
    box: BoxLike | None = None,
    scale: ScaleLike | None = None,
    input_shape: tuple[int, ...] | None = None,
) -> list[Interval]:
    """Two-sided bounds of every neuron: one Interval (batch, size) for each value before a ReLU, then the output.

    Args:
        network: A Network, a torch.nn.Module, a file or a zoo name.
        region: The images, one row each, with a radius; or a region as `relucert.Region.around` makes it, where box and
            scale may be given as well.
        radius: Around the images: one for all, or one for each.
        norm: Of the radius, as for `certify` ("inf").
        method: "fast-lin", "interval" with the forward form alone, or "crown" with the backward form alone.
        form: "forward" (a zonotope carried from the input) or "backward" (the paper's recursion).
        arithmetic: "rigorous" (rounding included) or "float" (rounding ignored).
        inference: What the network is evaluated in, as for `certify`: what is bounded are the computed values.
        box: The valid inputs, as for `certify`.
        scale: How far each coordinate may move per unit of radius, as for `certify`.
        input_shape: Of one image, where the network does not tell it.
    """
    direction, relaxer = names.FORMS.find(form), names.RELAXERS.find(method)
    if relaxer == INTERVAL and direction != "forward":
        raise InputError(f"interval bounds are carried forward: leave form={form!r} out")
    rounding, evaluation = ARITHMETICS[parse_rounding(arithmetic)], find_inference(inference)
    if isinstance(region, Region):
        if radius is not None or norm is not None:
            raise InputError("a region has its radius and its norm already: give them with images")
        loaded = load(network, input_shape=input_shape).evaluated_in(evaluation)
    else:
        if radius is None:
            raise InputError("bounds are about a region: give images and their radius, or a relucert.Region")
        prepared = prepare(network, region, None, input_shape)
        loaded = prepared.network.evaluated_in(evaluation)
        region = Region.around(prepared.images, radius, "inf" if norm is None else norm)
    region = check_region(region, box, scale, loaded.input_shape)
    warn_of_range(loaded, region.points)
    if rounding.rigorous:
        check_subnormals()
    with torch.inference_mode():
        cast, inside = loaded.cast(rounding.dtype), region.cast(rounding.dtype)
        if relaxer == INTERVAL:
            intervals = interval_bounds(cast, inside, rounding, (*loaded.preactivations, loaded.output))
        else:
            intervals = FORMS[direction](cast, inside, RELAXERS[relaxer], rounding, (loaded.output,))
    return [intervals[value] for value in sorted(intervals)]


@dataclass(frozen=True)
class Options:
    """How to certify, checked when built; the meanings stand at `certify`."""

    shape: RegionShape
    method: str
    arithmetic: Rounding
    tolerance: float
    memory: int
    seed: int
    shells: int | None = None
    time_limit: float | None = None
    budget: float | None = None
    inference: Inference = REAL

    @classmethod
    def parse(
        cls, norm: NormLike, method: str, arithmetic: str, inference: str, memory: int | str, **others: Any
    ) -> Options:
        """The options as users give them, about inputs that are all valid: what can be told without the network."""
        return cls(
            RegionShape(Norm.parse(norm)), names.METHODS.find(method), parse_rounding(arithmetic),
            memory=parse_memory(memory), inference=find_inference(inference), **others,
        )  # fmt: skip

    def __post_init__(self) -> None:
        if self.method == BEST:
            if self.shells is not None or self.time_limit is not None:
                raise InputError(f"the method {BEST!r} has a budget, no shells or time limit of programs")
            check_number("budget", self.budget_seconds, 1e-3, 1e9)
        else:
            method = self.find_method()
            check_inference(method, self.inference)
            if isinstance(method, ProgramMethod):
                method.check(self.shape.norm)
            if self.budget is not None:
                raise InputError(f"the method {self.method!r} has no budget; {BEST!r} has one")
        check_number("tolerance", self.tolerance, 1e-9, 0.5)
        check_whole("seed", self.seed, 0, 2**63 - 1)

    @property
    def budget_seconds(self) -> float:
        return BUDGET if self.budget is None else self.budget

    def find_method(self, report: Report = silent) -> Method:
        return find_method(self.method, self.shells, self.time_limit, report)


class BestCertifier:
    """Answers questions about one network with the method "best", one after the other."""

    def __init__(self, network: Network, options: Options, proofs: Path | None = None) -> None:
        self.network, self.options, self.proofs = network, options, proofs
        arithmetic, keeper, self.writer = ARITHMETICS[options.arithmetic], None, None
        if proofs is not None:
            _check_rigorous(options)
            arithmetic, keeper = RECORDED, EvidenceKeeper(network)
            self.writer = ProofWriter(proofs, network, options.shape)
        self.portfolio = Portfolio(
            network, options.shape, arithmetic, options.tolerance, options.budget_seconds, keeper
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return BestCertifier, (self.network, self.options, self.proofs)

    def run(self, inquiry: Inquiry, report: Report) -> Iterator[list[Certificate]]:
        """The answers, in the order of the questions."""
        for question, ended in self.portfolio.each(inquiry, report):
            if ended is None:
                yield [_certificate(self.options, question, None, question.refusal, 0.0)]
            else:
                end = None if ended.end.radius is None and ended.reason is not None else ended.end
                if self.writer is not None and ended.evidence is not None:
                    self.writer.write(inquiry, question, ended.evidence)
                yield [_certificate(self.options, question, end, ended.reason, ended.seconds, ended.failed)]

    def lost(self, inquiry: Inquiry, question: Question, reason: str) -> Certificate:
        """The answer where the processes that worked on it ended."""
        return _lost(self.options, question, reason)


class Certifier:
    """Answers questions about one network, a batch of at most `step` of them, or one image's, at once.

    experience: where the search for each batch starts from: what the first one taught, so that answers do not depend
    on who found which others before. None: nothing was learnt yet. proofs: a folder for a proof of each answer.
    """

    def __init__(
        self, network: Network, options: Options, step: int, experience: str | None = None, proofs: Path | None = None
    ) -> None:
        self.network, self.options, self.step, self.experience = network, options, step, experience
        self.proofs = proofs
        self.reporter = Reporter()
        method = options.find_method(self.reporter)
        arithmetic, self.writer = ARITHMETICS[options.arithmetic], None
        self.keeper = EvidenceKeeper(network)
        if proofs is not None:
            _check_rigorous(options)
            check_provable(options.method, network)
            arithmetic, method = RECORDED, self.keeper.recorded(method)
            self.writer = ProofWriter(proofs, network, options.shape)
        self.searcher = Searcher(network, method, arithmetic, options.tolerance, self.reporter)
        self._innocent = self.searcher.experience
        if method.weaker is not None:
            self.experience = self._innocent  # the others need not wait for the first, which may take long

    def __reduce__(self) -> tuple[Any, ...]:
        return Certifier, (self.network, self.options, self.step, self.experience, self.proofs)

    def run(self, inquiry: Inquiry, report: Report) -> Iterator[list[Certificate]]:
        """All answers at once, in the order of the questions."""
        images = {question.image for question in inquiry.questions}
        image = images.pop() if len(images) == 1 else None
        self.reporter.listener = about_image(report, image)
        self.searcher.recall(self.experience or self._innocent)
        certificates = self._batch(inquiry, inquiry.questions, self.step)
        self.experience = self.experience or self.searcher.experience
        yield certificates

    def lost(self, inquiry: Inquiry, question: Question, reason: str) -> Certificate:
        """The answer where the processes that worked on it ended."""
        return _lost(self.options, question, reason)

    def _batch(self, inquiry: Inquiry, questions: list[Question], step: int) -> list[Certificate]:
        started = time.perf_counter()
        asked = [question for question in questions if question.refusal is None]
        ends, failure = self._search(inquiry, asked, step)
        seconds = (time.perf_counter() - started) / max(1, len(asked))
        answers, numbers = [], iter(range(len(asked)))
        for question in questions:
            if question.refusal is not None:
                answers.append(_certificate(self.options, question, None, question.refusal, 0.0))
            else:
                end, reason = ends.get(next(numbers)), failure
                if end is not None:
                    problem = inquiry.problem(self.network, self.options.shape, [question])
                    reason = self.searcher.method.remark(problem.centre, problem.prop)
                    if (unwritten := self._unwritten(inquiry, question, end)) is not None:
                        end, reason = None, unwritten
                answers.append(_certificate(self.options, question, end, reason, seconds, failed=end is None))
        self.keeper.forget(self.searcher.method)
        return answers

    def _unwritten(self, inquiry: Inquiry, question: Question, end: SearchEnd) -> str | None:
        """Writes the proof of a radius where that is asked for; why there is none."""
        if self.writer is None or end.radius is None:
            return None
        try:
            problem = inquiry.problem(self.network, self.options.shape, [question])
            evidence = self.keeper.evidence(self.searcher.method, problem, end)
            self.writer.write(inquiry, question, evidence)
        except FAULTS as error:
            return f"not certified: its proof could not be written: {in_one_line(error)}"
        return None

    def _search(self, inquiry: Inquiry, asked: list[Question], step: int) -> tuple[dict[int, SearchEnd], str | None]:
        """How each search ended, by its position; where the arithmetic broke down, the reason."""
        if not asked:
            return {}, None
        ends: dict[int, SearchEnd] = {}
        try:
            with torch.inference_mode():
                images = [question.image for question in asked]
                for end in self._ends(inquiry.problem(self.network, self.options.shape, asked), images, step):
                    ends[end.question] = end
        except RoundingError as error:  # of this process, which may be one of many
            return ends, f"not certified: {error}"
        except RelucertError:
            raise
        except FAULTS as error:
            return ends, f"not certified: {in_one_line(error)}"
        return ends, None

    def _ends(self, problem: Problem, images: list[int], step: int) -> Iterator[SearchEnd]:
        """Searches for all radii at once, or, where a batch has no room for all rivals of an image, for those of one
        rival after the other, which share what is learnt of the hidden layers. images: The image of each question."""
        region, prop = problem.region, problem.prop
        rivals = len(images) // len(set(images))
        even = all(images.count(image) == rivals for image in set(images))
        in_turn = self.searcher.method.weaker is None and step < rivals and even
        if not in_turn:
            return self.searcher.run(region, prop)
        rows, offsets = (table.unflatten(0, (-1, rivals)).squeeze(2) for table in (prop.rows, prop.offsets))
        return self.searcher.run_each(region.select(torch.arange(0, len(prop), rivals)), Property(rows, offsets))


def _check_rigorous(options: Options) -> None:
    if options.arithmetic is not Rounding.RIGOROUS:
        raise InputError("proofs need rigorous arithmetic")


def _lost(options: Options, question: Question, reason: str) -> Certificate:
    return _certificate(options, question, None, f"not certified: {reason}", 0.0, failed=True)


def _certificate(
    options: Options,
    question: Question,
    end: SearchEnd | None,
    reason: str | None,
    seconds: float,
    failed: bool = False,
) -> Certificate:
    radius, weakest = None, None
    if end is not None:
        radius = end.radius
        if radius is None:
            reason = "not certified: no radius could be proven; the margin may be within rounding error of zero"
        elif radius == math.inf:
            how = "proven" if options.arithmetic is Rounding.RIGOROUS else "holds, rounding ignored,"
            reason = f"{how} for every valid input, at any distance"
        elif not end.closed:
            reason = "the search ended before it reached its tolerance; a larger radius may hold"
    if end is not None and radius is not None:
        weakest = end.weakest
    target, row = question.named(weakest)
    shape = options.shape
    return Certificate(
        question.image, question.label, target, shape.norm.p, options.method, options.arithmetic,
        radius, reason, seconds, end.evaluations if end is not None else 0, shape.given_box, shape.scale,
        failed, None if end is None or radius is None else end.method, options.inference.name, row,
    )  # fmt: skip
