"""The nearest point that satisfies linear inequalities: a linear program for p = 1 and infinity (HiGHS), a quadratic
one for p = 2 (Clarabel). Inequalities can be added, and the program solved again from where it was."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from relucert.arithmetic.box import Box
from relucert.arithmetic.norm import Norm
from relucert.methods.solvers.conic import panics
from relucert.methods.solvers.solver import Unsolved, require

Array = NDArray[np.float64]

FEASIBLE = 1e-9  # tolerance of constraints: of those in the model, and of limits that are added where violated


class Nearest(NamedTuple):
    """The optimal offset, and the Lagrange multiplier of each inequality that was added (0: it is not active)."""

    offset: Array
    multipliers: Array


class NearestProgram(Protocol):
    """The least offset, in some norm, between bounds and with `rows @ offset >= least`."""

    def add(self, rows: Array, least: Array) -> None: ...

    def solve(self, seconds: float) -> Nearest | None:
        """The solution; None unless the solver says that it is optimal."""


class _LinearProgram:
    """A HiGHS model whose first columns make up the offset: the base of both linear programs."""

    def __init__(self) -> None:
        self.highspy = require("highspy")
        self.model = self.highspy.Highs()
        self.model.setOptionValue("output_flag", False)
        self.model.setOptionValue("threads", 1)
        self.model.setOptionValue("solver", "simplex")
        self.model.setOptionValue("presolve", "off")  # it would forget where the last solution was
        self.model.setOptionValue("primal_feasibility_tolerance", FEASIBLE)
        self.refused = False

    def columns(self, costs: Array, low: Array, high: Array) -> None:
        none = np.empty(0, dtype=np.int32)
        self.model.addCols(len(costs), costs, low, high, 0, none, none, np.empty(0))

    def rows(self, least: Array, coefficients: sparse.csr_matrix) -> None:
        infinite = np.full(len(least), self.highspy.kHighsInf)
        starts, indices = coefficients.indptr.astype(np.int32), coefficients.indices.astype(np.int32)
        status = self.model.addRows(
            len(least), least, infinite, coefficients.nnz, starts[:-1], indices, coefficients.data.astype(np.float64)
        )  # fmt: skip
        self.refused |= status == self.highspy.HighsStatus.kError  # numbers too large: the rows are not there

    def run(self, seconds: float) -> tuple[Array, Array] | None:
        """The columns' values and the rows' duals."""
        if self.refused:
            return None
        self.model.setOptionValue("time_limit", self.model.getRunTime() + seconds)
        self.model.run()
        if self.model.getModelStatus() != self.highspy.HighsModelStatus.kOptimal:
            return None
        solution = self.model.getSolution()
        return np.array(solution.col_value), np.abs(np.array(solution.row_dual))


class SumProgram(_LinearProgram):
    """p = 1: every coordinate is a way up and a way down, each costing its length."""

    def __init__(self, low: Array, high: Array) -> None:
        super().__init__()
        self.columns(np.ones(2 * len(low)), np.zeros(2 * len(low)), np.concatenate([high, -low]))

    def add(self, rows: Array, least: Array) -> None:
        self.rows(least, sparse.csr_matrix(np.hstack([rows, -rows])))

    def solve(self, seconds: float) -> Nearest | None:
        solution = self.run(seconds)
        if solution is None:
            return None
        up, down = np.split(solution[0], 2)
        return Nearest(up - down, solution[1])


class LargestProgram(_LinearProgram):
    """p = infinity: the radius is the last column. At the solution most coordinates are as far out as they may.

    So a column is what a coordinate lacks, in the direction that the first inequality pulls it, of the radius, or of
    its wall where that is nearer. Few of the other limits matter: they are added where a solution violates them.
    """

    def __init__(self, low: Array, high: Array) -> None:
        super().__init__()
        self.size, self.walls = len(low), (low, high)
        self.added: list[int] = []  # the indices of the inequalities among the rows

    def _begin(self, row: Array, least: float) -> None:
        self.signs = np.where(row < 0, -1.0, 1.0)
        low, high = self.walls
        self.ahead = np.where(row < 0, -low, high)
        self.behind = np.where(row < 0, high, -low)
        self.tied = np.isinf(self.ahead) | (self.ahead > _least_radius(np.abs(row), self.ahead, least))
        widths = np.where(self.tied, np.inf, self.ahead + self.behind)
        self.limited = np.zeros((5, self.size), dtype=bool)
        self.columns(np.append(np.zeros(self.size), 1.0), np.zeros(self.size + 1), np.append(widths, np.inf))

    def add(self, rows: Array, least: Array) -> None:
        if not self.added:
            self._begin(rows[0], float(least[0]))
        turned = rows * self.signs
        to_walls = np.where(self.tied, 0.0, self.ahead)
        coefficients = np.column_stack([-turned, turned[:, self.tied].sum(1)])
        self.refused |= not np.isfinite(coefficients).all()
        first = self.model.getNumRow()
        self.added += range(first, first + len(rows))
        self.rows(least - turned @ to_walls, sparse.csr_matrix(coefficients))

    def solve(self, seconds: float) -> Nearest | None:
        ends = time.monotonic() + seconds
        while (solution := self.run(max(0.01, ends - time.monotonic()))) is not None:
            lacking, radius = solution[0][: self.size], solution[0][self.size]
            moves = np.where(self.tied, radius, self.ahead) - lacking
            if not self._limit(moves, radius):
                return Nearest(self.signs * moves, solution[1][self.added])
        return None

    def _limit(self, moves: Array, radius: float) -> bool:
        """Adds the limits that a solution violates: walls of coordinates whose columns count from the radius, and the
        radius itself. Returns whether there were any."""
        room = FEASIBLE * max(1.0, abs(radius))
        limits = (
            (self.tied & (moves > self.ahead + room), 1.0, -1.0, -self.ahead),
            (self.tied & (moves < -self.behind - room), -1.0, 1.0, -self.behind),
            (self.tied & (moves < -radius - room), -1.0, 2.0, np.zeros(self.size)),
            (~self.tied & (moves > radius + room), 1.0, 1.0, self.ahead),
            (~self.tied & (moves < -radius - room), -1.0, 1.0, -self.ahead),
        )
        fresh = False
        for present, (violated, coefficient, of_radius, least) in zip(self.limited, limits, strict=True):
            indices = np.flatnonzero(violated & ~present)
            if len(indices):
                present[indices], fresh = True, True
                unit = coefficient * sparse.identity(self.size, format="csr")[indices]
                self.rows(least[indices], sparse.hstack([unit, np.full((len(indices), 1), of_radius)], format="csr"))
        return fresh


def _least_radius(slopes: Array, walls: Array, least: float) -> float:
    """The least r for which the sum of `slopes * min(r, walls)` is at least `least`; infinite where there is none."""
    if least <= 0:
        return 0.0
    order = np.argsort(walls)
    slopes, walls = slopes[order], walls[order]
    steepness = slopes[::-1].cumsum()[::-1]  # of this coordinate and all with farther walls
    before = np.append(0.0, (slopes * np.where(slopes > 0, walls, 0.0))[:-1].cumsum())
    radii = np.divide(least - before, steepness, out=np.full(len(walls), np.inf), where=steepness > 0)
    reached = np.flatnonzero(radii <= walls)
    return float(radii[reached[0]]) if len(reached) else np.inf


class SquareProgram:
    """p = 2: half the squared length."""

    def __init__(self, low: Array, high: Array) -> None:
        size = len(low)
        unit = sparse.identity(size, format="csc")
        above, below = np.isfinite(high), np.isfinite(low)
        self.cost = unit
        self.constraints = [unit[above], -unit[below]]
        self.limits = [high[above], -low[below]]
        self.first = int(above.sum() + below.sum())

    def add(self, rows: Array, least: Array) -> None:
        self.constraints.append(sparse.csc_matrix(-rows))
        self.limits.append(-least)

    def solve(self, seconds: float) -> Nearest | None:
        constraints, limits = sparse.vstack(self.constraints, format="csc"), np.concatenate(self.limits)
        clarabel = require("clarabel")
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_threads = 1
        settings.time_limit = seconds
        cones = [clarabel.NonnegativeConeT(len(limits))]
        try:
            with panics():
                solution = clarabel.DefaultSolver(
                    self.cost, np.zeros(self.cost.shape[0]), constraints, limits, cones, settings
                ).solve()
        except Unsolved:
            return None
        if solution.status != clarabel.SolverStatus.Solved:
            return None
        return Nearest(np.array(solution.x), np.array(solution.z)[self.first :])


def offset_walls(centre: Tensor, box: Box | None, scale: Tensor) -> tuple[Array, Array]:
    """How far offsets from a centre, in units of the scale, may go down and up."""
    low, high = (torch.full_like(centre, -torch.inf), torch.full_like(centre, torch.inf)) if box is None else box
    moving, units = scale > 0, torch.where(scale > 0, scale, 1)
    ends = ((low.double() - centre).clamp(max=0) / units, (high.double() - centre).clamp(min=0) / units)
    down, up = (torch.where(moving, end, 0).numpy() for end in ends)
    return down, up


def nearest_program(norm: Norm, low: Array, high: Array) -> NearestProgram:
    """The program for p = 1, 2 or infinity; for another p that of p = 2."""
    programs: dict[str, Callable[[Array, Array], NearestProgram]] = {
        "one": SumProgram, "between": SquareProgram, "infinite": LargestProgram,
    }  # fmt: skip
    return norm.choose(**programs)(low, high)
