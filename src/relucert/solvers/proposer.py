"""Slopes for forms on a value: each from its own program, by a solver where the network is small, else by ascent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from relucert.bounding.interval import Bounds, select
from relucert.bounding.relaxers import FAST_LIN
from relucert.errors import RelucertError
from relucert.network import Network, Relu
from relucert.norm import Norm
from relucert.region import Region
from relucert.rigor import DOUBLE
from relucert.solvers.ascent import ascend
from relucert.solvers.dual import lower_slopes
from relucert.solvers.program import Array, Program, build
from relucert.solvers.solver import Solver, Unsolved

SOLVABLE = 400_000  # coefficients of a program beyond which ascent takes over
Slopes = dict[int, Tensor]  # by the value of a ReLU, the slopes of lower lines: (batch, forms, size)

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
class SlopeRequest:
    """Forms on a value, (batch or 1, forms, size), and which of them are wanted for each batch member, (batch, forms).

    `bounds` holds every neuron before the value, and none that the programs should not rely on.
    """

    network: Network
    region: Region
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
    """Programs of one network around the points of the latest regions. Nothing here is proven, nor needs to be."""

    def __init__(self, time_limit: float, make: MakeSolver = make_solver) -> None:
        self._time_limit, self._make = time_limit, make
        self._places: dict[bytes, _Place] = {}
        self._shape: object = None

    def remark(self, point: Tensor) -> str | None:
        """What there is to say about the programs around a point of the latest regions."""
        place = self._places.get(_key(point))
        if place is None or not place.failures:
            return None
        ends = ", ".join(f"{reason}: {count}" for reason, count in sorted(place.failures.items()))
        return f"{place.failures.total()} of {place.programs} programs fell back to Fast-Lin's bounds ({ends})"

    def propose(self, request: SlopeRequest) -> Slopes:
        """Slopes for all forms, (batch, forms, size) for each ReLU: Fast-Lin's where none are wanted or found."""
        needed = request.network.ancestors((request.value,))
        slopes = {}
        for value, node in request.network.steps():
            if value in needed and isinstance(node.operation, Relu):
                fast_lin = FAST_LIN(request.bounds[node.inputs[0]], DOUBLE).slope_below
                slopes[value] = fast_lin[:, None].repeat(1, request.forms.shape[1], 1)
        region = request.region
        self._forget_other_regions(region)
        keys = [_key(point) for point in region.points]
        self._places = {key: self._places.get(key) or _Place() for key in keys}
        members = keys if region.which is None else [keys[place] for place in region.which.tolist()]
        if solvable(request.network):
            self._solve(request, slopes, members)
            return slopes
        for member in request.wanted.any(1).nonzero().flatten().tolist():
            self._ascend(request, slopes, member, self._places[members[member]])
        return slopes

    def _forget_other_regions(self, region: Region) -> None:
        """Programs are about one box and one scale."""
        parts = (*(region.box or ()), *(() if region.scale is None else (region.scale,)))
        shape = region.norm, region.box is None, tuple(_key(part) for part in parts)
        if shape != self._shape:
            self._shape, self._places = shape, {}

    def _ascend(self, request: SlopeRequest, slopes: Slopes, member: int, place: _Place) -> None:
        alone, forms = slice(member, member + 1), request.wanted[member].nonzero().flatten()
        place.programs += len(forms)
        start = {value: table[alone, forms] for value, table in slopes.items()}
        rows = request.forms[alone if len(request.forms) > 1 else slice(None), forms]
        region = request.region.select(torch.tensor([member]))
        try:
            better = ascend(
                request.network, region, rows, request.value, select(request.bounds, alone), start, self._time_limit
            )
        except Unsolved as unsolved:
            place.failures[str(unsolved)] += len(forms)
            return
        for value, table in better.items():
            slopes[value][alone, forms] = table

    def _solve(self, request: SlopeRequest, slopes: Slopes, members: list[bytes]) -> None:
        """Solves all wanted programs: the points side by side, few points in as many parts as there are threads."""
        wanted: dict[bytes, list[tuple[int, list[int]]]] = {}
        region = request.region
        inside = (request.wanted & (region.radius > 0)[:, None]).tolist()  # a radius of 0 is no unit to count in
        for member, (key, row) in enumerate(zip(members, inside, strict=True)):
            if any(row):
                wanted.setdefault(key, []).append((member, [form for form, asked in enumerate(row) if asked]))
        if not wanted:
            return
        threads = torch.get_num_threads()
        parts = -(-threads // len(wanted))
        network = request.network.cast(torch.float64)
        for key in wanted:
            place = self._places[key]
            if place.program is None:
                place.program = build(network, region, wanted[key][0][0])
        work = [
            _Work(self, request, self._places[key], part, [(member, forms[part::parts]) for member, forms in asked])
            for key, asked in wanted.items()
            for part in range(parts)
        ]
        if threads == 1 or len(work) == 1:
            ends = [item.run() for item in work]
        else:
            with ThreadPoolExecutor(threads) as pool:
                ends = list(pool.map(_Work.run, work))
        for item, (proposed, failures) in zip(work, ends, strict=True):
            item.place.programs += len(proposed) + failures.total()
            item.place.failures.update(failures)
            for (member, form), table in proposed.items():
                for value, chosen in slopes.items():
                    chosen[member, form] = torch.from_numpy(table[item.program.activations[value]])

    def solver(self, place: _Place, part: int, norm: Norm) -> Solver:
        assert place.program is not None
        if part not in place.solvers:
            place.solvers[part] = self._make(place.program, norm, self._time_limit)
        return place.solvers[part]


@dataclass(frozen=True, eq=False)
class _Work:
    """Programs around one point for one solver: batch members, and forms of each."""

    proposer: Proposer
    request: SlopeRequest
    place: _Place
    part: int
    asked: list[tuple[int, list[int]]]

    @property
    def program(self) -> Program:
        assert self.place.program is not None
        return self.place.program

    @np.errstate(all="ignore")
    def run(self) -> tuple[dict[tuple[int, int], Array], Counter[str]]:
        """The slopes proposed, by batch member and form, and how many programs failed for which reason."""
        proposed: dict[tuple[int, int], Array] = {}
        failures: Counter[str] = Counter()
        request = self.request
        for member, forms in self.asked:
            rows = request.forms[member if len(request.forms) > 1 else 0].double().numpy()
            sides = self.program.sides(float(request.region.radius[member]), request.bounds, member)
            changed = False
            for form in forms:
                try:
                    solver = self.proposer.solver(self.place, self.part, request.region.norm)
                    if not changed:
                        solver.change(sides)
                        changed = True
                    solution = solver.solve(rows[form] @ self.program.forms[request.value])
                    proposed[member, form] = lower_slopes(solution, sides.slope)
                except (RelucertError, MemoryError):
                    raise
                except Exception as error:  # whatever a solver does to us, Fast-Lin's slopes stand
                    failures[str(error) if isinstance(error, Unsolved) else type(error).__name__] += 1
                    self.place.solvers.pop(self.part, None)
                    changed = False
        return proposed, failures


def _key(point: Tensor) -> bytes:
    """The same for a point in either precision."""
    return point.float().numpy().tobytes()
