"""The one radius search: the largest radius at which a method proves every margin of a property positive.

Evaluating a method is costly, so few evaluations are spent. Each yields the bounds of every hidden neuron at one
radius; between radii they are interpolated neuron by neuron, and the method's cheap last step turns them into
a predicted margin, whose root is the radius to try next. Predictions only choose where to look: the answer is a
radius that passed, checked in the arithmetic asked for, and the search closes even where predictions are wrong.

A method whose last step is costly, too, names a weaker one. The search then starts from the weaker method's radius,
and predicts with the weaker margins plus a correction: by how much the method's own were larger, interpolated as well.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, FLOAT, Arithmetic, check_subnormals
from relucert.bounding.hidden import bounded_by_relaxation
from relucert.bounding.interval import Bounds
from relucert.common.deadline import TimeUp
from relucert.common.progress import Progress, Reporter
from relucert.methods.interval import IntervalMethod
from relucert.methods.lipschitz import LipschitzMethod
from relucert.methods.method import ExpensiveMethod, Method
from relucert.methods.table import suited_network
from relucert.network import Network
from relucert.query.problem import Problem
from relucert.search.evaluation import Evaluation
from relucert.search.prediction import Correction, Curve, EvaluatedRadii
from relucert.search.profile import Profile

MAX_ROUNDS = 60  # evaluations of a question, at most; halving the bracket after TRUST of them ends long before
PATIENCE = 12  # rounds after which every evaluation proves, as margins may jump where predictions look for a root
TRUST = 20  # rounds after which predictions are no longer asked: halving the bracket always ends
STRIDE_GROWTH = 4.0  # of the step above the best radius, where predictions are of no use
LIMIT = 1e12  # no radius above is looked for, nor one below its inverse
SECTIONINGS = 3  # at the most, to bring out a predicted root
SHARPNESS = 0.05  # of the bracket around it: more is wasted on a guess
ROWS = 3  # margins that a prediction looks at
FIRST_SHARES = (0.7, 0.45)  # of the first-order radius, with one layer of ReLUs and for each further: where to start
LEAST_SHARE = 0.1  # where an evaluation tells only of unstable neurons: with few of them it tells little
LIKELY = (0.01, 1.0)  # shares to learn from
NEWTON = (0.7, 0.95, 1.05, 1.4)  # where to look for the root, in steps that the slope suggests
PROFILED = (0.5, 1.0, 2.0, 4.0)  # the same in steps that the constants of all shells suggest
FAR = 0.02  # relative steps above which the constants of all shells tell enough
DISTANCE_TRUST = 0.1  # by how much a root predicted at a distance from all evaluated radii may be off, relatively to it
GROWTH = 0.55  # how much faster than linearly the bounds are guessed to grow, for each layer of ReLUs before
FLOAT_NOISE = 2e-6  # relative radius that float32's rounding may move


@dataclass(frozen=True)
class SearchEnd:
    """Result of the search for one question.

    Attributes:
        radius: The largest that passed; None where none did, infinite where it contains all valid inputs.
        weakest: The row of the least margin there.
        closed: Whether the search reached its tolerance.
        method: The name of the method that proved it: the one asked for, or a weaker one that it started from.
    """

    question: int
    radius: float | None
    weakest: int
    evaluations: int
    closed: bool
    method: str


class Searcher:
    """Searches for one network and method, proving in the given arithmetic to a relative tolerance."""

    def __init__(
        self, network: Network, method: Method, proof: Arithmetic, tolerance: float, reporter: Reporter | None = None
    ) -> None:
        """reporter: Told how far a search is; what the method itself tells it is about that."""
        self.reporter = reporter or Reporter()
        network = suited_network(method, network, proof)
        resolves = tolerance >= 10 * FLOAT_NOISE and not isinstance(method, IntervalMethod)  # whose radii may be tiny
        quick = FLOAT if resolves and network.cast(torch.float32).finite else DOUBLE
        self.method, self.asked_tolerance = method, tolerance
        self.tolerance = max(tolerance, method.resolution) if isinstance(method, ExpensiveMethod) else tolerance
        self.proof = proof if proof.rigorous else quick
        self.quick = quick
        # Where an evaluation costs far more than its proof, each is proven: what it reaches counts at once.
        self.first_look = self.proof if isinstance(method, ExpensiveMethod) else quick
        self.all_tight = method.bounds_stable_neurons(network)
        self.noise = FLOAT_NOISE if quick is FLOAT else 1e-12
        self._networks = {dtype: network.cast(dtype) for dtype in {self.proof.dtype, quick.dtype}}
        self.shelled = method if isinstance(method, LipschitzMethod) and method.shells > 1 else None
        self.initial_method = method  # becomes the weakest of the chain, whose margins are cheap
        while self.initial_method.weaker is not None:
            self.initial_method = self.initial_method.weaker
        self.surrogate = method.surrogate if isinstance(method, ExpensiveMethod) else self.initial_method
        self.depth = depth = network.activation_depths[-1]
        self.growth = {value: 1 + GROWTH * network.activation_depths[value] for value in network.preactivations}
        self.first_share = FIRST_SHARES[0] * FIRST_SHARES[1] ** max(0, depth - 1)
        if not self.all_tight:
            self.first_share = max(self.first_share, LEAST_SHARE)

    def learn(self, growth: dict[int, float], shares: Tensor) -> None:
        """Learns from one search where the next one begins.

        Args:
            growth: By value, the exponent with which bounds grow with the radius.
            shares: The radii of the second evaluations, as shares of the first-order radii: (batch,).
        """
        self.growth |= growth
        known = shares[shares.isfinite()].clamp(*LIKELY)
        if len(known):
            self.first_share += float(known.mean() - self.first_share) / 2

    @property
    def experience(self) -> str:
        """All that was learnt, as the text that `recall` reads."""
        return json.dumps([sorted(self.growth.items()), self.first_share])

    def recall(self, experience: str) -> None:
        """Replaces what was learnt by the `experience` of another search."""
        growth, self.first_share = json.loads(experience)
        self.growth = dict(growth)

    def network(self, arithmetic: Arithmetic) -> Network:
        return self._networks[arithmetic.dtype]

    def parts(self, problem: Problem, radii: Tensor, arithmetic: Arithmetic) -> tuple[Network, Region, Property]:
        """Network, regions of these radii, (batch,), and properties, in the arithmetic's precision."""
        dtype = arithmetic.dtype
        return self._networks[dtype], problem.at(radii).region.cast(dtype), problem.prop.cast(dtype)

    def evaluate(self, problem: Problem, radii: Tensor, arithmetic: Arithmetic) -> Evaluation:
        network, region, prop = self.parts(problem, radii, arithmetic)
        hidden = self.method.hidden(network, region, arithmetic)
        if self.shelled is not None:
            margins, constants = self.shelled.least_margins(network, region, prop, hidden, arithmetic)
            return Evaluation(margins.double(), hidden, torch.zeros_like(radii), constants.double())
        margins = self.method.margins(network, region, prop, hidden, arithmetic)
        if self.surrogate is self.method:
            return Evaluation(margins.double(), hidden, torch.zeros_like(radii))
        guess = self.surrogate.margins(network, region, prop, hidden, arithmetic)
        return Evaluation(margins.double(), hidden, (margins.amin(1) - guess.amin(1)).double())

    def tight(self, problem: Problem, radii: Tensor, hidden: Bounds) -> dict[int, Tensor] | None:
        """Which hidden bounds a relaxation gave, by value (batch, size); None where the method bounds every neuron so.

        With shells it is None, too: there those are tight that differ from the bounds in the next larger region.
        """
        if self.all_tight or self.shelled is not None:
            return None
        network, region, _ = self.parts(problem, radii, self.quick)
        return bounded_by_relaxation(network, region, hidden, self.quick)

    def predict(
        self, problem: Problem, radii: Tensor, evaluated: EvaluatedRadii,
        surrogate: Method | None = None, signs_kept: bool = False,
    ) -> Tensor:  # fmt: skip
        """Predicted margins at candidate radii, (batch, candidates, rows), from interpolated hidden bounds.

        signs_kept: As for `EvaluatedRadii.interpolate`: margins that jump where a sign is lost are not predicted then.
        """
        count, candidates = radii.shape
        repeated = problem.select(torch.arange(count).repeat_interleave(candidates))
        network, region, prop = self.parts(repeated, radii.flatten(), self.quick)
        hidden = evaluated.interpolate(radii, signs_kept)
        if self.shelled is not None:
            margins, _ = self.shelled.least_margins(network, region, prop, hidden, self.quick)
        else:
            margins = (surrogate or self.surrogate).margins(network, region, prop, hidden, self.quick)
        return margins.double().view(count, candidates, -1) + evaluated.correction.at(radii)[..., None]

    def run(
        self, region: Region, prop: Property, start: Sequence[SearchEnd] | None = None, ends: float = math.inf
    ) -> Iterator[SearchEnd]:
        """Searches a batch, yielding each question's end as it is reached.

        Args:
            region: In float64; its radii do not matter.
            prop: One batch member per region.
            start: What is proven already; None: what the weaker method proves.
            ends: By the monotonic clock, when to stop with what is proven: no evaluation begins that would take longer
                than there is time, judged by the one before.
        """
        if self.proof.rigorous:
            check_subnormals()
        state = _State.start(self, self._problem(region, prop))
        if start is not None:
            state.resume(start)
        elif self.method.weaker is not None:
            weaker = Searcher(
                self.network(self.proof), self.method.weaker, self.proof, self.asked_tolerance, self.reporter
            )
            state.resume(weaker.run(region, prop))
        yield from state.run(ends)

    def run_each(self, region: Region, prop: Property) -> Iterator[SearchEnd]:
        """Searches for the radius of every row on its own; the question of an end is `member * rows + row`.

        The rows of one region come one after the other, and what each learns of the hidden layers is where the next
        one starts: neighbouring radii are close.
        """
        if self.proof.rigorous:
            check_subnormals()
        problem, rows = self._problem(region, prop), prop.offsets.shape[1]
        order, evaluated = _State.start(self, problem).nearest_first(), None
        for row in order.T:
            state = _State.start(self, problem.narrow(row[:, None]))
            if evaluated is not None:
                state.begin_with(evaluated)
            for end in state.run():
                yield replace(end, question=end.question * rows + int(row[end.question]))
            evaluated = state.all_evaluated()

    def _problem(self, region: Region, prop: Property) -> Problem:
        return Problem(self.network(self.proof), region.cast(torch.float64), prop.cast(torch.float64))


@dataclass(eq=False)
class _State:
    """The state of a batch of searches; every tensor has one row per question still open."""

    searcher: Searcher
    problem: Problem
    evaluated: EvaluatedRadii
    index: Tensor
    radii: Tensor  # to evaluate next, or evaluated last
    proving: Tensor  # whether that evaluation is the proving one
    root: Tensor  # the predicted radius
    slope: Tensor  # the margin's change with the radius there
    drift: Tensor  # how far, relatively, the last evaluation moved the prediction
    best: Tensor  # the largest radius proven, 0: none yet
    ceiling: Tensor  # the smallest radius that failed to prove
    weakest: Tensor  # the row of the least margin at the best radius
    failures: Tensor
    margin: Tensor  # the least of the last evaluation
    heights: Tensor  # every margin at the centre, (open, rows)
    steepness: Tensor  # every margin's slope there, (open, rows)
    focus: Tensor  # the rows that predictions look at, (open, a few): those that look like reaching zero first
    stride: Tensor  # in tolerances, from the best radius to the next where predictions are of no use
    first_order: Tensor  # where the margin would vanish if it kept falling as at the centre
    whole: Tensor  # the radius beyond which there are no further valid inputs
    exact_prediction: bool  # whether what is predicted is what will be found
    profile: Profile | None  # of the constants, where the method has shells
    rounds: int = 0
    due_to: dict[int, str] = field(default_factory=dict)  # by question, the weaker method that proved the best radius
    ended_evaluated: list[EvaluatedRadii] = field(default_factory=list)
    ended_index: list[Tensor] = field(default_factory=list)

    @classmethod
    def start(cls, searcher: Searcher, problem: Problem) -> _State:
        network, region, prop = searcher.parts(problem, problem.region.radius, searcher.quick)
        values = network.values(region.points)
        count = len(problem)
        which = torch.arange(count) if region.which is None else region.which
        centre = {value: values[value][which] for value in network.preactivations}
        evaluated = EvaluatedRadii(
            centre, dict(searcher.growth), torch.zeros(count, 0, dtype=torch.float64), {}, Correction.none(count)
        )
        zeros, none = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.long)
        margins = prop.values(values[-1][which]).double()
        radii = zeros + 1
        without_box = replace(problem, region=replace(problem.region, box=None))
        for asked in [without_box, *([] if region.box is None else [problem])]:
            ahead = searcher.predict(asked, radii[:, None], evaluated, searcher.initial_method)[:, 0]
            slopes = (ahead - margins) / radii[:, None]
            slopes = slopes.clamp(max=-1e-30)
            reached = margins / -slopes  # by every row alone, to first order
            radii, weakest = reached.clamp(1 / LIMIT, LIMIT).min(1)
        whole = problem.region.whole if region.box is not None else zeros + torch.inf
        first = torch.minimum(radii, whole)
        # Without a box, bounds before the first ReLUs are linear in the radius.
        linear = searcher.depth <= 1 and searcher.surrogate is searcher.method and region.box is None
        drift = zeros if linear else zeros + torch.inf
        return cls(
            searcher, problem, evaluated, torch.arange(count), first * searcher.first_share, zeros > 0,
            first, slopes.gather(1, weakest[:, None]).squeeze(1), drift, zeros, zeros + torch.inf, none, none,
            margins.amin(1), margins, slopes, _least(reached), zeros + 1, first, whole, linear,
            None if linear or searcher.shelled is None else Profile.start(searcher.shelled.shells, margins, slopes),
        )  # fmt: skip

    def run(self, ends: float = math.inf) -> Iterator[SearchEnd]:
        """Yields each question's end as it is reached."""
        try:
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
        lower = float(self.best.min())
        state = Progress(stage=self.searcher.method.name, evaluations=self.rounds, lower=lower or None)
        self.searcher.reporter.enter(state)

    def nearest_first(self) -> Tensor:
        """All rows in the order of where they vanish, to first order: (batch, rows)."""
        return (self.heights / -self.steepness).argsort(1)

    def begin_with(self, evaluated: EvaluatedRadii) -> None:
        """Starts where other searches in the same regions ended: the first radius is predicted already.

        A prediction is trusted as much as it is near to the nearest evaluated radius.
        """
        if self.exact_prediction:
            return
        self.evaluated, self.profile = evaluated, None  # of this row no constants are known
        last = evaluated.logs[:, -1].exp()
        self.radii, self.margin = last, self.searcher.predict(self.problem, last[:, None], evaluated).amin(2)[:, 0]
        self._fit_parabola(torch.zeros_like(self.index)[:, None])
        self._predict_root()
        self.drift = DISTANCE_TRUST * (self.root.log()[:, None] - evaluated.logs).abs().amin(1)
        self._choose()

    def all_evaluated(self) -> EvaluatedRadii:
        """The evaluated radii and hidden bounds of every question, also of those that ended."""
        return EvaluatedRadii.merge(self.ended_evaluated, torch.cat(self.ended_index).argsort())

    def resume(self, ends: Iterable[SearchEnd]) -> None:
        """Starts from where a weaker method ended: what it proved is proven."""
        self.best, self.weakest = self.best.clone(), self.weakest.clone()
        for end in ends:
            if end.radius is not None:
                self.best[end.question], self.weakest[end.question] = end.radius, end.weakest
                self.due_to[end.question] = end.method
        known = (self.best > 0) & self.best.isfinite()
        gain = self.searcher.method.gain if isinstance(self.searcher.method, ExpensiveMethod) else 1.0
        self.radii = torch.where(known, torch.minimum(gain * self.best, self.whole), self.radii)

    def evaluate(self) -> None:
        """One evaluation of every open question, each in the arithmetic its step calls for."""
        exploring, proving = (~self.proving).nonzero().squeeze(1), self.proving.nonzero().squeeze(1)
        parts = [
            self.searcher.evaluate(self.problem.select(chosen), self.radii[chosen], arithmetic)
            for chosen, arithmetic in ((exploring, self.searcher.first_look), (proving, self.searcher.proof))
            if len(chosen)
        ]
        order = torch.cat([exploring, proving]).argsort()
        joined = Evaluation.join(parts, order, self.searcher.quick.dtype)
        self.margin, weakest = joined.margins.min(1)
        self.focus = _least(joined.margins / -self.steepness)
        tight = self.searcher.tight(self.problem, self.radii, joined.hidden)
        self.evaluated = self.evaluated.add(self.radii, joined.hidden, joined.corrections, tight)
        if self.profile is not None and joined.constants is not None:
            self.profile = self.profile.add(self.radii, joined.constants)
        if not self.rounds:
            self._fit_parabola(weakest[:, None])
        if self.rounds == 1:
            self.searcher.learn(self.evaluated.mean_growth(), self.radii / self.first_order)
        self.rounds += 1
        counts = self.proving | (self.searcher.first_look is self.searcher.proof)
        passed = counts & (self.margin > 0) & (self.radii > self.best)
        failed = self.proving & ~(self.margin > 0)
        self.best = torch.where(passed, self.radii, self.best)
        self.weakest = torch.where(passed, weakest, self.weakest)
        for index in self.index[passed].tolist():
            self.due_to.pop(index, None)
        self.ceiling = torch.where(failed, torch.minimum(self.ceiling, self.radii), self.ceiling)
        self.failures = self.failures + failed

    def _fit_parabola(self, row: Tensor) -> None:
        """Guesses the slope by a parabola through the first evaluation that starts as the margin does at the centre."""
        height, steepness = self.heights.gather(1, row)[:, 0], self.steepness.gather(1, row)[:, 0]
        bend = ((self.margin - height) / self.radii - steepness) / self.radii
        root = 2 * height / (-steepness + (steepness.square() - 4 * bend * height).clamp(min=0).sqrt())
        self.slope = (self.margin / (self.radii - root)).nan_to_num(-1.0).clamp(max=-1e-30)

    @property
    def focused(self) -> Problem:
        """The open questions with their few rows of interest."""
        return self.problem.narrow(self.focus)

    def close(self) -> Iterator[SearchEnd]:
        """Yields and drops the questions whose proven radius is within the tolerance of what can be reached."""
        everywhere = self.best >= self.whole
        self.best = torch.where(everywhere, torch.inf, self.best)
        yield from self._report(everywhere, closed=True)
        self._keep(~everywhere)
        if not len(self.index):
            return
        endless = self.best > LIMIT
        beyond = self.best * (1 + self.searcher.tolerance)
        done = (self.best > 0) & (self.ceiling <= beyond) & ~endless
        fresh = (self.radii == self.best) & ~done & ~endless
        if bool(fresh.any()):
            chosen = fresh.nonzero().squeeze(1)
            asked, evaluated = self.focused.select(chosen), self.evaluated.select(chosen)
            predicted = self.searcher.predict(asked, beyond[chosen, None], evaluated, signs_kept=True)
            done[chosen] = (predicted <= 0).any(2).squeeze(1)
        lost = self.ceiling < 1 / LIMIT
        yield from self._report(done | lost, closed=True)
        yield from self._report(endless, closed=False)
        self._keep(~(done | lost | endless))

    def give_up(self) -> Iterator[SearchEnd]:
        yield from self._report(torch.ones_like(self.proving), closed=False)
        self._keep(torch.zeros_like(self.proving))

    def aim(self) -> None:
        """Predicts every root anew and chooses the next radius and how to check it."""
        previous = self.root
        self._predict_root()
        if not self.exact_prediction:
            self.drift = ((self.root - previous) / self.root).abs()
        self._choose()

    def _choose(self) -> None:
        """The next radius, and whether to prove it, by the predicted root and how far it has drifted."""
        searcher = self.searcher
        doubt = (2 * self.drift.square()).clamp(min=max(searcher.noise, searcher.tolerance / 3))
        self.proving = (doubt <= 0.6 * searcher.tolerance) | (self.rounds >= PATIENCE)
        aim = self.root * (1 - torch.where(self.proving, doubt * 2.0 ** self.failures.clamp(max=30), 0).clamp(max=0.5))
        inside = (aim > self.best) & (aim < self.ceiling) & (self.rounds < TRUST)
        self.radii = torch.where(inside, aim, self._fallback()).clamp(max=2 * LIMIT)
        inside &= self.radii < self.whole
        self.radii = torch.minimum(self.radii, self.whole)
        self.stride = torch.where(inside, 1.0, STRIDE_GROWTH * self.stride)
        self.proving |= ~inside | (self.radii > LIMIT)

    def _fallback(self) -> Tensor:
        """The next radii where predictions are of no use, as before a jump: just above the best radius, then farther.

        One step of the tolerance that fails ends the search. The middle of the bracket is never passed.
        """
        middle = torch.where(self.ceiling.isinf(), 2 * self.radii, (self.best + self.ceiling) / 2)
        near = self.best * (1 + self.searcher.tolerance * self.stride)
        return torch.where(self.best > 0, torch.where(self.ceiling.isinf(), near, torch.minimum(near, middle)), middle)

    def _predict_root(self) -> None:
        """The root of the predicted least margin and the slope there, by sectioning ever more closely."""
        asked, last = self.focused, Curve(self.radii[:, None], self.margin[:, None])
        if self.profile is not None and self._predict_by_profile():
            return
        away = torch.tensor([0.06, 0.25, 0.56, 0.999], dtype=torch.float64)
        far = last.radii * torch.where(last.margins > 0, 1 + 3 * away, 1 - away)
        step, shares = -last.margins / self.slope[:, None], NEWTON
        if self.profile is not None:
            least = 2 * self.searcher.tolerance * last.radii
            step, shares = torch.maximum((self.root[:, None] - last.radii).abs(), least), PROFILED
            step = torch.where(last.margins > 0, step, -step)
        near = last.radii + step * torch.tensor(shares, dtype=torch.float64)
        curve = self._section(asked, torch.where(step.abs() < 0.7 * last.radii, near, far), last)
        if not bool(curve.crossed.all()):
            curve = self._section(asked, far, last)
        for _ in range(SECTIONINGS):
            low, high = curve.bracket()
            width = high.radii - low.radii
            if bool((width.abs() < SHARPNESS * low.radii).all()):
                break
            share = (curve.root()[:, None] - low.radii) / width
            inner = (share + torch.tensor([-0.1, -0.01, 0.01, 0.1], dtype=torch.float64)).clamp(0.001, 0.999)
            curve = self._section(asked, low.radii + width * inner.sort(1).values, low, high)
        self.root, self.slope = curve.root(), curve.slope()

    def _predict_by_profile(self) -> bool:
        """Predicts the root by the constants of all shells; whether it is so far away that this suffices."""
        assert self.profile is not None
        self.root = self.profile.root()
        return bool(((self.root - self.radii).abs() > FAR * self.radii).all())

    def _section(self, asked: Problem, grid: Tensor, before: Curve, *after: Curve) -> Curve:
        """The predicted margins on a grid, between known ones."""
        middle = Curve(grid, self.searcher.predict(asked, grid, self.evaluated).amin(2))
        parts = [before, middle, *after]
        return Curve(torch.cat([part.radii for part in parts], 1), torch.cat([part.margins for part in parts], 1))

    def _report(self, mask: Tensor, closed: bool) -> Iterator[SearchEnd]:
        columns = (self.index[mask].tolist(), self.best[mask].tolist(), self.weakest[mask].tolist())
        for index, radius, weakest in zip(*columns, strict=True):
            method = self.due_to.get(index, self.searcher.method.name)
            yield SearchEnd(index, radius or None, weakest, self.rounds, closed, method)

    def _keep(self, mask: Tensor) -> None:
        if bool(mask.all()):
            return
        ended, chosen = (~mask).nonzero().squeeze(1), mask.nonzero().squeeze(1)
        self.ended_evaluated.append(self.evaluated.select(ended))
        self.ended_index.append(self.index[ended])
        self.problem, self.evaluated = self.problem.select(chosen), self.evaluated.select(chosen)
        self.profile = None if self.profile is None else self.profile.select(chosen)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value[chosen])


def _least(amounts: Tensor) -> Tensor:
    """The rows of the few least amounts: (batch, few)."""
    return amounts.topk(min(ROWS, amounts.shape[1]), largest=False).indices
