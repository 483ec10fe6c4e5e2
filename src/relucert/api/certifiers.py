"""The answerers of `relucert.certify`: a search with one method, or the portfolio `best`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from relucert.answers.certificates import Certificate, Rounding, parse_rounding
from relucert.api.best import BEST, BUDGET, Portfolio
from relucert.arithmetic.norm import Norm, NormLike
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.arithmetic.rigor import DOUBLE, RECORDED, RIGOROUS
from relucert.common import names
from relucert.common.checks import check_number, check_whole, parse_memory
from relucert.common.progress import Report, Reporter, about_image, silent
from relucert.errors import FAULTS, InputError, RelucertError, RoundingError, in_one_line
from relucert.methods.method import Method
from relucert.methods.programs import ProgramMethod
from relucert.methods.table import check_inference, find_method
from relucert.network import REAL, Inference, Network, find_inference
from relucert.proofs.files import EvidenceKeeper, ProofWriter, check_provable
from relucert.query.problem import Problem
from relucert.query.questions import Inquiry, Question
from relucert.search.end import SearchEnd
from relucert.search.radius import Searcher

ARITHMETICS = {Rounding.RIGOROUS: RIGOROUS, Rounding.FLOAT: DOUBLE}


@dataclass(frozen=True)
class CertifyOptions:
    """Options of `certify`, which explains them; checked when built."""

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
        cls, norm: NormLike, method: str, arithmetic: str, inference: str, memory: int | str, **effort: Any
    ) -> CertifyOptions:
        """The options of a user, checked as far as they can be without the network: every input counts as valid."""
        return cls(
            RegionShape(Norm.parse(norm)), names.METHODS.find(method), parse_rounding(arithmetic),
            memory=parse_memory(memory), inference=find_inference(inference), **effort,
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

    def __init__(self, network: Network, options: CertifyOptions, proofs: Path | None = None) -> None:
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
        """Yields the answers, in the order of the questions."""
        for question, ended in self.portfolio.each(inquiry, report):
            if ended is None:
                yield [_certificate(self.options, question, None, question.refusal, 0.0)]
            else:
                end = None if ended.end.radius is None and ended.reason is not None else ended.end
                if self.writer is not None and ended.evidence is not None:
                    self.writer.write(inquiry, question, ended.evidence)
                yield [_certificate(self.options, question, end, ended.reason, ended.seconds, ended.failed)]

    def lost(self, inquiry: Inquiry, question: Question, reason: str) -> Certificate:
        """The answer to a question whose worker process died."""
        return _lost(self.options, question, reason)


class Certifier:
    """Answers questions about one network, in batches of at most `step` questions, or of one image.

    experience: the searcher's experience after the first batch that was searched, from which every later batch starts,
    so that answers do not depend on the order of batches; None before it. proofs: a folder for a proof of each answer.
    """

    def __init__(
        self,
        network: Network,
        options: CertifyOptions,
        step: int,
        experience: str | None = None,
        proofs: Path | None = None,
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
        """Yields all answers at once, in the order of the questions."""
        images = {question.image for question in inquiry.questions}
        image = images.pop() if len(images) == 1 else None
        self.reporter.listener = about_image(report, image)
        self.searcher.recall(self.experience or self._innocent)
        certificates = self._batch(inquiry, inquiry.questions, self.step)
        if self.experience is None and self.searcher.experience != self._innocent:
            self.experience = self.searcher.experience
        yield certificates

    def lost(self, inquiry: Inquiry, question: Question, reason: str) -> Certificate:
        """The answer to a question whose worker process died."""
        return _lost(self.options, question, reason)

    def _batch(self, inquiry: Inquiry, questions: list[Question], step: int) -> list[Certificate]:
        started = time.perf_counter()
        searched = [question for question in questions if question.refusal is None]
        ends, failure = self._search(inquiry, searched, step)
        seconds = (time.perf_counter() - started) / max(1, len(searched))
        answers, numbers = [], iter(range(len(searched)))
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
        """Writes the proof of a radius, if there is a writer; returns the reason where that fails, otherwise None."""
        if self.writer is None or end.radius is None:
            return None
        try:
            problem = inquiry.problem(self.network, self.options.shape, [question])
            evidence = self.keeper.evidence(self.searcher.method, problem, end)
            self.writer.write(inquiry, question, evidence)
        except FAULTS as error:
            return f"not certified: its proof could not be written: {in_one_line(error)}"
        return None

    def _search(self, inquiry: Inquiry, searched: list[Question], step: int) -> tuple[dict[int, SearchEnd], str | None]:
        """The end of each search, by the question's index; and the reason, if the arithmetic broke down."""
        if not searched:
            return {}, None
        ends: dict[int, SearchEnd] = {}
        try:
            with torch.inference_mode():
                images = [question.image for question in searched]
                for end in self._ends(inquiry.problem(self.network, self.options.shape, searched), images, step):
                    ends[end.question] = end
        except RoundingError as error:  # of this process, which may be one of many
            return ends, f"not certified: {error}"
        except RelucertError:
            raise
        except FAULTS as error:
            return ends, f"not certified: {in_one_line(error)}"
        return ends, None

    def _ends(self, problem: Problem, images: list[int], step: int) -> Iterator[SearchEnd]:
        """Searches for all radii at once; where a batch has no room for all rivals of an image, rival by rival, with
        shared bounds of the hidden layers. images: The image of each question."""
        region, prop = problem.region, problem.prop
        rivals = len(images) // len(set(images))
        even = all(images.count(image) == rivals for image in set(images))
        in_turn = self.searcher.method.weaker is None and step < rivals and even
        if not in_turn:
            return self.searcher.run(region, prop)
        rows, offsets = (table.unflatten(0, (-1, rivals)).squeeze(2) for table in (prop.rows, prop.offsets))
        return self.searcher.run_each(region.select(torch.arange(0, len(prop), rivals)), Property(rows, offsets))


def _check_rigorous(options: CertifyOptions) -> None:
    if options.arithmetic is not Rounding.RIGOROUS:
        raise InputError("proofs need rigorous arithmetic")


def _lost(options: CertifyOptions, question: Question, reason: str) -> Certificate:
    return _certificate(options, question, None, f"not certified: {reason}", 0.0, failed=True)


def _certificate(
    options: CertifyOptions,
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
