"""Linear programs, for p = 1 and infinity, by HiGHS' simplex method."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from relucert.common.deadline import seconds_left
from relucert.methods.solvers.program import Array, Program, RightHandSides
from relucert.methods.solvers.solver import DualSolution, Unsolved, require


class Highs:
    """One model, handed over once and then changed in place; each solution starts from the basis of the last."""

    def __init__(self, program: Program, diamond: bool, time_limit: float) -> None:
        self._highspy = require("highspy")
        self._program, self._time_limit = program, time_limit
        count = len(program.before)
        self._columns = np.arange(program.columns - count, program.columns, dtype=np.int32)
        self._lines = len(program.equations) + diamond + np.arange(count, dtype=np.int32)
        self._all = np.arange(program.columns, dtype=np.int32)
        self._inputs = self._all[: program.inputs]
        self._slope = np.zeros(count)
        self._model = self._highspy.Highs()
        for option, value in (("output_flag", False), ("parallel", "off"), ("presolve", "off")):
            self._model.setOptionValue(option, value)
        self._pass(diamond)

    def _pass(self, diamond: bool) -> None:
        program = self._program
        whole = np.zeros((int(diamond), program.columns))
        whole[:, : program.inputs] = 1
        activations = program.activation_rows
        rows = np.concatenate([program.equations, whole, activations - program.source_rows, activations])
        matrix = sparse.csc_array(rows)
        vanish, endless = np.zeros(len(program.equations)), np.full(2 * len(program.before), np.inf)
        others = np.full(program.columns - program.inputs, np.inf)
        by_columns = int(self._highspy.MatrixFormat.kColwise)
        minimise = int(self._highspy.ObjSense.kMinimize)
        status = self._model.passModel(
            program.columns, len(rows), matrix.nnz, by_columns, minimise, 0.0, np.zeros(program.columns),
            np.concatenate([np.zeros(program.inputs), -others]),
            np.concatenate([np.zeros(program.inputs), others]),
            np.concatenate([vanish, -np.full(int(diamond), np.inf), -endless]),
            np.concatenate([vanish, np.ones(int(diamond)), endless]),
            matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), matrix.data,
            np.zeros(program.columns, np.int32),
        )  # fmt: skip
        self._check(status)

    def change(self, sides: RightHandSides) -> None:
        count, model = len(self._columns), self._model
        self._check(model.changeColsBounds(len(self._inputs), self._inputs, *sides.inputs))
        self._check(model.changeColsBounds(count, self._columns, *sides.zero))
        self._check(model.changeRowsBounds(count, self._lines, *sides.line))
        tops = self._lines + np.int32(count)
        self._check(model.changeRowsBounds(count, tops, np.full(count, -np.inf), sides.top))
        for place in np.flatnonzero(sides.slope != self._slope):
            model.changeCoeff(int(tops[place]), self._program.inputs + int(place), -float(sides.slope[place]))
        self._slope = sides.slope

    def solve(self, cost: Array) -> DualSolution:
        model, statuses = self._model, self._highspy.HighsModelStatus
        self._check(model.changeColsCost(len(cost), self._all, cost))
        seconds = min(self._time_limit, seconds_left())
        model.setOptionValue("time_limit", model.getRunTime() + seconds)  # its clock never starts anew
        model.run()
        if model.getModelStatus() not in (statuses.kOptimal, statuses.kTimeLimit):
            model.clearSolver()  # the last basis was no good place to start from
            model.run()
        if model.getModelStatus() != statuses.kOptimal:
            raise Unsolved(model.modelStatusToString(model.getModelStatus()))
        solution = model.getSolution()
        columns, rows = np.asarray(solution.col_dual), np.asarray(solution.row_dual)
        return DualSolution(columns[self._columns], rows[self._lines])

    def _check(self, status: object) -> None:
        if status == self._highspy.HighsStatus.kError:
            raise Unsolved("the model was refused")
