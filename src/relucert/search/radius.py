"""The one radius search: the largest radius at which a method proves every margin of a property positive.

Evaluating a method is costly, so few evaluations are spent. Each yields the bounds of every hidden neuron at one
radius, from which those at other radii are predicted layer by layer (`RelativeWidths`), and the method's cheap last
step turns them into a predicted margin, whose root is the radius to try next. Searches of one network teach each other
where to begin, so that mostly one evaluation in float32 and the proof are enough. Predictions only choose where to
look: the answer is a radius that passed, checked in the arithmetic asked for, and the search closes even where
predictions are wrong.

A method whose last step is costly, too, names a weaker one. The search then starts from the weaker method's radius,
and predicts with the weaker margins plus a correction: by how much the method's own were larger, interpolated as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic, check_subnormals
from relucert.common.progress import Reporter
from relucert.methods.method import Method
from relucert.network import Network
from relucert.query.problem import Problem
from relucert.search.batch import SearchBatch
from relucert.search.end import SearchEnd
from relucert.search.evaluation import Evaluator
from relucert.search.experience import Experience


class Searcher:
    """Searches for one network and method, proving in one arithmetic to a relative tolerance."""

    def __init__(
        self, network: Network, method: Method, proof: Arithmetic, tolerance: float, reporter: Reporter | None = None
    ) -> None:
        """reporter: Told how far a search is; what the method itself tells it is about that."""
        self.method, self.tolerance = method, tolerance
        self.reporter = reporter or Reporter()
        self.evaluator = Evaluator(network, method, proof, tolerance)
        self._experience = Experience.none(self.evaluator.network)

    @property
    def experience(self) -> str:
        """All that was learnt, as the text that `recall` reads."""
        return self._experience.to_json()

    def recall(self, experience: str) -> None:
        """Replaces what was learnt by the `experience` of another search; one of an earlier version teaches nothing."""
        try:
            self._experience = Experience.from_json(experience)
        except ValueError:
            self._experience = Experience.none(self.evaluator.network)

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
        if start is None and self.method.weaker is not None:
            evaluator = self.evaluator
            weaker = Searcher(evaluator.network, self.method.weaker, evaluator.proof, self.tolerance, self.reporter)
            start = list(weaker.run(region, prop))
            self._experience.growth |= weaker._experience.growth  # hidden bounds grow alike, whatever the method
        batch = self._batch(self._problem(region, prop))
        if start is not None:
            batch.resume(start)
        yield from batch.run(ends)
        batch.learn()

    def run_each(self, region: Region, prop: Property) -> Iterator[SearchEnd]:
        """Searches for the radius of every row on its own; the question of an end is `member * rows + row`.

        The rows of one region come one after the other, and what each learns of the hidden layers is where the next
        one starts: neighbouring radii are close.
        """
        problem, rows = self._problem(region, prop), prop.offsets.shape[1]
        order, model = self._batch(problem).nearest_first(), None
        for row in order.T if self.evaluator.shelled is None else order.flip(1).T:
            batch = self._batch(problem.narrow(row[:, None]))
            if model is not None:
                batch.begin_with(model)
            for end in batch.run():
                yield replace(end, question=end.question * rows + int(row[end.question]))
            batch.learn()
            model = batch.final_model()

    def _problem(self, region: Region, prop: Property) -> Problem:
        if self.evaluator.proof.rigorous:
            check_subnormals()
        return Problem(self.evaluator.network, region.cast(torch.float64), prop.cast(torch.float64))

    def _batch(self, problem: Problem) -> SearchBatch:
        return SearchBatch(self.evaluator, self._experience, self.reporter, problem)
