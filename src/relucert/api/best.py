"""`method="best"`: the largest radius that can be proven in the time given for each answer."""

from __future__ import annotations

import time

from relucert.api.exact import EXACT_STEP
from relucert.arithmetic.rigor import check_subnormals
from relucert.common.names import MethodName
from relucert.search.portfolio import CHEAP_STEPS, PortfolioRun, Step, Task

BEST: MethodName = "best"
BUDGET = 10.0  # the default seconds for each answer
STEPS: tuple[Step, ...] = (*CHEAP_STEPS, EXACT_STEP)
"""The steps of the portfolio, in order: each starts from the best radius that is proven before it. On all but large
networks the first is always done."""


def run_portfolio(task: Task, budget: float) -> PortfolioRun:
    """Runs all steps on a question, as long as its budget of seconds lasts."""
    started = time.monotonic()
    if task.arithmetic.rigorous:
        check_subnormals()
    run = PortfolioRun(task)
    run.run(STEPS, started + budget)
    return run


def remark(run: PortfolioRun, budget: float) -> str | None:
    """Why a larger radius may hold than the portfolio proved, or why it proved none."""
    remarks = [f"{step} failed: {error}" for step, error in run.errors.items()]
    if run.best is None:
        if run.cut_off:
            remarks.append(f"the budget of {budget:g} s ended before any radius was proven")
        return f"not certified: {'; '.join(remarks)}" if remarks else None
    if run.cut_off:
        steps = " and ".join(run.cut_off)
        remarks.append(f"the budget of {budget:g} s ended before {steps} did; a larger radius may hold")
    if run.without_proof:
        steps = " and ".join(run.without_proof)
        remarks.append(f"{steps} was left out, which has no proof files here; a larger radius may hold")
    return "; ".join(remarks) or None
