"""Linear programs, for p = 1 and infinity, by HiGHS' simplex method."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from relucert.solvers.program import Array, Program, Sides
from relucert.solvers.solver import Multipliers, Unsolved, require


class Highs:
    """One model, handed over once and then changed in place; each solution starts from the basis of the last."""

    def __init__(self, program: Program, diamond: bool, time_limit: float) -> None:
        self._highspy = require("highspy")
        self._program, self._time_limit = program, time_limit
        count, first = len(program.after), program.first
        self._columns = np.arange(first, first + count, dtype=np.int32)
        self._lines = program.equations.shape[0] + diamond + np.arange(count, dtype=np.int32)
        self._all = np.arange(program.columns, dtype=np.int32)
        self._slope = np.zeros(count)
        self._model = self._highspy.Highs()
        for option, value in (("output_flag", False), ("parallel", "off"), ("presolve", "off")):
            self._model.setOptionValue(option, value)
        self._check(self._model.passModel(self._arrays(diamond)))

    def _arrays(self, diamond: bool) -> object:
        program, highspy = self._program, self._highspy
        count, width = len(program.after), program.columns
        own = sparse.eye_array(count, width, k=program.first)
        origin = sparse.coo_array((np.ones(count), (np.arange(count), program.sources)), shape=(count, width))
        whole = np.zeros((int(diamond), width))
        whole[:, : program.inputs] = 1
        matrix = sparse.csc_array(sparse.vstack([program.equations, whole, own - origin, own]))
        vanish, endless = np.zeros(program.equations.shape[0]), np.full(2 * count, np.inf)
        others = np.full(width - program.inputs, np.inf)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = width, matrix.shape[0]
        lp.col_cost_ = np.zeros(width)
        lp.col_lower_ = np.concatenate([np.full(program.inputs, 0.0 if diamond else -1.0), -others])
        lp.col_upper_ = np.concatenate([np.ones(program.inputs), others])
        lp.row_lower_ = np.concatenate([vanish, -np.full(int(diamond), np.inf), -endless])
        lp.row_upper_ = np.concatenate([vanish, np.ones(int(diamond)), endless])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
        return lp

    def change(self, sides: Sides) -> None:
        count, model = len(self._columns), self._model
        self._check(model.changeColsBounds(count, self._columns, *sides.zero))
        self._check(model.changeRowsBounds(count, self._lines, *sides.line))
        tops = self._lines + np.int32(count)
        self._check(model.changeRowsBounds(count, tops, np.full(count, -np.inf), sides.top))
        for place in np.flatnonzero(sides.slope != self._slope):
            model.changeCoeff(int(tops[place]), int(self._program.sources[place]), -float(sides.slope[place]))
        self._slope = sides.slope

    def solve(self, cost: Array) -> Multipliers:
        model, optimal = self._model, self._highspy.HighsModelStatus.kOptimal
        self._check(model.changeColsCost(len(cost), self._all, cost))
        model.setOptionValue("time_limit", model.getRunTime() + self._time_limit)  # its clock never starts anew
        model.run()
        if model.getModelStatus() != optimal:
            ended = model.modelStatusToString(model.getModelStatus())
            model.clearSolver()  # whatever went wrong is no place to start from
            raise Unsolved(ended)
        solution = model.getSolution()
        columns, rows = np.asarray(solution.col_dual), np.asarray(solution.row_dual)
        return Multipliers(columns[self._columns], rows[self._lines])

    def _check(self, status: object) -> None:
        if status == self._highspy.HighsStatus.kError:
            raise Unsolved("the model was refused")
