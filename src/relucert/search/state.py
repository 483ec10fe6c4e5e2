"""The state of a batch of radius searches, which begins with margins to first order at the centre."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from relucert.common.progress import Reporter
from relucert.query.problem import Problem
from relucert.search.end import SearchEnd
from relucert.search.evaluation import Evaluation, Evaluator
from relucert.search.experience import Experience
from relucert.search.prediction import Correction, join
from relucert.search.shells import PredictionModel, ShellBounds

LIMIT = 1e12  # no radius above is looked for, nor one below its inverse
ROWS = 3  # margins that a prediction looks at
ABOVE_GUESS = 1.4  # how far beyond a guess of the root, before the first evaluation, shells tell it best


class SearchState:
    """The state of a batch of radius searches; every tensor has one row per question still open."""

    def __init__(self, evaluator: Evaluator, experience: Experience, reporter: Reporter, problem: Problem) -> None:
        """The state before the first evaluation: margins and their slopes at the centre."""
        self.evaluator, self.experience, self.reporter, self.problem = evaluator, experience, reporter, problem
        network, region, prop = evaluator.instance(problem, problem.region.radius, evaluator.quick)
        values = network.values(region.points)
        count = len(problem)
        which = torch.arange(count) if region.which is None else region.which
        centre = {value: values[value][which] for value in network.preactivations}
        zeros, none = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.long)
        self.heights = prop.values(values[-1][which]).double()  # every margin at the centre, (open, rows)
        self.steepness = _slopes_at_centre(evaluator, problem, centre, self.heights)  # their slopes there, (open, rows)
        reached = self.heights / -self.steepness  # by every row alone, to first order
        radii, nearest = reached.clamp(1 / LIMIT, LIMIT).min(1)
        # The radius beyond which there are no further valid inputs:
        self.whole = problem.region.whole if region.box is not None else zeros + torch.inf
        # Where the margin would vanish if it kept falling as at the centre:
        self.first_order = torch.minimum(radii, self.whole)
        guess = self.first_order * experience.first_share
        self.model: PredictionModel  # of hidden bounds, by the last evaluation or by what other searches taught
        self.guess: Tensor | None  # where a first root is predicted about; None: the first radius is chosen
        if evaluator.shelled is None:
            self.model, self.guess = evaluator.initial_widths(problem, guess, experience), guess
        else:
            guess, shells = torch.minimum(ABOVE_GUESS * guess, self.whole), evaluator.shelled.shells
            self.model = ShellBounds.start(shells, guess, self.heights, self.steepness, centre)
            self.guess = None
        self.correction = Correction.none(count)
        self.index = torch.arange(count)
        self.radii = guess  # to evaluate next, or evaluated last
        self.proving = zeros > 0  # whether that evaluation is the proving one
        self.root = self.first_order  # the predicted radius
        self.slope = self.steepness.gather(1, nearest[:, None]).squeeze(1)  # the margin's change with the radius there
        self.distance = zeros  # of the last evaluation from the one before, in logarithms
        # By how much the predicted radius may be off, as a share of its distance from the last evaluation:
        self.error_rate = zeros + experience.error_rate
        self.best = zeros  # the largest radius proven, 0: none yet
        self.ceiling = zeros + torch.inf  # the smallest radius that failed to prove
        self.weakest = none  # the row of the least margin at the best radius
        self.failures = none
        self.margin = self.heights.amin(1)  # the least of the last evaluation
        self.before = zeros  # the radius evaluated before the last one
        self.margin_before = self.margin  # the least there
        self.focus = least_rows(
            reached
        )  # the rows that look like reaching zero first, which are predicted: (open, few)
        self.stride = zeros + 1  # in tolerances, from the best radius to the next where predictions are of no use
        self.exact_prediction = _predicts_exactly(evaluator, problem)  # whether what is predicted is what will be found
        self.last: Evaluation | None = None  # while the model is that of the one before
        self.rounds = 0
        self.due_to: dict[int, str] = {}  # by question, the weaker method that proved the best radius
        self.ended: list[PredictionModel] = []
        self.ended_index: list[Tensor] = []
        self.ended_radii: list[Tensor] = []  # as shares of the first-order radii

    @property
    def focused(self) -> Problem:
        """The open questions with their few rows of interest."""
        return self.problem.narrow(self.focus)

    def nearest_first(self) -> Tensor:
        """All rows in the order of where they vanish, to first order: (batch, rows)."""
        return (self.heights / -self.steepness).argsort(1)

    def report(self, mask: Tensor, closed: bool) -> Iterator[SearchEnd]:
        """The ends of some questions, (open,); closed: whether their radii are within the tolerance of the root."""
        columns = (self.index[mask].tolist(), self.best[mask].tolist(), self.weakest[mask].tolist())
        for index, radius, weakest in zip(*columns, strict=True):
            method = self.due_to.get(index, self.evaluator.method.name)
            yield SearchEnd(index, radius or None, weakest, self.rounds, closed, method)

    def keep(self, mask: Tensor) -> None:
        """Drops all other questions, (open,), and remembers their prediction models."""
        if bool(mask.all()):
            return
        ended, still_open = (~mask).nonzero().squeeze(1), mask.nonzero().squeeze(1)
        self.ended.append(self.model.select(ended))
        self.ended_index.append(self.index[ended])
        self.ended_radii.append((self.best / self.first_order)[ended])
        self.problem, self.model = self.problem.select(still_open), self.model.select(still_open)
        self.correction = self.correction.select(still_open)
        self.last = None if self.last is None else self.last.select(still_open)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value[still_open])

    def learn(self) -> None:
        """Teaches later searches what this one has learnt."""
        if self.ended:
            self.experience.learn(self.final_model(), torch.cat(self.ended_radii))

    def final_model(self) -> PredictionModel:
        """The prediction models of all questions, once all have ended."""
        return join(self.ended, torch.cat(self.ended_index).argsort())


def _predicts_exactly(evaluator: Evaluator, problem: Problem) -> bool:
    """Whether what is predicted is what will be found: bounds before the first activations keep their relative
    widths, unless a box cuts balls that are no boxes; or no bounds are predicted."""
    alone = evaluator.network.activation_depths[-1] <= 1 and evaluator.surrogate is evaluator.method
    return evaluator.recomputes or (alone and problem.region.walls is None)


def _slopes_at_centre(evaluator: Evaluator, problem: Problem, centre: dict[int, Tensor], margins: Tensor) -> Tensor:
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
