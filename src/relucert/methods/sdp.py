"""Margins by quadratic certificates: the dual of the semidefinite relaxation.

The solver of the multipliers is not trusted. With a rigorous arithmetic a margin is what `quadratic.proof` makes of
them, or the linear relaxation's bound where that is higher.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from relucert.arithmetic.property import Property, QuestionKey, question_key, question_keys
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.interval import Bounds, Interval, select
from relucert.common.progress import Progress, Report, silent
from relucert.errors import BudgetError, UnsupportedError
from relucert.methods.linear import LinearMethod
from relucert.methods.method import Method
from relucert.methods.quadratic.certificate import Certificate
from relucert.methods.quadratic.chain import Chain
from relucert.methods.quadratic.dual import Target
from relucert.methods.quadratic.evidence import Evidence, RowEvidence
from relucert.methods.quadratic.maps import DTYPE
from relucert.methods.quadratic.problem import Problem
from relucert.methods.quadratic.proof import prove_certificate, prove_margin
from relucert.methods.quadratic.rows import MOST_ROWS
from relucert.methods.quadratic.solve import Memory, Solution, solve
from relucert.network import Network

INFLATIONS = (1.0, 1.001, 1.01)  # of the multipliers, where the matrix is not proven to be semidefinite
ROOM = 2.0**-16  # by which the bounds of neurons are widened, relatively: whoever checks a proof has bounds of his own
REMEMBERED = 2**30  # bytes of multipliers that are kept, about
BYTES_EACH = 100  # of them per input and neuron


@dataclass(frozen=True)
class QuadraticMethod:
    """Margins by quadratic certificates, with the hidden bounds of a weaker method, which the search starts from.

    ends: by the monotonic clock, when multipliers are no longer improved.
    report: called with the row and the repeat.
    """

    name: str
    weaker: LinearMethod
    ends: float = torch.inf
    report: Report = silent
    gain: ClassVar[float] = 1.8
    resolution: ClassVar[float] = 2e-3
    takes_inference: ClassVar[bool] = False
    needs_rectifiers: ClassVar[bool] = True

    @property
    def surrogate(self) -> Method:
        return CentreMargins()

    def remark(self, point: Tensor, prop: Property) -> str | None:
        notes = [self._notes[asked] for asked in question_keys(point, prop) if asked in self._notes]
        if not notes or notes[0].proven or notes[0].evidence is not None:
            return None
        reason = notes[0].reason or "quadratic certificates proved no larger one"
        return f"the radius is that of {self.weaker.name}: {reason}"

    def bounds_stable_neurons(self, network: Network) -> bool:
        return self.weaker.bounds_stable_neurons(network)

    def hidden(self, network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
        return self.weaker.hidden(network, region, arithmetic)

    def margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        """The least margin is the certificates' own; the others are bounded as far as it takes to know that."""
        margins = self.weaker.margins(network, region, prop, hidden, arithmetic).clone()
        scores, wide = prop.values(network(region.centre)), region.cast(torch.float64)
        for member in range(len(margins)):
            chosen = torch.tensor([member])
            notes = self._note(network, question_key(region.centre[member], prop, member))
            try:
                chain = self._chain(network)
                problem = _problem(chain, wide.select(chosen), select(hidden, chosen))
            except (UnsupportedError, BudgetError) as error:
                notes.reason = str(error)
                continue
            if not problem.relaxed:
                notes.proven = True  # nothing is relaxed: no margin could be larger
                continue
            question = _Question(problem, chain, prop, member, arithmetic, notes, self.ends, self.report)
            margins[member] = question.bound(margins[member], scores[member])
        return margins

    def evidence(self, point: Tensor, prop: Property) -> Evidence | None:
        """What proves the largest radius that certificates proved of a question; None: they proved none."""
        notes = self._notes.get(question_key(point, prop))
        return None if notes is None else notes.evidence

    def _note(self, network: Network, key: QuestionKey) -> _Notes:
        notes = self._notes.pop(key, None) or _Notes({})
        self._notes[key] = notes  # the latest last
        most = max(1, REMEMBERED // (BYTES_EACH * sum(network.sizes)))
        while len(self._notes) > most:
            del self._notes[next(iter(self._notes))]
        return notes

    def _chain(self, network: Network) -> Chain:
        if network not in self._chains:
            self._chains[network] = Chain.of(network)
        return self._chains[network]

    @cached_property
    def _chains(self) -> WeakKeyDictionary[Network, Chain]:
        return WeakKeyDictionary()

    @cached_property
    def _notes(self) -> dict[QuestionKey, _Notes]:
        return {}


@dataclass(eq=False)
class _Notes:
    """The state of a question, kept from radius to radius.

    memories: by row, what its last solution left; reason: why there are no certificates; proven: whether nothing could
    prove more; evidence: of the largest radius at which certificates proved all margins.
    """

    memories: dict[int, Memory]
    reason: str | None = None
    proven: bool = False
    evidence: Evidence | None = None


@dataclass(frozen=True, eq=False)
class _Question:
    """The margins of one batch member."""

    problem: Problem
    chain: Chain
    prop: Property
    member: int
    arithmetic: Arithmetic
    notes: _Notes
    ends: float
    report: Report

    def bound(self, margins: Tensor, scores: Tensor) -> Tensor:
        """Margins (rows,) that are at least these; scores: the margins at the centre."""
        margins, least = margins.clone(), torch.inf
        used: dict[int, RowEvidence] = {}
        for row in scores.argsort().tolist():
            if float(margins[row]) >= least:
                continue
            proven, evidence = self._row(row, least)
            if proven > float(margins[row]):
                margins[row] = proven
                if evidence is not None:
                    used[row] = evidence
            least = min(least, float(margins[row]))
        if used and least > 0 and self.arithmetic.rigorous:
            self._keep(Evidence.of(self.problem, [used.get(row) for row in range(len(margins))]))
        return margins

    def _keep(self, evidence: Evidence) -> None:
        known = self.notes.evidence
        if known is None or evidence.radius > known.radius:
            self.notes.evidence = evidence

    def _row(self, row: int, enough: float) -> tuple[float, RowEvidence | None]:
        """A lower bound of one margin: the best there is, or one that is enough, and with a rigorous arithmetic what
        proves it."""
        last, rows = self.chain.layers[-1], self.prop.rows[self.member, row].double()
        offset = self.prop.offsets[self.member, row].double()
        target = Target((rows @ last.weight).to(DTYPE), float(rows @ last.bias + offset))
        count = self.prop.rows.shape[1]

        def report(state: Progress) -> None:
            self.report(replace(state, part=f"row {row + 1} of {count}"))

        solution = solve(self.problem, target, self.notes.memories.get(row), enough, self.ends, report)
        if solution is None:
            return -torch.inf, None
        self.notes.memories[row] = solution.memory
        if not self.arithmetic.rigorous:
            return solution.value, None
        return self._prove(solution, rows, offset)

    def _prove(self, solution: Solution, row: Tensor, offset: Tensor) -> tuple[float, RowEvidence | None]:
        for inflation in INFLATIONS:
            certificate = _inflated(solution.certificate, inflation)
            proven = prove_certificate(self.problem, certificate)
            if proven is not None:
                margin = prove_margin(self.problem, proven, solution.dual, self.chain.layers[-1], row, offset)
                return margin, RowEvidence(certificate, solution.dual)
        return -torch.inf, None


def _problem(chain: Chain, region: Region, bounds: Bounds) -> Problem:
    """Raises BudgetError where the certificate's matrix would be too large."""
    problem = Problem.of(chain, region, {value: _widened(interval) for value, interval in bounds.items()})
    if problem.rows > MOST_ROWS:
        raise BudgetError(
            f"a certificate's matrix would have {problem.rows:,} rows, {8 * problem.rows**2 / 2**30:.1f} GiB; "
            f"the most is {MOST_ROWS:,} rows"
        )
    return problem


def _widened(interval: Interval) -> Interval:
    room = ROOM * (interval.upper - interval.lower)
    return Interval(interval.lower - room, interval.upper + room)


def _inflated(certificate: Certificate, factor: float) -> Certificate:
    return replace(
        certificate, inputs=certificate.inputs * factor, sectors=tuple(part * factor for part in certificate.sectors)
    )


class CentreMargins:
    """The margins at a region's centre, whatever its radius: predictions then follow the evaluated margins alone."""

    name: ClassVar[str] = "centre"
    weaker: ClassVar[None] = None
    takes_inference: ClassVar[bool] = False
    needs_rectifiers: ClassVar[bool] = True

    def remark(self, point: Tensor, prop: Property) -> None:
        return None

    def bounds_stable_neurons(self, network: Network) -> bool:
        return True

    def hidden(self, network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
        return {}

    def margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        return prop.values(network(region.centre))
