"""A batch of radius searches: evaluate, close what is within tolerance, predict where to look next, and again."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from relucert.arithmetic.rigor import Arithmetic
from relucert.common.deadline import TimeUp
from relucert.common.progress import Progress
from relucert.methods.method import ExpensiveMethod
from relucert.search.end import SearchEnd
from relucert.search.evaluation import Evaluation
from relucert.search.root import MarginCurve, PredictedMargin
from relucert.search.shells import NEARBY, PredictionModel, ShellBounds
from relucert.search.state import LIMIT, SearchState, least_rows

MAX_ROUNDS = 60  # evaluations of a question, at most; halving the bracket after TRUST of them ends long before
PATIENCE = 12  # rounds after which every evaluation proves, as margins may jump where predictions look for a root
TRUST = 20  # rounds after which predictions are not used any more: halving the bracket always ends
STRIDE_GROWTH = 4.0  # of the step above the best radius, where predictions are of no use
BARELY = 1.001  # how far beyond the first-order radius rounding may move a root
CLOSE = 1e-4  # distances of evaluated radii, in logarithms, below which rounding is all there is to see
SURROGATE_ROUNDS = 2  # evaluations of a method with a surrogate after which predictions are not needed
DISAPPOINTED = 3  # evaluations after which the last two of them tell more than predictions by structure
FALLING_SHORT = 32  # times their distance that the secant of the last two may lead on, where predictions fall short
CLOSE_BY = 0.02  # how far apart, relatively, the last two evaluations may be for that
UNRELIABLE = 0.2  # shares of a step by which predictions are off, above which secants of any evaluations are better
FAR_APART = 0.5  # how far apart, relatively, the last two evaluations may be then
FARTHEST = 100.0  # times below a guess, a first root that is predicted from no evaluation is not believed
RIVALS = 1.02  # how much farther than the nearest root another row's may be that counts
ABOVE_ROOT = 1.02  # how far beyond a guess of the root, after the first evaluation, shells tell it best


class SearchBatch(SearchState):
    """A batch of radius searches."""

    def run(self, ends: float = math.inf) -> Iterator[SearchEnd]:
        """Yields each question's end as it is reached."""
        try:
            if self.guess is not None:
                self._predict_first_root(self.guess)
            elif self.model.measured:
                self.aim()
            for _ in range(MAX_ROUNDS):
                began = time.monotonic()
                self._tell()
                self.evaluate()
                yield from self.close()
                if not len(self.index):
                    return
                if 2 * time.monotonic() - began > ends:
                    break
                self.aim()
        except TimeUp:  # what is proven until then counts
            pass
        yield from self.give_up()

    def _tell(self) -> None:
        name, lower = self.evaluator.method.name, float(self.best.min())
        self.reporter.enter(Progress(stage=name, evaluations=self.rounds, lower=lower or None))

    def begin_with(self, model: PredictionModel) -> None:
        """Starts where other searches in the same regions ended: the first radius is predicted already."""
        if isinstance(model, ShellBounds):
            self.model = self.evaluator.of_rows(self.problem, self.heights, self.steepness, model)
        else:
            self.model, self.guess = model, model.logs.exp()

    def _predict_first_root(self, guess: Tensor) -> None:
        """Predicts the root from the relative widths that other searches taught; guess: where it may be, (batch,)."""
        predicted = PredictedMargin(self.evaluator, self.focused, self.model, self.correction)
        root, slope = predicted.from_centre(self.margin[:, None], guess[:, None], self.exact_prediction)
        likely = root <= (torch.inf if self.exact_prediction else BARELY * self.first_order)
        likely &= root > (0 if self.exact_prediction else guess / FARTHEST)
        usable = root.isfinite() & (root > 1 / LIMIT) & likely
        self.root, self.slope, self.radii = torch.where(usable, root, guess), slope, guess
        self._choose(self._relative_error())

    def resume(self, ends: Iterable[SearchEnd]) -> None:
        """Starts from where a weaker method ended: what it proved is proven."""
        self.best, self.weakest = self.best.clone(), self.weakest.clone()
        for end in ends:
            if end.radius is not None:
                self.best[end.question], self.weakest[end.question] = end.radius, end.weakest
                self.due_to[end.question] = end.method
        finite = (self.best > 0) & self.best.isfinite()
        gain = self.evaluator.method.gain if isinstance(self.evaluator.method, ExpensiveMethod) else 1.0
        self.radii = torch.where(finite, torch.minimum(gain * self.best, self.whole), self.radii)
        self.root = torch.where(finite, self.radii, self.root)
        self.guess = None if bool(finite.any()) else self.guess

    def evaluate(self) -> None:
        """One evaluation of every open question, each in the arithmetic its step calls for."""
        exploring, evaluations = (~self.proving).nonzero().squeeze(1), list[Evaluation]()
        if len(exploring):
            explored = self._evaluated(exploring, self.evaluator.first_look)
            told = ~explored.margins.isnan().any(1)  # what a first look can't tell, a proof may
            told |= self.evaluator.first_look is self.evaluator.proof
            self.proving = self.proving.index_fill(0, exploring[~told], True)
            exploring, evaluations = exploring[told], [explored.select(told)] if bool(told.any()) else []
        proving = self.proving.nonzero().squeeze(1)
        if len(proving):
            evaluations.append(self._evaluated(proving, self.evaluator.proof))
        order = torch.cat([exploring, proving]).argsort()
        self.margin_before = self.margin
        joined = Evaluation.join(evaluations, order, self.evaluator.quick.dtype)
        self.margin, weakest = joined.margins.min(1)
        self.focus = least_rows(joined.margins / -self.steepness)
        self.last = joined
        self.correction = self.correction.evaluated(self.radii, joined.corrections)
        self.rounds += 1
        counts = self.proving | (self.evaluator.first_look is self.evaluator.proof)
        passed = counts & (self.margin > 0) & (self.radii > self.best)
        failed = counts & ~(self.margin > 0)
        self.best = torch.where(passed, self.radii, self.best)
        self.weakest = torch.where(passed, weakest, self.weakest)
        for index in self.index[passed].tolist():
            self.due_to.pop(index, None)
        self.ceiling = torch.where(failed, torch.minimum(self.ceiling, self.radii), self.ceiling)
        self.failures = self.failures + (failed & self.proving)

    def _evaluated(self, questions: Tensor, arithmetic: Arithmetic) -> Evaluation:
        return self.evaluator.evaluate(self.problem.select(questions), self.radii[questions], arithmetic)

    def close(self) -> Iterator[SearchEnd]:
        """Yields and drops the questions whose proven radius is within the tolerance of what can be reached."""
        everywhere = self.best >= self.whole
        self.best = torch.where(everywhere, torch.inf, self.best)
        yield from self.report(everywhere, closed=True)
        self.keep(~everywhere)
        if not len(self.index):
            return
        endless = self.best > LIMIT
        beyond = self.best * (1 + self.evaluator.tolerance)
        done = (self.best > 0) & (self.ceiling <= beyond) & ~endless
        fresh = (self.radii == self.best) & ~done & ~endless
        if self._by_surrogate and self.rounds >= SURROGATE_ROUNDS:
            self._take_secant()
        if self.evaluator.smooth or (self._by_surrogate and self.rounds >= SURROGATE_ROUNDS):
            done |= fresh & (self.margin + self._flatter_slope() * (beyond - self.best) <= 0)
        elif bool(fresh.any()):
            self._take_last(nearby=fresh)
            done |= fresh & (self._predicted().at(beyond[:, None]).squeeze(1) <= 0)
        done |= self.ceiling < 1 / LIMIT  # nothing is proven
        yield from self.report(done, closed=True)
        yield from self.report(endless, closed=False)
        self.keep(~(done | endless))

    def give_up(self) -> Iterator[SearchEnd]:
        yield from self.report(torch.ones_like(self.proving), closed=False)
        self.keep(torch.zeros_like(self.proving))

    def aim(self) -> None:
        """Predicts every root anew and chooses the next radius and how to check it."""
        previous = self.root
        self._take_last()
        self._predict_root()
        moved = ((self.root - previous) / self.root).abs()
        self._learn_error_rate(moved)
        by_structure = self.evaluator.smooth or self.exact_prediction or self.evaluator.shelled is not None
        self._choose(self._relative_error() if by_structure else 2 * moved.square())

    def _take_last(self, nearby: Tensor | None = None) -> None:
        """Updates the prediction model by the last evaluation; nearby: where the root is known to be near it."""
        if self.last is not None:
            self.distance = (self.radii.log() - self.model.logs).abs() * self.model.measured
            self.model = self.evaluator.told(self.problem, self.radii, self.last, self.model, nearby)
            self.last = None

    def _learn_error_rate(self, moved: Tensor) -> None:
        """Learns from how far, relatively, the last evaluation moved the prediction."""
        if self.rounds > 1:
            self.experience.learn_error_rate(moved, self.distance)
            rate = (moved / self.distance.clamp(min=CLOSE)).nan_to_num(1.0).clamp(max=1.0)
            self.error_rate = torch.maximum(self.error_rate, rate)

    def _relative_error(self) -> Tensor:
        """The relative error that the predicted root may have, (batch,)."""
        if self.exact_prediction:
            return torch.zeros_like(self.root)
        if not self.model.measured:
            return torch.full_like(self.root, torch.inf)
        if isinstance(self.model, ShellBounds):
            return torch.where(self.root < (1 + NEARBY) * self.model.radii, 0, torch.inf)
        return self.error_rate * (self.root.log() - self.model.logs).abs()

    def _choose(self, error: Tensor) -> None:
        """The next radius, and whether to prove it, by the predicted root and how far, relatively, it may be off."""
        tolerance = self.evaluator.tolerance
        error = error.clamp(min=max(self.evaluator.noise, tolerance / 3))
        self.proving = (error <= 0.6 * tolerance) | (self.rounds >= PATIENCE)
        aim = self.root * (1 - torch.where(self.proving, error * 2.0 ** self.failures.clamp(max=30), 0).clamp(max=0.5))
        inside = (aim > self.best) & (aim < self.ceiling) & (self.rounds < TRUST)
        self.before = self.radii
        self.radii = torch.where(inside, aim, self._fallback()).clamp(max=2 * LIMIT)
        inside &= self.radii < self.whole
        self.radii = torch.minimum(self.radii, self.whole)
        self.stride = torch.where(inside, 1.0, STRIDE_GROWTH * self.stride)
        self.proving |= ~inside | (self.radii > LIMIT)

    def _fallback(self) -> Tensor:
        """The next radii where predictions are of no use, as at a jump: from the end of the bracket that they are
        beyond a step of the tolerance into it, then a longer one.

        One step that ends at the other side of the root ends the search. The middle of the bracket is never passed, and
        it is next where a margin is no number: that tells nothing of where the root is.
        """
        step = self.evaluator.tolerance * self.stride
        middle = torch.where(self.ceiling.isinf(), 2 * self.radii, (self.best + self.ceiling) / 2)
        above, below = self.best * (1 + step), torch.maximum(self.ceiling * (1 - 0.9 * step), middle)
        above = torch.where(self.ceiling.isinf(), above, torch.minimum(above, middle))
        beyond = self.ceiling.isfinite() & (self.root >= self.ceiling)
        steps = torch.where(beyond, below, torch.where(self.best > 0, above, middle))
        return torch.where(self.margin.isfinite(), steps, middle)

    def _predict_root(self) -> None:
        """Predicts the root of the least margin, and the slope there."""
        if isinstance(self.model, ShellBounds):
            self._predict_root_by_shells(self.model)
            return
        last = MarginCurve(self.radii[:, None], self.margin[:, None])
        step = (last.margins / self.slope[:, None]).abs()
        step = torch.maximum(step, 2 * self.evaluator.tolerance * last.radii)  # nearer, rounding is all there is to see
        step = torch.where(last.margins > 0, step, -step)
        self.root, self.slope = self._predicted().near_root(last, step)
        if self.rounds >= (SURROGATE_ROUNDS if self._by_surrogate else DISAPPOINTED):
            self._take_secant()

    def _predict_root_by_shells(self, model: ShellBounds) -> None:
        """The root where the regions of shells tell it; beyond the largest of them a little farther than the root."""
        roots, order = model.rough_roots().sort(1)
        rough = roots[:, 0]
        self.focus = order[:, : int((roots < RIVALS * rough[:, None]).sum(1).max())]
        self.root = ABOVE_ROOT * rough
        told = rough < (1 + NEARBY) * model.radii
        if bool(told.any()):
            root, _ = self._predicted().around(rough[:, None], self.evaluator.tolerance / 3)
            self.root = torch.where(told, root, self.root)

    def _predicted(self) -> PredictedMargin:
        """The prediction from the last evaluation, made to meet it: what a model can't express, such as loose bounds of
        stable neurons and rounding, would else count as a fall of the margin."""
        predicted = PredictedMargin(self.evaluator, self.focused, self.model, self.correction)
        return predicted.meeting(MarginCurve(self.radii[:, None], self.margin[:, None]))

    @property
    def _by_surrogate(self) -> bool:
        """Whether predictions are those of another method, which evaluations of this one soon outdo."""
        return self.evaluator.surrogate is not self.evaluator.method

    def _take_secant(self) -> None:
        """Replaces predictions by the secant through the last two evaluations, where it falls towards a near root."""
        apart, slope = self.radii - self.before, self._secant_slope()
        root = self.radii - self.margin / slope
        ahead = (root - self.radii).abs()
        if self._by_surrogate:
            near = ahead < torch.minimum(self.radii / 2, FALLING_SHORT * apart.abs())
            near &= apart.abs() < CLOSE_BY * self.radii
        else:  # where two predictions in a row fall short on the same side, the next one would, too
            short = (self.margin > 0) == (self.margin_before > 0)
            close_by = torch.where(self.error_rate > UNRELIABLE, FAR_APART, CLOSE_BY)
            near = (apart.abs() < close_by * self.radii) & (ahead < torch.where(short, FALLING_SHORT, 2) * apart.abs())
        near &= (slope < 0) & (self.before > 0)
        inside = near & (root > self.best) & (root < self.ceiling)  # secants don't see where a margin breaks down
        self.root, self.slope = torch.where(inside, root, self.root), torch.where(near, slope, self.slope)

    def _secant_slope(self) -> Tensor:
        return (self.margin - self.margin_before) / (self.radii - self.before)

    def _flatter_slope(self) -> Tensor:
        """The predicted slope, or that of the last two evaluations where it is flatter and no mere rounding."""
        secant = self._secant_slope()
        apart = (self.radii - self.before).abs() > 10 * self.evaluator.noise * self.radii
        told = apart & (self.before > 0) & (self.rounds > 1)
        return torch.where(told & (secant < 0), torch.maximum(secant, self.slope), self.slope)
