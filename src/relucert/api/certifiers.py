"""The answerers of `relucert.certify`: a search with one method, or the portfolio `best`."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from relucert.answers.certificates import Certificate, Rounding, parse_rounding
from relucert.api.best import BEST, BUDGET, remark, run_portfolio
from relucert.arithmetic.norm import Norm, NormLike
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.arithmetic.rigor import DOUBLE, RECORDED, RIGOROUS
from relucert.common import names
from relucert.common.checks import check_number, check_seed, parse_memory
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
from relucert.search.portfolio import Task
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
        check_seed(self.seed)

    @property
    def budget_seconds(self) -> float:
        return BUDGET if self.budget is None else self.budget

    def find_method(self, report: Report = silent) -> Method:
        return find_method(self.method, self.shells, self.time_limit, report)


class _ProofWritingCertifier:
    """The base of both certifiers: certificates, and who writes proofs of them; proofs: a folder for these."""

    def __init__(self, network: Network, options: CertifyOptions, proofs: Path | None = None) -> None:
        self.network, self.options, self.proofs = network, options, proofs
        self.arithmetic, self.keeper = ARITHMETICS[options.arithmetic], EvidenceKeeper(network)
        self.writer: ProofWriter | None = None
        if proofs is not None:
            if options.arithmetic is not Rounding.RIGOROUS:
                raise InputError("proofs need rigorous arithmetic")
            if options.method != BEST:  # which leaves out what has no proofs
                check_provable(options.method, network)
            self.arithmetic, self.writer = RECORDED, ProofWriter(proofs, network, options.shape)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.network, self.options, self.proofs)

    def lost(self, inquiry: Inquiry, question: Question, reason: str) -> Certificate:
        """The answer to a question whose worker process died."""
        return self._certificate(question, None, f"not certified: {reason}", 0.0, failed=True)

    def _refused(self, question: Question) -> Certificate:
        return self._certificate(question, None, question.refusal, 0.0)

    def _certificate(
        self, question: Question, end: SearchEnd | None, reason: str | None, seconds: float, failed: bool = False
    ) -> Certificate:
        """The answer, from the end of a search and a remark on it, or the reason why there is none."""
        options = self.options
        proven = None if end is None or end.radius is None else end
        if end is not None and proven is None:
            reason = "not certified: no radius could be proven; the margin may be within rounding error of zero"
        elif proven is not None and proven.radius == math.inf:
            how = "proven" if options.arithmetic is Rounding.RIGOROUS else "holds, rounding ignored,"
            reason = f"{how} for every valid input, at any distance"
        elif proven is not None and not proven.closed:
            reason = "the search ended before it reached its tolerance; a larger radius may hold"
        return Certificate(
            **question.fields(options.shape, None if proven is None else proven.weakest), method=options.method,
            arithmetic=options.arithmetic, radius=None if proven is None else proven.radius, reason=reason,
            seconds=seconds, evaluations=0 if end is None else end.evaluations, failed=failed,
            due_to=None if proven is None else proven.method, inference=options.inference.name,
        )  # fmt: skip


class BestCertifier(_ProofWritingCertifier):
    """Answers questions about one network with the method "best", one after the other."""

    def run(self, inquiry: Inquiry, report: Report) -> Iterator[list[Certificate]]:
        """Yields the answers, in the order of the questions."""
        for question in inquiry.questions:
            if question.refusal is not None:
                yield [self._refused(question)]
            else:
                yield [self._answer(inquiry, question, report)]

    def _answer(self, inquiry: Inquiry, question: Question, report: Report) -> Certificate:
        options, started = self.options, time.monotonic()
        task = Task(
            self.network, inquiry, question, options.shape, self.arithmetic, options.tolerance,
            None if self.writer is None else self.keeper, Reporter(about_image(report, question.image)),
        )  # fmt: skip
        run = run_portfolio(task, options.budget_seconds)
        seconds, best, end = time.monotonic() - started, run.best, None
        reason = remark(run, options.budget_seconds)
        if best is not None:
            end = SearchEnd(0, best.radius, best.weakest, run.evaluations, True, best.step)
            if self.writer is not None and best.evidence is not None:
                self.writer.write(inquiry, question, best.evidence)
        elif reason is None:
            end = SearchEnd(0, None, 0, run.evaluations, True, BEST)
        return self._certificate(question, end, reason, seconds, failed=best is None and bool(run.errors))


class Certifier(_ProofWritingCertifier):
    """Answers questions about one network, in batches of at most `step` questions, or of one image.

    experience: the searcher's experience after the first batch that was searched, from which every later batch starts,
    so that answers do not depend on the order of batches; None before it.
    """

    def __init__(
        self,
        network: Network,
        options: CertifyOptions,
        step: int,
        experience: str | None = None,
        proofs: Path | None = None,
    ) -> None:
        super().__init__(network, options, proofs)
        self.step, self.experience = step, experience
        self.reporter = Reporter()
        method = options.find_method(self.reporter)
        if self.writer is not None:
            method = self.keeper.recorded(method)
        self.searcher = Searcher(network, method, self.arithmetic, options.tolerance, self.reporter)
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
        certificates = self._batch(inquiry)
        if self.experience is None and self.searcher.experience != self._innocent:
            self.experience = self.searcher.experience
        yield certificates

    def _batch(self, inquiry: Inquiry) -> list[Certificate]:
        started = time.perf_counter()
        searched = [question for question in inquiry.questions if question.refusal is None]
        ends, failure = self._search(inquiry, searched)
        seconds = (time.perf_counter() - started) / max(1, len(searched))
        props = inquiry.property(searched).members() if searched else iter(())
        answers = []
        for question in inquiry.questions:
            if question.refusal is not None:
                answers.append(self._refused(question))
                continue
            end, reason, prop = ends.get(question), failure, next(props)
            if end is not None:
                reason = self.searcher.method.remark(inquiry.images[question.image], prop)
                if (unwritten := self._unwritten(inquiry, question, end)) is not None:
                    end, reason = None, unwritten
            answers.append(self._certificate(question, end, reason, seconds, failed=end is None))
        self.keeper.forget(self.searcher.method)
        return answers

    def _unwritten(self, inquiry: Inquiry, question: Question, end: SearchEnd) -> str | None:
        """Writes the proof of a radius, if there is a writer; returns the reason where that fails, otherwise None."""
        if self.writer is None or end.radius is None:
            return None
        problem = inquiry.problem(self.network, self.options.shape, [question])
        try:
            self.writer.write(inquiry, question, self.keeper.evidence(self.searcher.method, problem, end))
        except FAULTS as error:
            return f"not certified: its proof could not be written: {in_one_line(error)}"
        return None

    def _search(self, inquiry: Inquiry, searched: list[Question]) -> tuple[dict[Question, SearchEnd], str | None]:
        """The end of each search, by its question; and the reason, if the arithmetic broke down."""
        ends: dict[Question, SearchEnd] = {}
        if not searched:
            return ends, None
        try:
            with torch.inference_mode():
                images = [question.image for question in searched]
                for end in self._ends(inquiry.problem(self.network, self.options.shape, searched), images):
                    ends[searched[end.question]] = end
        except RoundingError as error:  # of this process, which may be one of many
            return ends, f"not certified: {error}"
        except RelucertError:
            raise
        except FAULTS as error:
            return ends, f"not certified: {in_one_line(error)}"
        return ends, None

    def _ends(self, problem: Problem, images: list[int]) -> Iterator[SearchEnd]:
        """Searches for all radii at once; where a batch has no room for all rivals of an image, rival by rival, with
        shared bounds of the hidden layers. images: The image of each question."""
        region, prop = problem.region, problem.prop
        rivals, *others = set(Counter(images).values())  # of each image
        if self.searcher.method.weaker is not None or self.step >= rivals or others:
            return self.searcher.run(region, prop)
        rows, offsets = (table.unflatten(0, (-1, rivals)).squeeze(2) for table in (prop.rows, prop.offsets))
        return self.searcher.run_each(region.select(torch.arange(0, len(prop), rivals)), Property(rows, offsets))
