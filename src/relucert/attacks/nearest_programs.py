"""The programs behind `nearest_program`: linear ones by HiGHS, a quadratic one by Clarabel."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from relucert.attacks.nearest import Array, Nearest
from relucert.solvers.conic import panics
from relucert.solvers.solver import Unsolved, require

FEASIBLE = 1e-9


class _LinearProgram:
    """What both linear programs share: a HiGHS model whose first columns make up the offset."""

    def __init__(self) -> None:
        self.highspy = require("highspy")
        self.model = self.highspy.Highs()
        self.model.setOptionValue("output_flag", False)
        self.model.setOptionValue("threads", 1)
        self.model.setOptionValue("solver", "simplex")
        self.model.setOptionValue("presolve", "off")  # it would forget where the last solution was
        self.model.setOptionValue("primal_feasibility_tolerance", FEASIBLE)
        self.first = 0
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
        """The columns' values and the added rows' duals."""
        if self.refused:
            return None
        self.model.setOptionValue("time_limit", self.model.getRunTime() + seconds)
        self.model.run()
        if self.model.getModelStatus() != self.highspy.HighsModelStatus.kOptimal:
            return None
        solution = self.model.getSolution()
        return np.array(solution.col_value), np.abs(np.array(solution.row_dual)[self.first :])


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
    """p = infinity: the radius is one more column, and lies above every coordinate and its negative."""

    def __init__(self, low: Array, high: Array) -> None:
        super().__init__()
        self.size = size = len(low)
        self.columns(np.append(np.zeros(size), 1.0), np.append(low, 0.0), np.append(high, self.highspy.kHighsInf))
        unit, radius = sparse.identity(size), np.ones((size, 1))
        self.rows(np.zeros(2 * size), sparse.bmat([[unit, radius], [-unit, radius]], format="csr"))
        self.first = 2 * size

    def add(self, rows: Array, least: Array) -> None:
        self.rows(least, sparse.csr_matrix(np.hstack([rows, np.zeros((len(rows), 1))])))

    def solve(self, seconds: float) -> Nearest | None:
        solution = self.run(seconds)
        return None if solution is None else Nearest(solution[0][: self.size], solution[1])


class SquareProgram:
    """p = 2: half the squared length."""

    def __init__(self, low: Array, high: Array) -> None:
        size = len(low)
        unit = sparse.identity(size, format="csc")
        above, below = np.isfinite(high), np.isfinite(low)
        self.cost = unit
        self.sides = [unit[above], -unit[below]]
        self.limits = [high[above], -low[below]]
        self.first = int(above.sum() + below.sum())

    def add(self, rows: Array, least: Array) -> None:
        self.sides.append(sparse.csc_matrix(-rows))
        self.limits.append(-least)

    def solve(self, seconds: float) -> Nearest | None:
        sides, limits = sparse.vstack(self.sides, format="csc"), np.concatenate(self.limits)
        clarabel = require("clarabel")
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_threads = 1
        settings.time_limit = seconds
        cones = [clarabel.NonnegativeConeT(len(limits))]
        try:
            with panics():
                solution = clarabel.DefaultSolver(
                    self.cost, np.zeros(self.cost.shape[0]), sides, limits, cones, settings
                ).solve()
        except Unsolved:
            return None
        if solution.status != clarabel.SolverStatus.Solved:
            return None
        return Nearest(np.array(solution.x), np.array(solution.z)[self.first :])
