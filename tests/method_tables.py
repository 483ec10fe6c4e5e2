"""Which methods there are of each kind, read from the table, so that a new row is tested like the others."""

import math
from typing import Any

from relucert.bounding.relaxers import RELAXERS
from relucert.methods.interval import IntervalMethod
from relucert.methods.linear import LinearMethod
from relucert.methods.lipschitz import LipschitzMethod
from relucert.methods.programs import ProgramMethod
from relucert.methods.table import METHODS, find_method

LINEAR = [name for name in METHODS if isinstance(find_method(name), LinearMethod | IntervalMethod)]
PROGRAMS = [name for name in METHODS if isinstance(find_method(name), ProgramMethod)]
CONSTANTS = {
    name: method.constant for name in METHODS if isinstance(method := find_method(name), LipschitzMethod)
}  # how each of the Lipschitz methods bounds a constant
LIPSCHITZ = list(CONSTANTS)
SHELLED = [
    name for name in METHODS if isinstance(method := find_method(name), LipschitzMethod) and method.local
]  # those that can split the ball into shells


def takes(method: str, norm: float) -> bool:
    """Whether a method is for this p-norm."""
    return method not in PROGRAMS or norm in (1.0, 2.0, math.inf)


PARALLEL = tuple(name for name, relaxer in RELAXERS.items() if relaxer.parallel)
FORMS: list[tuple[Any, Any]] = [(name, "forward") for name in (*PARALLEL, "interval")] + [
    (name, "backward") for name in RELAXERS
]
"""Every method of `relucert.bounds` with the forms that it has."""
