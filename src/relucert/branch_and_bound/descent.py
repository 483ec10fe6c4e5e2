"""Descents on the rows themselves, in float32, from the points where their relaxations are least.

Random starts miss violations of which the basins are small; the minimiser of a relaxed row is often in one of them.

A step goes towards the point of the region where the row's linearisation is least, as in Frank-Wolfe and, in a box, as
in PGD by signs: it stays in the region whatever its norm. Only the neurons of the stages are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from relucert.arithmetic.region import SET_BACK
from relucert.attacks.objective import annealed
from relucert.branch_and_bound.dual_ascent import DualAscent
from relucert.common.deadline import check_time
from relucert.query.problem import Problem

STEPS = 20
STEP = 0.5  # length of the first step, as a share of the way across the region


class Descent:
    """Evaluates and descends the rows of a dual ascent, at points of its region."""

    def __init__(self, dual_ascent: DualAscent) -> None:
        self.dual_ascent, self.corners = dual_ascent, dual_ascent.corners

    def margins(self, points: Tensor) -> Tensor:
        """The values of all rows at points (count, inputs), as computed: (count, rows)."""
        return self._margins(self.corners.units(points).T.contiguous())

    def run(self, rows: Tensor, points: Tensor) -> Tensor:
        """The ends of descents of some rows, (count,), from points (count, inputs): (count, inputs)."""
        corner = self.corners.units(points).T.contiguous()
        best, least = corner, torch.full((len(rows),), torch.inf)
        for step in range(STEPS + 1):
            check_time()
            activations = self._activations(corner)
            values = self._margins(corner, activations).gather(1, rows[:, None])[:, 0]
            best, least = torch.where(values < least, corner, best), torch.minimum(values, least)
            if step < STEPS:
                gradient = self._gradient(rows, activations)
                corner = self.corners.lowered(corner, gradient, STEP * annealed(step / STEPS))
        return self.corners.point(best.T)

    def _activations(self, corner: Tensor) -> list[Tensor]:
        """The activations of all stages, (neurons, count) each, at points in units of the scale, (inputs, count)."""
        activations: list[Tensor] = []
        for prepared in self.dual_ascent.prepared:
            activations.append(prepared.values(corner, activations).clamp_(min=0))
        return activations

    def _margins(self, corner: Tensor, activations: list[Tensor] | None = None) -> Tensor:
        maps, matrix = self.dual_ascent.rows, self.dual_ascent.row_matrix
        activations = self._activations(corner) if activations is None else activations
        margins = maps.bias[:, None].repeat(1, corner.shape[1])
        if matrix is not None:
            margins += matrix @ corner
        for number, weight in maps.weights.items():
            margins += weight @ activations[number]
        return margins.T

    def _gradient(self, rows: Tensor, activations: list[Tensor]) -> Tensor:
        """The gradients of some rows, (inputs, count), in units of the scale."""
        maps, matrix = self.dual_ascent.rows, self.dual_ascent.row_matrix
        forms = {number: weight[rows].T.contiguous() for number, weight in maps.weights.items()}
        gradient = torch.zeros(len(self.corners.scale), len(rows))
        if matrix is not None:
            gradient = matrix[rows].T.contiguous()
        for number in reversed(range(len(activations))):
            if number not in forms:
                continue
            form = forms.pop(number) * (activations[number] > 0)
            prepared = self.dual_ascent.prepared[number]
            for earlier, product in prepared.weights.items():
                forms[earlier] = product.add_pulled(forms.get(earlier), form)
            if prepared.entrance is not None:
                prepared.entrance.add_pulled(gradient, form)
        return gradient


def inside(problem: Problem, point: Tensor) -> Iterator[Tensor]:
    """A point (size,) of the region's border, set back by more than its own rounding; in a box also as it is."""
    centre, box = problem.centre, problem.region.box
    if box is not None:
        yield torch.clamp(point, *box)
    moved = centre + SET_BACK * (point - centre)
    yield moved if box is None else torch.clamp(moved, *box)
