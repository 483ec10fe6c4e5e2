"""Slopes from a solver's multipliers: the one thing that is taken from its answer.

By duality a program's least value is the best bound that nonnegative multipliers of its constraints give. At an
unstable neuron those of `a >= 0` and `a >= z` add up to the coefficient of a, and what they leave of the neuron
is their share times z: a lower line through the origin. So they are one slope in [0, 1] per neuron, the backward
driver with these slopes gives the same value, and with any others it still gives a bound.
"""

from __future__ import annotations

import numpy as np

from relucert.methods.solvers.program import Array
from relucert.methods.solvers.solver import DualSolution, Unsolved


def lower_slopes(solution: DualSolution, otherwise: Array) -> Array:
    """The slope of every ReLU's lower line, one entry per ReLU; `otherwise` where both multipliers vanish."""
    if any(np.shape(part) != otherwise.shape or not np.isfinite(part).all() for part in solution):
        raise Unsolved("Multipliers that are no finite numbers")
    zero, line = (np.maximum(part, 0) for part in solution)
    largest = np.maximum(np.maximum(zero, line), np.finfo(float).tiny)
    zero, line = zero / largest, line / largest
    total = zero + line
    return np.where(total > 0, line / np.where(total > 0, total, 1), otherwise)
