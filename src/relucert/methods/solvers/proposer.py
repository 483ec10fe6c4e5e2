"""Slopes for forms on a value: each from its own program, by a solver where the network is small, else by ascent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from relucert.arithmetic.norm import Norm
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, FLOAT
from relucert.bounding.ascent import BestBounds, Effort, Slopes, ascend
from relucert.bounding.backward import DualVariables, bound_forms
from relucert.bounding.interval import copied
from relucert.bounding.reference import PickedPath, ReferencePath
from relucert.bounding.relaxers import FAST_LIN
from relucert.common.deadline import TimeUp, check_time, until
from relucert.common.progress import Progress, Report, silent
from relucert.errors import RelucertError
from relucert.methods.solvers.dual import lower_slopes
from relucert.methods.solvers.program import Array, Program, build
from relucert.methods.solvers.solver import Solver, Unsolved
from relucert.methods.solvers.tally import Tally
from relucert.network import Network, Relu

SOLVABLE = 400_000  # coefficients of a program beyond which ascent takes over
POLL = 0.1  # seconds between looks whether an interruption came
STEPS = 99  # of one ascent
EFFORT = Effort(STEPS, rate=0.5, decay=0.01 ** (1 / (STEPS + 1)), least=0)  # the last rate is 0.01 of the first

MakeSolver = Callable[[Program, Norm, float], Solver]


def make_solver(program: Program, norm: Norm, time_limit: float) -> Solver:
    """Imports what it needs only now: other methods should not wait for it."""
    if norm.body == "sphere":
        from relucert.methods.solvers.conic import Conic

        return Conic(program, time_limit)
    from relucert.methods.solvers.highs import Highs

    return Highs(program, norm.body == "diamond", time_limit)


def solvable(network: Network) -> bool:
    """Whether the network's programs are small enough for a solver."""
    return sum(network.sizes[value] * max(network.sizes[: value + 1]) for value in network.preactivations) <= SOLVABLE


@dataclass(frozen=True, eq=False)
class SlopeRequest:
    """Forms whose slopes are sought.

    Attributes:
        path: With bounds of every pre-activation before the value, and of none that programs should not rely on.
        value: The value that the forms are on.
        forms: (batch or 1, forms, size).
        wanted: Which of them are wanted for each batch member, (batch, forms).
    """

    path: ReferencePath
    value: int
    forms: Tensor
    wanted: Tensor


@dataclass(eq=False)
class _PointPrograms:
    """The program of one point, and solvers with their warm starts, one for each thread."""

    program: Program
    solvers: dict[int, Solver] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Proposal:
    """Slopes for all forms of a request, and how the programs of each batch member ended."""

    slopes: Slopes
    tallies: list[Tally]


class Proposer:
    """Programs of one network around the points of the latest regions. Nothing here is proven, nor needs to be."""

    def __init__(self, time_limit: float, make: MakeSolver = make_solver) -> None:
        self._time_limit, self._make = time_limit, make
        self._by_point: dict[bytes, _PointPrograms] = {}
        self._shape: object = None

    def propose(self, request: SlopeRequest, report: Report = silent) -> Proposal:
        """Slopes for all forms, (batch, forms, size) for each ReLU: Fast-Lin's where none are wanted or found.

        report: Called with how many of the programs are solved.
        """
        network, region = request.path.network, request.path.region
        needed = network.ancestors((request.value,))
        slopes = {}
        for value, node in network.steps():
            if value in needed and isinstance(node.operation, Relu):
                fast_lin = FAST_LIN(node.operation, request.path.bounds[node.inputs[0]], DOUBLE).slope_below
                slopes[value] = fast_lin[:, None].repeat(1, request.forms.shape[1], 1)
        self._forget_other_regions(region)
        keys = [_key(point) for point in region.points]
        self._by_point = {point: programs for point, programs in self._by_point.items() if point in keys}
        members = keys if region.which is None else [keys[number] for number in region.which.tolist()]
        proposal = Proposal(slopes, [Tally() for _ in members])
        if solvable(network):
            self._solve(request, proposal, members, report)
        else:
            for member in request.wanted.any(1).nonzero().flatten().tolist():
                self._ascend(request, proposal, member)
        return proposal

    def _forget_other_regions(self, region: Region) -> None:
        """Programs are about one box and one scale."""
        tensors = (*(region.box or ()), *(() if region.scale is None else (region.scale,)))
        shape = region.norm, region.box is None, tuple(_key(tensor) for tensor in tensors)
        if shape != self._shape:
            self._shape, self._by_point = shape, {}

    def _ascend(self, request: SlopeRequest, proposal: Proposal, member: int) -> None:
        """Ascends on the slopes of one member's forms, where the network is too wide for a solver."""
        alone, forms = slice(member, member + 1), request.wanted[member].nonzero().flatten()
        tally = proposal.tallies[member]
        tally.programs += len(forms)
        start = {value: table[alone, forms] for value, table in proposal.slopes.items()}
        rows = request.forms[alone if len(request.forms) > 1 else slice(None), forms]
        try:
            with until(time.monotonic() + self._time_limit * len(forms)):
                better = _ascended(PickedPath(request.path, torch.tensor([member])), request.value, rows, start)
        except TimeUp:
            check_time()  # whoever asked may have no time left either
            tally.failures["Time limit reached"] += len(forms)
            return
        for value, table in better.items():
            proposal.slopes[value][alone, forms] = table

    def _solve(self, request: SlopeRequest, proposal: Proposal, members: list[bytes], report: Report) -> None:
        """Solves all wanted programs: the points side by side, few points in as many parts as there are threads."""
        wanted: dict[bytes, list[tuple[int, list[int]]]] = {}
        region = request.path.region
        inside = (request.wanted & (region.radius > 0)[:, None]).tolist()  # a radius of 0 is no unit to count in
        for member, (point, row) in enumerate(zip(members, inside, strict=True)):
            if any(row):
                wanted.setdefault(point, []).append((member, [form for form, is_wanted in enumerate(row) if is_wanted]))
        if not wanted:
            return
        threads = torch.get_num_threads()
        threads_per_point = -(-threads // len(wanted))
        network = request.path.network.cast(torch.float64)
        for point, ((member, _), *_) in wanted.items():
            if point not in self._by_point:
                self._by_point[point] = _PointPrograms(build(network, region, member))
        work = [
            _Work(
                self._solver, request, self._by_point[point], thread,
                [(member, forms[thread::threads_per_point]) for member, forms in tasks],
            )
            for point, tasks in wanted.items()
            for thread in range(threads_per_point)
        ]  # fmt: skip
        count = sum(map(sum, inside))

        def tell() -> None:
            report(Progress(step=sum(len(item.ends) for item in work), steps=count))

        tell()
        if threads == 1:
            for item in work:
                item.run(tell)
        else:
            _side_by_side(work, threads, tell)
        for item in work:
            for member, form, slopes in item.ends:
                tally = proposal.tallies[member]
                tally.programs += 1
                if isinstance(slopes, str):
                    tally.failures[slopes] += 1
                    continue
                for value, chosen in proposal.slopes.items():
                    neurons = item.point_programs.program.neurons[network.source(value)]
                    chosen[member, form] = torch.from_numpy(slopes[neurons])

    def _solver(self, program: Program, norm: Norm) -> Solver:
        return self._make(program, norm, self._time_limit)


class _End(NamedTuple):
    """Result of the program of one form of one batch member: slopes, one entry per ReLU, or why there are none."""

    member: int
    form: int
    slopes: Array | str


@dataclass(frozen=True, eq=False)
class _Work:
    """Programs around one point for one solver: batch members with their forms, and the results so far."""

    make: Callable[[Program, Norm], Solver]
    request: SlopeRequest
    point_programs: _PointPrograms
    thread: int
    tasks: list[tuple[int, list[int]]]
    stopped: threading.Event = field(default_factory=threading.Event)
    ends: list[_End] = field(default_factory=list)

    @np.errstate(all="ignore")
    def run(self, came: Callable[[], None] = lambda: None) -> None:
        """Solves the programs, and calls `came` after each; those that come after a stop are left out."""
        request, path, ends = self.request, self.request.path, self.ends
        program, solvers = self.point_programs.program, self.point_programs.solvers
        for member, forms in self.tasks:
            rows = request.forms[member if len(request.forms) > 1 else 0].double().numpy()
            sides = program.right_hand_sides(float(path.region.radius[member]), path.bounds, member)
            changed = False
            for form in forms:
                if self.stopped.is_set():
                    return
                check_time()
                try:
                    if self.thread not in solvers:
                        solvers[self.thread] = self.make(program, path.region.norm)
                    if not changed:
                        solvers[self.thread].change(sides)
                        changed = True
                    solution = solvers[self.thread].solve(rows[form] @ program.forms[request.value])
                    ends.append(_End(member, form, lower_slopes(solution, sides.slope)))
                except (RelucertError, MemoryError):
                    raise
                except Exception as error:  # whatever a solver does to us, Fast-Lin's slopes stand
                    reason = str(error) if isinstance(error, Unsolved) else type(error).__name__
                    ends.append(_End(member, form, reason))
                    solvers.pop(self.thread, None)
                    changed = False
                came()


def _ascended(path: ReferencePath, value: int, forms: Tensor, slopes: Slopes) -> Slopes:
    """Better slopes than these, for forms on a value, (1, forms, size), of a batch of one, by gradient ascent on the
    bound itself: at its highest it is the program's value."""
    with torch.inference_mode(False), torch.enable_grad():
        region, rows = path.region.clone(), forms.clone()
        arithmetic = FLOAT if forms.dtype == torch.float32 else DOUBLE
        rough = ReferencePath(path.network, region, copied(path.bounds), path.relaxer, arithmetic, upper=True)

        def bound(tried: Slopes) -> Tensor:
            return bound_forms(rough, value, rows, duals=DualVariables(tried)).lower

        return ascend(bound, BestBounds.unknown(slopes, (1, forms.shape[1])), (), EFFORT).slopes


def _side_by_side(work: list[_Work], threads: int, tell: Callable[[], None]) -> None:
    """Runs the work in threads, and calls `tell` in this one meanwhile. An interruption stops the threads after the
    programs that they are solving."""
    pool = ThreadPoolExecutor(threads)
    try:
        futures = [pool.submit(copy_context().run, item.run) for item in work]  # whose deadline is this one's
        while wait(futures, timeout=POLL).not_done:
            tell()
        for future in futures:
            future.result()
    finally:
        for item in work:
            item.stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _key(numbers: Tensor) -> bytes:
    """A key of a tensor, equal for the same numbers in float32 and in float64."""
    return numbers.float().numpy().tobytes()
