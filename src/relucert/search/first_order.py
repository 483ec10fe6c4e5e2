"""The start of a search: margins to first order at the centre, and the rows that reach zero first."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from relucert.query.problem import Problem
from relucert.search.evaluation import Evaluator

LIMIT = 1e12  # no radius above is looked for, nor one below its inverse
ROWS = 3  # margins that a prediction looks at


def predicts_exactly(evaluator: Evaluator, problem: Problem) -> bool:
    """Whether what is predicted is what will be found: bounds before the first activations keep their relative
    widths, unless a box cuts balls that are no boxes; or no bounds are predicted."""
    alone = evaluator.network.activation_depths[-1] <= 1 and evaluator.surrogate is evaluator.method
    return evaluator.recomputes or (alone and problem.region.walls is None)


def slopes_at_centre(evaluator: Evaluator, problem: Problem, centre: dict[int, Tensor], margins: Tensor) -> Tensor:
    """The slope of each margin in the radius at the centre, (batch, rows), strictly negative; with a box the mean slope
    up to the radius at which the first margin would vanish without it."""
    radii = torch.ones(len(problem), dtype=torch.float64)
    unboxed = replace(problem, region=replace(problem.region, box=None))
    for questions in [unboxed] if problem.region.box is None else [unboxed, problem]:
        ahead = evaluator.margins_to_first_order(questions, radii, centre)
        slopes = ((ahead - margins) / radii[:, None]).clamp(max=-1e-30)
        radii = (margins / -slopes).clamp(1 / LIMIT, LIMIT).amin(1)
    return slopes


def least_rows(amounts: Tensor) -> Tensor:
    """The rows of the few least amounts: (batch, few)."""
    return amounts.topk(min(ROWS, amounts.shape[1]), largest=False).indices
