"""Leaves without unstable neurons: there the network is affine, and the nearest violation solves a convex program.

Only the program's multipliers are used: with them a back-substitution proves how near a violation can be. Where the
leaf has no violation, the program has no solution. Then one more coordinate, which helps to meet every inequality,
makes it solvable, and its multipliers prove the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from relucert.attacks.nearest import Nearest, nearest_program, offset_walls
from relucert.bounding.interval import Bounds
from relucert.network.linear_regions import Pattern, affine_values, form_gradients
from relucert.query.problem import Problem

HELPS = (0.0, 1e-2)  # of the further coordinate, in units of an inequality's own length
LEAST = 1e-6  # share of the largest multiplier that the property's own has at least


class Leaf(NamedTuple):
    """A row of the property over a subdomain in which every neuron is stable.

    Attributes:
        row: The number of the row.
        bounds: The bounds of every pre-activation there, (1, size).
        signs: By pre-activation, 1 or -1 for the neurons that were split, 0 for all others: (size,).
    """

    row: int
    bounds: Bounds
    signs: dict[int, Tensor]


def nearest(problem: Problem, leaf: Leaf, seconds: float) -> Iterator[tuple[Tensor, dict[int, Tensor]]]:
    """Solves the program of a leaf, without and with the helping coordinate.

    Yields:
        The nearest point at which the row of the leaf is violated, (size,), and by pre-activation the multipliers of
        the signs, (size,); nothing where the solver fails.
    """
    solver = _LeafProgram(problem, leaf)
    for helped in HELPS:
        solution = solver.solve(helped, seconds)
        if solution is not None:
            offset = solver.scale * torch.from_numpy(solution.offset[:-1])
            yield problem.centre + offset, solver.multipliers(solution)


@dataclass(eq=False)
class _LeafProgram:
    problem: Problem
    leaf: Leaf

    def __post_init__(self) -> None:
        problem, leaf = self.problem, self.leaf
        scale = problem.region.scale
        self.scale = torch.ones_like(problem.centre) if scale is None else scale
        self.pattern: Pattern = {value: interval.lower >= 0 for value, interval in leaf.bounds.items()}
        row, offset = problem.prop.rows[0, leaf.row][None], problem.prop.offsets[0, leaf.row][None]
        self.inequalities = [self._require(problem.exact.output, -row, -offset)]
        for value, signs in leaf.signs.items():
            forms = torch.diag(signs.double())[signs != 0]
            self.inequalities.append(self._require(value, forms, torch.zeros(len(forms), dtype=torch.float64)))

    def _require(self, value: int, forms: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and least such that forms (forms, size) on a value, plus offsets, are not negative where
        `rows @ offset >= least`, in units of the scale."""
        exact, centre = self.problem.exact, self.problem.centre
        at_centre = affine_values(exact, self.pattern, centre[None])[value][0]
        rows = form_gradients(exact, self.pattern, value, forms[None])[0] * self.scale
        least = -(forms @ at_centre + offsets)
        always = ~rows.any(1) & (least <= 0)  # an inequality that nothing can change only slows a solver down
        return rows, torch.where(always, least - 1, least)

    def solve(self, helped: float, seconds: float) -> Nearest | None:
        down, up = offset_walls(self.problem.centre, self.problem.region.box, self.scale)
        norm = self.problem.region.norm
        program = nearest_program(norm, np.append(down, 0.0), np.append(up, np.inf if helped else 0.0))
        for rows, least in self.inequalities:
            if len(rows):
                helping = helped * rows.norm(dim=1, keepdim=True)
                program.add(torch.cat([rows, helping], 1).numpy(), least.numpy())
        solution = program.solve(seconds)
        return solution if solution is not None and all(np.isfinite(array).all() for array in solution) else None

    def multipliers(self, solution: Nearest) -> dict[int, Tensor]:
        """The multipliers of the signs, by pre-activation, in units of the multiplier of the property's row."""
        multipliers = solution.multipliers
        unit = max(multipliers[0], LEAST * multipliers.max(), np.finfo(float).tiny)
        counts = [len(rows) for rows, _ in self.inequalities[1:]]
        shares = torch.from_numpy(multipliers[1:] / unit).split(counts)
        tables = {}
        for (value, signs), share in zip(self.leaf.signs.items(), shares, strict=True):
            tables[value] = torch.zeros(signs.shape, dtype=torch.float64)
            tables[value][signs != 0] = share
        return tables
