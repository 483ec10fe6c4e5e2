"""LP and LP-Full: linear programs over the triangle relaxation (convex ones for p = 2).

Every margin has a program of its own, and in LP-Full every unstable neuron too.
Solvers only propose. What is returned is the backward driver's bound with the slopes they propose, or Fast-Lin's
if that is higher: proven like every other bound here. LP-Full starts from bounds with optimised slopes; where the
network is too wide for solvers, a longer ascent takes the programs' place.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.ascent import Effort
from relucert.bounding.backward import DualVariables, bound_forms
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.interval import Bounds, Interval, select
from relucert.bounding.memory import SlopeMemory
from relucert.bounding.optimised import optimised_bounds, optimised_margins
from relucert.bounding.record import Recorder, Tables, lines_of, recording
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import FAST_LIN
from relucert.common.checks import check_number
from relucert.common.progress import Progress, Report, silent
from relucert.errors import InputError
from relucert.methods.method import Method, MethodDefaults
from relucert.methods.solvers.proposer import MakeSolver, Proposer, SlopeRequest, make_solver, solvable
from relucert.methods.solvers.solver import require
from relucert.methods.solvers.tally import Tallies, Tally
from relucert.network import Network

TIME_LIMIT = 60.0  # seconds of one program, or of an ascent in its place
ROW_BYTES = 2**26  # how large one chunk of forms may get while the neurons of a layer are bounded
LONG_HIDDEN = Effort(60, decay=0.93, least=0.01, again=4)  # for hidden neurons, in place of programs, on wide networks
LONG_MARGINS = Effort(100, decay=0.96, least=0, room=0.02, again=30)  # for margins there
LATE = "Time limit reached"


@dataclass(frozen=True)
class ProgramMethod(MethodDefaults):
    """Margins by programs over the triangle relaxation; the neurons' bounds are Fast-Lin's, or with `full` by programs
    as well, layer after layer.

    time_limit: seconds for each program; with `full` on a network too wide for programs, for the ascent over all
    neurons of an evaluation, and for that over its margins.
    recorder: keeps what is proven in recorded arithmetic.
    report: called with the layer and how many of its programs are solved, or the step of the ascent.
    """

    name: str
    weaker: Method
    full: bool = False
    time_limit: float = TIME_LIMIT
    make: MakeSolver = make_solver
    memory: SlopeMemory = field(default_factory=SlopeMemory, compare=False)
    recorder: Recorder | None = field(default=None, compare=False)
    report: Report = field(default=silent, compare=False)
    needs_rectifiers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("time limit", self.time_limit, 1e-3, 1e9)

    def check(self, norm: Norm) -> None:
        """Refuses norms without a program, and packages that are not there."""
        if norm.body is None:
            raise InputError(f"{self.name} needs the norm 1, 2 or inf, not {norm}; fast-lin takes any norm")
        require("clarabel" if norm.body == "sphere" else "highspy")

    def remark(self, point: Tensor, prop: Property) -> str | None:
        return self._tallies.remark(point, prop)

    @property
    def _below(self) -> ProgramMethod | None:
        """The method of programs that it starts from."""
        method: Method | None = self.weaker
        while method is not None and not isinstance(method, ProgramMethod):
            method = method.weaker
        return method

    @cached_property
    def _proposer(self) -> Proposer:
        """Shared with the method it starts from: their programs are the same."""
        return Proposer(self.time_limit, self.make) if self._below is None else self._below._proposer

    @cached_property
    def _tallies(self) -> Tallies:
        """Shared likewise: a question's programs are those of the method that it starts from, too."""
        return Tallies() if self._below is None else self._below._tallies

    def hidden(self, network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
        recorder = recording(self.recorder, arithmetic)
        if not self.full:
            bounds = hidden_bounds(network, region, FAST_LIN, arithmetic)
            if recorder is not None:
                recorder.begin(network, region, {"fast-lin": bounds})
            return bounds
        tallies = [Tally() for _ in region.radius]
        if solvable(network):
            known = optimised_bounds(
                network, region, arithmetic, memory=self.memory, recorder=recorder, report=self.report
            )
            path = ReferencePath(network, region, {}, FAST_LIN, arithmetic, upper=True)
            for value, interval in known.items():
                relaxed = network.activation_depths[value] > 0
                path.bounds[value] = self._tightened(path, value, interval, tallies) if relaxed else interval
            bounds = path.bounds
        else:
            ends = time.monotonic() + self.time_limit
            bounds = optimised_bounds(
                network, region, arithmetic, memory=self.memory, effort=LONG_HIDDEN, ends=ends, recorder=recorder,
                report=self.report,
            )  # fmt: skip
            _note_ascent(tallies, ends)
        self._tallies.hold(region, tallies)
        return bounds

    def margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        """The least margin is the programs' own; a margin that Fast-Lin shows not to be the least stays Fast-Lin's."""
        if self.full and not solvable(network):
            return self._margins_by_ascent(network, region, prop, hidden, arithmetic)
        recorder = recording(self.recorder, arithmetic)
        path = ReferencePath(network, region, hidden, FAST_LIN, arithmetic, upper=recorder is not None)
        lines = {} if recorder is None else lines_of(path, prop.rows.shape[1])
        duals = DualVariables(lines)
        margins = bound_forms(path, network.output, prop.rows, duals=duals, offsets=prop.offsets).lower.clone()
        tallies = [Tally() for _ in region.radius]
        relaxed = any(bool(interval.unstable.any()) for interval in hidden.values())
        waiting, least = margins.clone(), margins.new_full((len(margins),), torch.inf)
        while relaxed and bool((waiting.amin(1) < least).any()):
            members = (waiting.amin(1) < least).nonzero().flatten()
            weakest = waiting[members].argmin(1)
            some = ReferencePath(
                network, region.select(members), select(hidden, members), FAST_LIN, arithmetic, upper=True
            )
            wanted = torch.ones(len(members), 1, dtype=torch.bool)
            request = SlopeRequest(some, network.output, prop.rows[members, weakest][:, None], wanted)
            member_tallies = [tallies[member] for member in members.tolist()]
            bound, slopes = self._bound(request, member_tallies, "margins", prop.offsets[members, weakest][:, None])
            proven = bound[:, 0]
            higher = (proven > margins[members, weakest]).nonzero().flatten()
            for value, table in lines.items():
                table[members[higher], weakest[higher]] = slopes[value][higher, 0]
            better = torch.fmax(margins[members, weakest], proven)
            margins[members, weakest], waiting[members, weakest] = better, torch.inf
            least[members] = torch.minimum(least[members], better)
        self._tallies.settle(region, prop, tallies)
        if recorder is not None:
            recorder.finish(region, prop, lines, hidden, margins)
        return margins

    def _margins_by_ascent(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        """The margins by a dual ascent over all of them at once."""
        ends, tallies = time.monotonic() + self.time_limit, [Tally() for _ in region.radius]
        margins = optimised_margins(
            network, region, prop.rows, prop.offsets, hidden, arithmetic,
            memory=self.memory, effort=LONG_MARGINS, ends=ends, recorder=recording(self.recorder, arithmetic),
            report=self.report,
        )  # fmt: skip
        _note_ascent(tallies, ends)
        self._tallies.settle(region, prop, tallies)
        return margins

    def _bound(
        self, request: SlopeRequest, tallies: list[Tally], stage: str, offsets: Tensor | None = None
    ) -> tuple[Tensor, Tables]:
        """Proven lower bounds of a request's forms, (batch, forms), and their slopes. Adds its programs to the batch
        members' tallies."""

        def report(state: Progress) -> None:
            self.report(replace(state, part=f"programs of {stage}"))

        proposal = self._proposer.propose(request, report)
        for tally, programs in zip(tallies, proposal.tallies, strict=True):
            tally.add(programs)
        duals = DualVariables(proposal.slopes)
        pulled = bound_forms(request.path, request.value, request.forms, duals=duals, offsets=offsets)
        return pulled.lower, proposal.slopes

    def _tightened(self, path: ReferencePath, value: int, interval: Interval, tallies: list[Tally]) -> Interval:
        """Improves the bounds of a value's unstable neurons, each by a program of its own: the lower bounds, then the
        upper bounds of those that are unstable still. The path has bounds of all pre-activations before the value."""
        network, recorder = path.network, recording(self.recorder, path.arithmetic)
        ends = list(interval)
        step = max(1, ROW_BYTES // (16 * sum(network.sizes[: value + 1]) * len(path.region.radius)))
        stage = f"layer {network.preactivations.index(value) + 1}"
        for end, sign in ((0, 1), (1, -1)):
            ends[end] = ends[end].clone()
            unstable = Interval(*ends).unstable
            unstable_neurons = unstable.any(0).nonzero().flatten()
            for neurons in unstable_neurons.split(step) if len(unstable_neurons) else ():
                forms = torch.zeros(1, len(neurons), network.sizes[value], dtype=path.arithmetic.dtype)
                forms[0, torch.arange(len(neurons)), neurons] = sign
                wanted, before = unstable[:, neurons], ends[end][:, neurons]
                proven, slopes = self._bound(SlopeRequest(path, value, forms, wanted), tallies, stage)
                if recorder is not None:
                    recorder.add(value, neurons, torch.full((len(neurons),), sign), slopes, path.bounds)
                ends[end][:, neurons] = torch.where(wanted, sign * torch.fmax(proven, sign * before), before)
        return Interval(*ends)


def _note_ascent(tallies: list[Tally], ends: float) -> None:
    """Counts an ascent that all batch members share as one program each."""
    for tally in tallies:
        tally.programs += 1
        if time.monotonic() > ends:
            tally.failures[LATE] += 1
