"""The contract of a solver: it gives the dual solution of a program. Nobody believes it; see `dual.py`."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import NamedTuple, Protocol

from relucert.errors import InputError
from relucert.methods.solvers.program import Array, RightHandSides


class Unsolved(Exception):  # noqa: N818
    """A program without a clean end; the message says which other one it had."""


class DualSolution(NamedTuple):
    """The multipliers of a >= 0 and of a >= z, one entry per ReLU: both >= 0 where the solver is right."""

    zero: Array
    line: Array


class Solver(Protocol):
    """Minimises linear costs over one program, again and again."""

    def change(self, sides: RightHandSides) -> None:
        """Moves on to another radius, or to other bounds of the neurons."""

    def solve(self, cost: Array) -> DualSolution:
        """The dual solution at the least cost; raises `Unsolved` at any other end."""


def require(module: str) -> ModuleType:
    """Imports a solver's package."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"this method and norm need the package {module}, which can't be imported: {error}") from None
