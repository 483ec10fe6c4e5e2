"""`method="best"`: the largest radius that can be proven in the time given for each answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from relucert.api.exact import EXACT_STEP
from relucert.arithmetic.region import RegionShape
from relucert.arithmetic.rigor import Arithmetic, check_subnormals
from relucert.common.names import MethodName
from relucert.common.progress import Report, Reporter, about_image, silent
from relucert.network import Network
from relucert.query.questions import Inquiry, Question
from relucert.search.end import SearchEnd
from relucert.search.portfolio import CHEAP_STEPS, Evidence, Evidential, PortfolioRun, Step, Task

BEST: MethodName = "best"
BUDGET = 10.0  # the default seconds for each answer
STEPS: tuple[Step, ...] = (*CHEAP_STEPS, EXACT_STEP)
"""The steps of the portfolio, in order: each starts from the best radius that is proven before it. On all but large
networks the first is always done."""


@dataclass(frozen=True)
class PortfolioEnd:
    """Result of the portfolio for one question; `reason`: why a larger radius may hold, or why there is none."""

    end: SearchEnd
    reason: str | None
    failed: bool
    seconds: float
    evidence: Evidence | None = None


@dataclass(frozen=True, eq=False)
class Portfolio:
    """Answers questions about one network, one after the other, each within the budget; keeper: as of a `Task`."""

    network: Network
    shape: RegionShape
    arithmetic: Arithmetic
    tolerance: float
    budget: float
    keeper: Evidential | None = None

    def run(self, inquiry: Inquiry, question: Question, report: Report = silent) -> PortfolioEnd:
        started = time.monotonic()
        if self.arithmetic.rigorous:
            check_subnormals()
        task = Task(
            self.network, inquiry, question, self.shape, self.arithmetic, self.tolerance, self.keeper,
            Reporter(about_image(report, question.image)),
        )  # fmt: skip
        run = PortfolioRun(task)
        run.run(STEPS, started + self.budget)
        best = run.best
        end = SearchEnd(
            0, None if best is None else best.radius, 0 if best is None else best.weakest, run.evaluations, True,
            BEST if best is None else best.step,
        )  # fmt: skip
        seconds, evidence = time.monotonic() - started, None if best is None else best.evidence
        return PortfolioEnd(end, self._reason(run), best is None and bool(run.errors), seconds, evidence)

    def _reason(self, run: PortfolioRun) -> str | None:
        remarks = [f"{step} failed: {error}" for step, error in run.errors.items()]
        if run.best is None:
            if run.cut_off:
                remarks.append(f"the budget of {self.budget:g} s ended before any radius was proven")
            return f"not certified: {'; '.join(remarks)}" if remarks else None
        if run.cut_off:
            steps = " and ".join(run.cut_off)
            remarks.append(f"the budget of {self.budget:g} s ended before {steps} did; a larger radius may hold")
        if run.without_proof:
            steps = " and ".join(run.without_proof)
            remarks.append(f"{steps} was left out, which has no proof files here; a larger radius may hold")
        return "; ".join(remarks) or None

    def each(self, inquiry: Inquiry, report: Report = silent) -> Iterator[tuple[Question, PortfolioEnd | None]]:
        """Every question with its result; None where the question is refused."""
        for question in inquiry.questions:
            yield question, None if question.refusal is not None else self.run(inquiry, question, report)
