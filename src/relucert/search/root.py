"""The root of a predicted margin: the radius at which a search looks next.

Nothing here is a bound. A prediction chooses where to look next, and a wrong one costs time, not truth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.query.problem import Problem
from relucert.search.evaluation import Evaluator
from relucert.search.prediction import Correction
from relucert.search.shells import PredictionModel

SECTIONINGS = 5  # of the bracket around a predicted root, at most
SHARPNESS = 0.05  # relative width of that bracket at which they end: less is wasted on a guess
ROUGH = 0.3  # width of the bracket before the first evaluation
SHARPEST = 1e-3  # width of the bracket where predictions are exact
NEAR = 0.7  # relative steps to a root below which the guess of them is believed
NEWTON = (0.7, 0.95, 1.05, 1.4)  # where to look for the root, in steps that the slope suggests
COARSE_STEPS = (0.06, 0.25, 0.56, 0.999)  # relative steps to look at otherwise, below the last radius; above: 3 times
FARTHER = (4.0, 8.0, 16.0, 64.0)  # times the last radius, to look at where the margin keeps its sign up to there
INITIAL_FACTORS = (0.7, 1.0, 1.45)  # of a guess of the root: where to look first
AROUND_FACTORS = (0.5, 0.7, 0.85, 1.0, 1.15, 1.35, 1.7)  # of a guess of the root that is hardly right
CLOSE_FACTORS = (0.996, 1.004)  # of a guess of the root that is nearly right
# Of a guess of the root that the first look did not bracket:
FAR_FACTORS = (0.01, 0.1, 0.5, 1.5, 3.0, 8.0, 30.0, 1000.0)
FAR_BELOW = (1e-4, 1e-2)  # of the nearest radius beyond a root, where it seems to be far below
BRACKET_STEPS = (-0.1, -0.01, 0.01, 0.1)  # around a root, as shares of its bracket
FIRST_BRACKET_STEPS = (-0.015, 0.015)  # around a root, before the first evaluation
CLOSE_BRACKET_STEPS = (-0.05, 0.05)  # around a root, where predictions are nearly exact but not cheap


@dataclass(frozen=True, eq=False)
class MarginCurve:
    """Margins at radii in order, (batch, points) each."""

    radii: Tensor
    margins: Tensor

    def select(self, questions: Tensor) -> MarginCurve:
        return MarginCurve(self.radii[questions], self.margins[questions])

    def updated(self, questions: Tensor, curve: MarginCurve) -> MarginCurve:
        """With the curves of some questions, (count,) indices, replaced by others of as many points."""
        radii = self.radii.index_copy(0, questions, curve.radii)
        return MarginCurve(radii, self.margins.index_copy(0, questions, curve.margins))

    @cached_property
    def _changed(self) -> Tensor:
        """Where the sign is not that of the first point, (batch, points)."""
        positive = self.margins > 0
        return positive != positive[:, :1]

    @cached_property
    def crossed(self) -> Tensor:
        """Whether the sign changes, (batch,)."""
        return self._changed.any(1)

    def around(self, count: int) -> MarginCurve:
        """At most `count` neighbouring points around the first change of sign, or the last ones where there is none."""
        last = self.radii.shape[1] - 1
        if count > last:
            return self
        crossing = torch.where(self.crossed, self._changed.int().argmax(1), last)[:, None]
        points = (crossing - count // 2).clamp(0, last + 1 - count) + torch.arange(count)
        return MarginCurve(self.radii.gather(1, points), self.margins.gather(1, points))

    @cached_property
    def bracket(self) -> tuple[MarginCurve, MarginCurve]:
        """The neighbours between which the sign changes."""
        pair = self.around(2)
        return MarginCurve(pair.radii[:, :1], pair.margins[:, :1]), MarginCurve(pair.radii[:, 1:], pair.margins[:, 1:])

    def root(self) -> Root:
        """Where the margin crosses zero, and how fast it falls there: by a chord around that, strictly negative."""
        near = self.around(4)
        rise, run = (table[:, -1] - table[:, 0] for table in (near.margins, near.radii))
        return Root(self._crossing(near), (rise / run).nan_to_num(-1.0).clamp(max=-1e-30))

    def _crossing(self, near: MarginCurve) -> Tensor:
        """The radius where the margin crosses zero, by inverse interpolation of four points; if none, the far end."""
        low, high = self.bracket
        chord = low.radii + (high.radii - low.radii) * low.margins / (low.margins - high.margins)
        same = torch.eye(near.radii.shape[1], dtype=torch.bool)
        factors = torch.where(same, 1, near.margins[:, None])
        differences = torch.where(same, 1, near.margins[:, None] - near.margins[:, :, None])
        weights = (factors / differences).prod(2)  # Lagrange's: of each point, the product over all others
        cubic = (weights * near.radii).sum(1, keepdim=True)
        ends = torch.minimum(low.radii, high.radii), torch.maximum(low.radii, high.radii)
        best = torch.where((cubic >= ends[0]) & (cubic <= ends[1]), cubic, chord.clamp(*ends))
        return torch.where(self.crossed & best.isfinite().squeeze(1), best.squeeze(1), high.radii.squeeze(1))


class Root(NamedTuple):
    """Predicted roots, and the slopes of the margins there, (batch,) each."""

    radii: Tensor
    slopes: Tensor

    def updated(self, questions: Tensor, root: Root) -> Root:
        """With the root of some questions, (count,) indices, replaced."""
        tables = zip(self, root, strict=True)
        return Root(*(before.index_copy(0, questions, after) for before, after in tables))


@dataclass(frozen=True, eq=False)
class PredictedMargin:
    """The least predicted margin of each question of a batch, as a function of the radius.

    offset: Added to all of them, (batch, 1): by how much the prediction of the last evaluation misses it.
    """

    evaluator: Evaluator
    problem: Problem
    model: PredictionModel
    correction: Correction
    offset: Tensor | float = 0.0

    def meeting(self, last: MarginCurve) -> PredictedMargin:
        """The prediction, moved so that it meets the last evaluation, (batch, 1) each, where it says anything there."""
        missed = last.margins - self.at(last.radii)
        return replace(self, offset=self.offset + torch.where(missed.isfinite(), missed, 0))

    def at(self, radii: Tensor) -> Tensor:
        """The predicted margins at candidate radii, (batch, radii)."""
        return self.evaluator.predict(self.problem, radii, self.model, self.correction).amin(2) + self.offset

    def select(self, questions: Tensor) -> PredictedMargin:
        """The predicted margins of the questions with these indices, (count,)."""
        return replace(
            self,
            problem=self.problem.select(questions),
            model=self.model.select(questions),
            correction=self.correction.select(questions),
            offset=self.offset[questions] if isinstance(self.offset, Tensor) else self.offset,
        )

    def from_centre(self, heights: Tensor, guess: Tensor, exact: bool) -> Root:
        """The root where nothing was evaluated.

        Args:
            heights: The margins at the centre, (batch, 1).
            guess: Where the root may be, (batch, 1).
            exact: Whether predictions are, so that the root is worth knowing closely.
        """
        centre = MarginCurve(torch.zeros_like(guess), heights)
        curve = self._section(guess * torch.tensor(INITIAL_FACTORS, dtype=torch.float64), centre)
        far = (~curve.crossed).nonzero().squeeze(1)
        if len(far):
            grid = guess[far] * torch.tensor(FAR_FACTORS, dtype=torch.float64)
            farther = self.select(far)._section(grid, centre.select(far)).around(curve.radii.shape[1])
            curve = curve.updated(far, farther)
        return self._sharpened(curve, SHARPEST if exact else ROUGH, FIRST_BRACKET_STEPS)

    def near_root(self, last: MarginCurve, step: Tensor) -> Root:
        """The root, by sectioning ever more closely.

        Args:
            last: The last evaluation, (batch, 1) each.
            step: From its radius to the root, as guessed: (batch, 1).
        """
        distant = torch.tensor(COARSE_STEPS, dtype=torch.float64)
        far = last.radii * torch.where(last.margins > 0, 1 + 3 * distant, 1 - distant)
        near = last.radii + step * torch.tensor(NEWTON, dtype=torch.float64)
        curve = self._section(torch.where(step.abs() < NEAR * last.radii, near, far), last)
        if not bool(curve.crossed.all()):
            curve = self._section(far, last)
        if not bool(curve.crossed.all()):
            times = torch.tensor(FARTHER, dtype=torch.float64)
            farther = torch.where(last.margins > 0, last.radii * times, last.radii / times)
            curve = self._section(torch.where(curve.crossed[:, None], far, farther), last)
        return self._sharpened(curve, SHARPNESS)

    def around(self, guess: Tensor, sharpness: float) -> Root:
        """The root where it is near a guess, (batch, 1), as closely as its bracket shall be sharp."""
        curve = self._section(guess * torch.tensor(CLOSE_FACTORS, dtype=torch.float64))
        if not bool(curve.crossed.all()):
            curve = self._section(guess * torch.tensor(AROUND_FACTORS, dtype=torch.float64))
        return self._sharpened(curve, sharpness, CLOSE_BRACKET_STEPS)

    def _sharpened(self, curve: MarginCurve, sharpness: float, within: tuple[float, ...] = BRACKET_STEPS) -> Root:
        """The root of the curve, evaluated ever more closely around it until the bracket is that sharp."""
        root = curve.root()
        predicted, questions = self, torch.arange(len(curve.radii))  # whose brackets are not sharp yet
        for round_number in range(SECTIONINGS):
            low, high = curve.bracket
            width = high.radii - low.radii
            blunt = (width.abs() >= sharpness * low.radii).squeeze(1).nonzero().squeeze(1)
            if not len(blunt):
                break
            if len(blunt) < len(questions):
                predicted, questions = predicted.select(blunt), questions[blunt]
                low, high, width = low.select(blunt), high.select(blunt), width[blunt]
            share = (root.radii[questions, None] - low.radii) / width
            inner = (share + torch.tensor(within, dtype=torch.float64)).clamp(0.001, 0.999)
            if round_number and bool((low.radii == 0).any()):  # from the centre on, as only first curves are
                inner = torch.where(low.radii > 0, inner, torch.tensor(FAR_BELOW, dtype=torch.float64))
            curve = predicted._section(low.radii + width * inner.sort(1).values, low, high)
            root = root.updated(questions, curve.root())
        return root

    def _section(self, grid: Tensor, *others: MarginCurve) -> MarginCurve:
        """Margins at the radii of a grid, (batch, radii), after and before others that were computed already."""
        curves = [*others[:1], MarginCurve(grid, self.at(grid)), *others[1:]]
        return MarginCurve(
            torch.cat([curve.radii for curve in curves], 1), torch.cat([curve.margins for curve in curves], 1)
        )
