"""The root of a predicted margin: the radius at which a search looks next.

Nothing here is a bound. A prediction chooses where to look next, and a wrong one costs time, not truth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
FARTHER = (4.0, 8.0, 16.0, 64.0)  # times the last radius, to look at where the margin is positive up to there
INITIAL_FACTORS = (0.5, 0.7, 0.85, 1.0, 1.15, 1.35, 1.7)  # of a guess of the root: where to look first
CLOSE_FACTORS = (0.996, 1.004)  # of a guess of the root that is nearly right
# Of a guess of the root that the first look did not bracket:
FAR_FACTORS = (0.01, 0.1, 0.5, 1.5, 3.0, 8.0, 30.0, 1000.0)
BRACKET_STEPS = (-0.1, -0.01, 0.01, 0.1)  # around a root, as shares of its bracket
CLOSE_BRACKET_STEPS = (-0.05, 0.05)  # around a root, where predictions are nearly exact but not cheap


class MarginCurve(NamedTuple):
    """Margins at radii in order, (batch, points) each."""

    radii: Tensor
    margins: Tensor

    @property
    def crossed(self) -> Tensor:
        """Whether the sign changes, (batch,)."""
        return ((self.margins > 0) != (self.margins[:, :1] > 0)).any(1)

    def around(self, count: int) -> MarginCurve:
        """At most `count` neighbouring points around the first change of sign, or the last ones where there is none."""
        changed = (self.margins > 0) != (self.margins[:, :1] > 0)
        last = self.radii.shape[1] - 1
        count = min(count, last + 1)
        crossing = torch.where(changed.any(1), changed.int().argmax(1), last)[:, None]
        points = (crossing - count // 2).clamp(0, last + 1 - count) + torch.arange(count)
        return MarginCurve(self.radii.gather(1, points), self.margins.gather(1, points))

    def bracket(self) -> tuple[MarginCurve, MarginCurve]:
        """The neighbours between which the sign changes."""
        pair = self.around(2)
        return MarginCurve(pair.radii[:, :1], pair.margins[:, :1]), MarginCurve(pair.radii[:, 1:], pair.margins[:, 1:])

    def slope(self) -> Tensor:
        """The slope of a chord around where the sign changes; strictly negative, as margins are meant to fall."""
        radii, margins = self.around(4)
        return ((margins[:, -1] - margins[:, 0]) / (radii[:, -1] - radii[:, 0])).nan_to_num(-1.0).clamp(max=-1e-30)

    def root(self) -> Tensor:
        """The radius where the margin crosses zero, by inverse interpolation of four points; if none, the far end."""
        low, high = self.bracket()
        chord = low.radii + (high.radii - low.radii) * low.margins / (low.margins - high.margins)
        radii, margins = self.around(4)
        same = torch.eye(radii.shape[1], dtype=torch.bool)
        factors = torch.where(same, 1, margins[:, None])
        differences = torch.where(same, 1, margins[:, None] - margins[:, :, None])
        weights = torch.ones_like(margins)  # Lagrange's: of each point, the product over all others
        for other in range(radii.shape[1]):
            weights = weights * factors[..., other] / differences[..., other]
        cubic = (weights * radii).sum(1, keepdim=True)
        ends = torch.minimum(low.radii, high.radii), torch.maximum(low.radii, high.radii)
        best = torch.where((cubic >= ends[0]) & (cubic <= ends[1]), cubic, chord.clamp(*ends))
        return torch.where(self.crossed & best.isfinite().squeeze(1), best.squeeze(1), high.radii.squeeze(1))


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
        """The prediction, moved so that it meets the last evaluation, (batch, 1) each."""
        return replace(self, offset=self.offset + last.margins - self.at(last.radii))

    def at(self, radii: Tensor) -> Tensor:
        """The predicted margins at candidate radii, (batch, radii)."""
        return self.evaluator.predict(self.problem, radii, self.model, self.correction).amin(2) + self.offset

    def from_centre(self, heights: Tensor, guess: Tensor, exact: bool) -> MarginCurve:
        """Margins around the root where nothing was evaluated.

        Args:
            heights: The margins at the centre, (batch, 1).
            guess: Where the root may be, (batch, 1).
            exact: Whether predictions are, so that the root is worth knowing closely.
        """
        centre = MarginCurve(torch.zeros_like(guess), heights)
        curve = self._section(guess * torch.tensor(INITIAL_FACTORS, dtype=torch.float64), centre)
        if not bool(curve.crossed.all()):
            curve = self._section(guess * torch.tensor(FAR_FACTORS, dtype=torch.float64), centre)
        return self._sharpened(curve, SHARPEST if exact else ROUGH)

    def near_root(self, last: MarginCurve, step: Tensor) -> MarginCurve:
        """Margins around the root, by sectioning ever more closely.

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
            farther = last.radii * torch.tensor(FARTHER, dtype=torch.float64)
            curve = self._section(torch.where(curve.crossed[:, None], far, farther), last)
        return self._sharpened(curve, SHARPNESS)

    def around(self, guess: Tensor, sharpness: float) -> MarginCurve:
        """Margins around the root where it is near a guess, (batch, 1), as closely as its bracket shall be sharp."""
        curve = self._section(guess * torch.tensor(CLOSE_FACTORS, dtype=torch.float64))
        if not bool(curve.crossed.all()):
            curve = self._section(guess * torch.tensor(INITIAL_FACTORS, dtype=torch.float64))
        return self._sharpened(curve, sharpness, CLOSE_BRACKET_STEPS)

    def _sharpened(
        self, curve: MarginCurve, sharpness: float, within: tuple[float, ...] = BRACKET_STEPS
    ) -> MarginCurve:
        """The curve, evaluated ever more closely around its root until the bracket is that sharp."""
        for _ in range(SECTIONINGS):
            low, high = curve.bracket()
            width = high.radii - low.radii
            if bool((width.abs() < sharpness * low.radii).all()):
                break
            share = (curve.root()[:, None] - low.radii) / width
            inner = (share + torch.tensor(within, dtype=torch.float64)).clamp(0.001, 0.999)
            curve = self._section(low.radii + width * inner.sort(1).values, low, high)
        return curve

    def _section(self, grid: Tensor, *others: MarginCurve) -> MarginCurve:
        """Margins at the radii of a grid, (batch, radii), after and before others that were computed already."""
        curves = [*others[:1], MarginCurve(grid, self.at(grid)), *others[1:]]
        return MarginCurve(
            torch.cat([curve.radii for curve in curves], 1), torch.cat([curve.margins for curve in curves], 1)
        )
