"""Conic programs, for p = 2, by Clarabel's interior-point method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import sparse

from relucert.common.deadline import seconds_left
from relucert.methods.solvers.program import Array, Program, RightHandSides
from relucert.methods.solvers.solver import DualSolution, Unsolved, require


@contextmanager
def panics() -> Iterator[None]:
    """Clarabel's panics are no ordinary exceptions: Python is told to end."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise Unsolved("Panic") from None
        raise


class Conic:
    """One model per radius, in which only the costs change from program to program."""

    def __init__(self, program: Program, time_limit: float) -> None:
        self._clarabel = require("clarabel")
        self._program = program
        self._settings = self._clarabel.DefaultSettings()
        self._settings.verbose = False
        self._settings.presolve_enable = False
        self._settings.max_threads = 1
        self._time_limit = time_limit
        self._model: Any = None

    def change(self, sides: RightHandSides) -> None:
        """Clarabel wants A x + s = b with s in a product of cones: zero, nonnegative, second-order."""
        program, clarabel, width = self._program, self._clarabel, self._program.columns
        rows = program.activation_rows
        line = rows - program.source_rows
        top = rows - sides.slope[:, None] * program.source_rows
        unit = np.eye(program.inputs, width)
        low, high = (np.isfinite(side) for side in sides.inputs)
        fixed = [sides.zero[0] == sides.zero[1], sides.line[0] == sides.line[1]]
        free = [np.isfinite(sides.zero[0]) & ~fixed[0], np.isfinite(sides.line[0]) & ~fixed[1], np.isfinite(sides.top)]
        blocks = [
            program.equations, rows[fixed[0]], line[fixed[1]],
            -rows[free[0]], -line[free[1]], top[free[2]], -unit[low], unit[high],
            np.zeros((1, width)), -unit,
        ]  # fmt: skip
        sizes = [len(block) for block in blocks]
        right = [
            np.zeros(sizes[0]), sides.zero[0][fixed[0]], sides.line[0][fixed[1]],
            -sides.zero[0][free[0]], -sides.line[0][free[1]], sides.top[free[2]],
            -sides.inputs[0][low], sides.inputs[1][high],
            np.ones(1), np.zeros(program.inputs),
        ]  # fmt: skip
        cones = [
            clarabel.ZeroConeT(sum(sizes[:3])),
            clarabel.NonnegativeConeT(sum(sizes[3:8])),
            clarabel.SecondOrderConeT(program.inputs + 1),
        ]
        matrix = sparse.csc_matrix(np.concatenate(blocks))
        nothing = sparse.csc_matrix((width, width))
        self._free, self._start, self._slope = free, sum(sizes[:3]), sides.slope
        with panics():
            self._model = clarabel.DefaultSolver(
                nothing, np.zeros(width), matrix, np.concatenate(right), cones, self._settings
            )

    def solve(self, cost: Array) -> DualSolution:
        with panics():
            self._settings.time_limit = min(self._time_limit, seconds_left())
            self._model.update(q=cost, settings=self._settings)
            solution = self._model.solve()
        if solution.status != self._clarabel.SolverStatus.Solved:
            raise Unsolved(str(solution.status))
        multipliers = np.asarray(solution.z)[self._start :]
        zero, line, top = (np.zeros(len(self._program.before)) for _ in range(3))
        first = 0
        for side, free in zip((zero, line, top), self._free, strict=True):
            side[free] = multipliers[first : first + int(free.sum())]
            first += int(free.sum())
        # Where a neuron is all but decided, an interior point holds it from above and from below at once. What both
        # hold cancels: with a >= 0, a line of slope s above it leaves -s of the neuron.
        both = np.minimum(zero, top)
        return DualSolution(zero - (1 - self._slope) * both, line - self._slope * both)
