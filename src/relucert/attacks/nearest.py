"""The nearest point that satisfies linear inequalities: a linear program for p = 1 and infinity (HiGHS), a quadratic
one for p = 2 (Clarabel). Inequalities can be added, and the program solved again from where it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from relucert.arithmetic.norm import Norm

Array = NDArray[np.float64]


class Nearest(NamedTuple):
    """The optimal offset, and the Lagrange multiplier of each inequality that was added (0: it is not active)."""

    offset: Array
    multipliers: Array


class NearestProgram(Protocol):
    """The least offset, in some norm, between bounds and with `rows @ offset >= least`."""

    def add(self, rows: Array, least: Array) -> None: ...

    def solve(self, seconds: float) -> Nearest | None:
        """The solution; None unless the solver says that it is optimal."""


def nearest_program(norm: Norm, low: Array, high: Array) -> NearestProgram:
    """The program for p = 1, 2 or infinity; for another p that of p = 2."""
    from relucert.attacks.nearest_programs import LargestProgram, SquareProgram, SumProgram  # SciPy takes its time

    programs: dict[str, Callable[[Array, Array], NearestProgram]] = {
        "one": SumProgram, "between": SquareProgram, "infinite": LargestProgram,
    }  # fmt: skip
    return norm.choose(**programs)(low, high)
