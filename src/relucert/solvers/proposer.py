"""Slopes for forms on a value: each from its own program, by a solver where the network is small, else by ascent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from relucert.bounding.backward import Slopes
from relucert.bounding.forward import Bounds
from relucert.bounding.relaxers import parallel
from relucert.errors import RelucertError
from relucert.network import Network, Relu
from relucert.norm import Norm
from relucert.region import Ball
from relucert.rigor import DOUBLE
from relucert.solvers.ascent import ascend
from relucert.solvers.dual import lower_slopes
from relucert.solvers.program import Array, Program, build
from relucert.solvers.solver import Solver, Unsolved

SOLVABLE = 400_000  # coefficients of a program beyond which ascent takes over

MakeSolver = Callable[[Program, Norm, float], Solver]


def make_solver(program: Program, norm: Norm, time_limit: float) -> Solver:
    """Imports what it needs only now: other methods should not wait for it."""
    if norm.body == "sphere":
        from relucert.solvers.conic import Conic

        return Conic(program, time_limit)
    from relucert.solvers.highs import Highs

    return Highs(program, norm.body == "diamond", time_limit)


def solvable(network: Network) -> bool:
    """Whether the network's programs are small enough for a solver."""
    return sum(network.sizes[value] * max(network.sizes[: value + 1]) for value in network.rectified) <= SOLVABLE


@dataclass(frozen=True, eq=False)
class Task:
    """Forms on a value, (batch or 1, forms, size), and which of them are wanted for each batch member, (batch, forms).

    `bounds` holds every neuron before the value, and none that the programs should not rely on.
    """

    network: Network
    ball: Ball
    value: int
    forms: Tensor
    wanted: Tensor
    bounds: Bounds


@dataclass(eq=False)
class _Place:
    """What is kept for one point: its program, solvers with their warm starts, and how the programs ended."""

    program: Program | None = None
    solvers: dict[int, Solver] = field(default_factory=dict)
    programs: int = 0
    failures: Counter[str] = field(default_factory=Counter)


class Proposer:
    """Programs of one network around the points of the latest balls. Nothing here is proven, nor needs to be."""

    def __init__(self, time_limit: float, make: MakeSolver = make_solver) -> None:
        self._time_limit, self._make = time_limit, make
        self._places: dict[bytes, _Place] = {}

    def remark(self, point: Tensor) -> str | None:
        """What there is to say about the programs around a point of the latest balls."""
        place = self._places.get(_key(point))
        if place is None or not place.failures:
            return None
        ends = ", ".join(f"{reason}: {count}" for reason, count in sorted(place.failures.items()))
        return f"{place.failures.total()} of {place.programs} programs fell back to Fast-Lin's bounds ({ends})"

    def propose(self, task: Task) -> Slopes:
        """Slopes for all forms, (batch, forms, size) a ReLU: Fast-Lin's where none are wanted or none were found."""
        needed = task.network.ancestors((task.value,))
        slopes = {}
        for made, node in task.network.steps():
            if made in needed and isinstance(node.operation, Relu):
                own = parallel(task.bounds[node.inputs[0]], DOUBLE).slope_below
                slopes[made] = own[:, None].repeat(1, task.forms.shape[1], 1)
        keys = [_key(point) for point in task.ball.points]
        self._places = {key: self._places.get(key) or _Place() for key in keys}
        members = keys if task.ball.which is None else [keys[place] for place in task.ball.which.tolist()]
        if solvable(task.network):
            self._solve(task, slopes, members)
            return slopes
        for member in task.wanted.any(1).nonzero().flatten().tolist():
            self._ascend(task, slopes, member, self._places[members[member]])
        return slopes

    def _ascend(self, task: Task, slopes: Slopes, member: int, place: _Place) -> None:
        own, forms = slice(member, member + 1), task.wanted[member].nonzero().flatten()
        place.programs += len(forms)
        start = {made: table[own, forms] for made, table in slopes.items()}
        bounds = {source: type(both)(*(side[own] for side in both)) for source, both in task.bounds.items()}
        rows = task.forms[own if len(task.forms) > 1 else slice(None), forms]
        ball = task.ball.select(torch.tensor([member]))
        try:
            found = ascend(task.network, ball, rows, task.value, bounds, start, self._time_limit)
        except Unsolved as unsolved:
            place.failures[str(unsolved)] += len(forms)
            return
        for made, table in found.items():
            slopes[made][own, forms] = table

    def _solve(self, task: Task, slopes: Slopes, members: list[bytes]) -> None:
        """Solves all wanted programs: the points side by side, few points in as many parts as there are threads."""
        wanted: dict[bytes, list[tuple[int, list[int]]]] = {}
        inside = (task.wanted & (task.ball.radius > 0)[:, None]).tolist()  # a ball of no size has no units to count in
        for member, (key, row) in enumerate(zip(members, inside, strict=True)):
            if any(row):
                wanted.setdefault(key, []).append((member, [form for form, asked in enumerate(row) if asked]))
        if not wanted:
            return
        threads = torch.get_num_threads()
        parts = -(-threads // len(wanted))
        network = task.network.cast(torch.float64)
        for key in wanted:
            place = self._places[key]
            if place.program is None:
                member = wanted[key][0][0]
                place.program = build(network, task.ball.centre[member].double(), task.ball.norm)
        work = [
            _Work(self, task, self._places[key], part, [(member, forms[part::parts]) for member, forms in asked])
            for key, asked in wanted.items()
            for part in range(parts)
        ]
        if threads == 1 or len(work) == 1:
            ends = [own.run() for own in work]
        else:
            with ThreadPoolExecutor(threads) as pool:
                ends = list(pool.map(_Work.run, work))
        for own, (found, failures) in zip(work, ends, strict=True):
            own.place.programs += len(found) + failures.total()
            own.place.failures.update(failures)
            for (member, form), table in found.items():
                for made, own_slopes in slopes.items():
                    own_slopes[member, form] = torch.from_numpy(table[own.program.activations[made]])

    def solver(self, place: _Place, part: int, norm: Norm) -> Solver:
        assert place.program is not None
        if part not in place.solvers:
            place.solvers[part] = self._make(place.program, norm, self._time_limit)
        return place.solvers[part]


@dataclass(frozen=True, eq=False)
class _Work:
    """Programs around one point for one solver: batch members, and forms of each."""

    proposer: Proposer
    task: Task
    place: _Place
    part: int
    asked: list[tuple[int, list[int]]]

    @property
    def program(self) -> Program:
        assert self.place.program is not None
        return self.place.program

    @np.errstate(all="ignore")
    def run(self) -> tuple[dict[tuple[int, int], Array], Counter[str]]:
        """The slopes found, by batch member and form, and how many programs failed for which reason."""
        found: dict[tuple[int, int], Array] = {}
        failures: Counter[str] = Counter()
        for member, forms in self.asked:
            rows = self.task.forms[member if len(self.task.forms) > 1 else 0].double().numpy()
            sides = self.program.sides(float(self.task.ball.radius[member]), self.task.bounds, member)
            changed = False
            for form in forms:
                try:
                    solver = self.proposer.solver(self.place, self.part, self.task.ball.norm)
                    if not changed:
                        solver.change(sides)
                        changed = True
                    multipliers = solver.solve(rows[form] @ self.program.forms[self.task.value])
                    found[member, form] = lower_slopes(multipliers, sides.slope)
                except (RelucertError, MemoryError):
                    raise
                except Exception as error:  # whatever a solver does to us, Fast-Lin's slopes stand
                    failures[str(error) if isinstance(error, Unsolved) else type(error).__name__] += 1
                    self.place.solvers.pop(self.part, None)
                    changed = False
        return found, failures


def _key(point: Tensor) -> bytes:
    """The same for a point in either precision."""
    return point.float().numpy().tobytes()
