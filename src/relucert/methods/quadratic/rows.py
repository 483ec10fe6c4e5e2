"""Rows of a property in one region: the certificates that bound them, and what is proven of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.bounding.interval import Bounds
from relucert.common.deadline import TimeUp, until
from relucert.common.progress import Report, silent
from relucert.methods.quadratic.composed import SURPLUSES, Composed, compose
from relucert.methods.quadratic.dual import DualPoint
from relucert.methods.quadratic.feasible import feasible_joint, is_composed
from relucert.methods.quadratic.intervals import MOST_JOINT, Tightened, tightened, widened
from relucert.methods.quadratic.linearised_network import LinearisedNetwork
from relucert.methods.quadratic.memory import Memory, SharedMemory
from relucert.methods.quadratic.proof import RigorousLinearisation, prove_margins
from relucert.methods.quadratic.solve import CertificateSolver, Joint
from relucert.network import Network

FEWEST_UNSTABLE = 60  # neurons, below which splitting comes to an end sooner
ENOUGH = 5e-3  # of a row's value at the reference: a computed bound that will be proven


@dataclass(frozen=True, eq=False)
class RowProof:
    """What proves one row: a feasible certificate, and exactly the numbers of the dual bound.

    Attributes:
        point: The centre t; its shares are not part of the proof, the links are.
        links: lambda by layer, taken as exact, (1, count) each.
        certificate: One that is proven to be feasible.
        factor: Of its weights.
    """

    point: DualPoint
    links: dict[int, Tensor]
    certificate: Composed | Joint
    factor: float


@dataclass(eq=False)
class RegionRows:
    """All rows of a property in one region.

    Attributes:
        network: In float64.
        region: A batch of one, in float64.
        forms: The rows, (rows, classes).
        offsets: (rows,).
        bounds: Proven ones of every pre-activation, (1, size) each.
        memories: Of every row, what was found at another radius.
        report: Called with every few steps.
        tight: Where the bounds come from, if they are not CROWN's alone.
        proofs: By row, what proves it.
    """

    network: Network
    region: Region
    forms: Tensor
    offsets: Tensor
    bounds: Bounds
    memories: Sequence[Memory | None]
    report: Report = silent
    tight: Tightened | None = None
    proofs: dict[int, RowProof] = field(default_factory=dict)

    @classmethod
    def of(
        cls, network: Network, region: Region, prop: Property, bounds: Bounds,
        memories: Sequence[Memory | None] | None = None, report: Report = silent,
    ) -> RegionRows:  # fmt: skip
        """From a property that is a batch of one."""
        wide = {value: widened(interval) for value, interval in bounds.items()}
        forms, offsets = prop.rows[0].double(), prop.offsets[0].double()
        return cls(network, region, forms, offsets, wide, memories or [None] * len(forms), report)

    def __post_init__(self) -> None:
        self.linearised = LinearisedNetwork.of(self.network, self.region, self.bounds)
        self.heights = self.forms @ self.linearised.values[self.network.output][0] + self.offsets
        self.solver = CertificateSolver(self.linearised, self.forms, self.heights, report=self.report)

    def tightened(self, bounds: Bounds, memories: Mapping[int, SharedMemory]) -> RegionRows:
        """The same rows with bounds of pre-activations that certificates tighten.

        Args:
            bounds: Proven ones by CROWN.
            memories: By layer, what was found at another radius.
        """
        tight = tightened(self.network, self.region, bounds, memories)
        wide = {value: widened(interval) for value, interval in tight.bounds.items()}
        return replace(self, bounds=wide, tight=tight)

    @property
    def relaxed(self) -> bool:
        """Whether any input moves and any neuron is unstable."""
        return self.linearised.unstable > 0 and bool((self.linearised.radii > 0).any())

    @property
    def joint(self) -> bool:
        """Whether there are few enough unstable neurons for certificates with weights of their own."""
        return self.linearised.unstable <= MOST_JOINT

    def decide(self, rows: Tensor) -> Tensor:
        """Bounds of some rows as computed, (rows,): the ascent of each ends once it is enough to be proven positive."""
        solver, enough = self.solver, ENOUGH * self.solver.heights
        solver.start()
        if len(remaining := self._remaining(rows, enough)):
            solver.ascend(remaining, enough)
        if len(remaining := self._remaining(rows, enough)):
            self._ascend(remaining, enough)
        return solver.bounds

    def least(self, first: int | None = None) -> int:
        """Bounds the rows, and returns the one that decides: one that is not positive, or else the one whose ascent
        went to its end; those of the others end once they are known to be positive.

        first: The row whose ascent goes to its end; by default the one that looks weakest.
        """
        solver = self.solver
        start = solver.start()
        weakest = int(start.argmin()) if first is None else first
        endless = torch.full_like(solver.bounds, torch.inf)
        self._ascend(torch.tensor([weakest]), endless)
        if not float(solver.bounds[weakest]) > 0:
            return weakest
        enough = torch.full_like(endless, float(solver.bounds[weakest]))
        every = torch.arange(len(enough))
        others = every[every != weakest]
        if len(remaining := self._remaining(others, enough)):
            solver.ascend_with_weights_of(weakest, remaining, enough)
        if len(remaining := self._remaining(others, enough.clamp(max=0))):
            self._ascend(remaining, enough)
        return weakest if bool((solver.bounds > 0).all()) else int(solver.bounds.argmin())

    def _ascend(self, rows: Tensor, enough: Tensor) -> None:
        """Dual ascent for some rows on weights of their own, too."""
        if self.joint:
            self.solver.ascend_jointly(rows, enough, self.memories)
        else:
            self.solver.ascend_layered(rows, enough)

    def _remaining(self, rows: Tensor, enough: Tensor) -> Tensor:
        return rows[~(self.solver.bounds > enough)[rows]]

    def prove(self) -> Tensor:
        """Proven lower bounds, (rows,), of rows with a computed bound above 0; minus infinity for the others."""
        proven = torch.full((len(self.forms),), -torch.inf, dtype=torch.float64)
        rigorous = RigorousLinearisation.of(self.linearised, self.bounds)
        solutions = [
            (row, solution) for row, solution in enumerate(self.solver.solutions) if solution and solution.bound > 0
        ]
        feasible: dict[Composed | Joint, Composed | Joint | None] = {}
        for row, solution in solutions:
            if solution.certificate not in feasible:
                feasible[solution.certificate] = self._feasible(solution.certificate)
            certificate = feasible[solution.certificate]
            if certificate is None:
                continue
            form, offset = self.forms[row : row + 1], self.offsets[row : row + 1]
            weights = certificate.weights.times(torch.tensor([solution.factor], dtype=torch.float64))
            bounds, links = prove_margins(rigorous, form, offset, weights, solution.point)
            proven[row] = bounds[0]
            if float(bounds) > 0:
                self.proofs[row] = RowProof(solution.point, links, certificate, solution.factor)
        return proven

    def _feasible(self, certificate: Composed | Joint) -> Composed | Joint | None:
        """The certificate with as much room as the proof that it is feasible needs; None: there is no such proof."""
        if isinstance(certificate, Composed):
            quick, plan = self.solver.quick, certificate.plan
            further = (compose(self.linearised, quick, plan, surplus) for surplus in SURPLUSES[1:])
            composed = chain([certificate], further)
            return next((candidate for candidate in composed if is_composed(self.linearised, candidate)), None)
        weights = feasible_joint(self.linearised, certificate.weights)
        return None if weights is None else Joint(weights)


def suits_certificates(network: Network, bounds: Bounds) -> bool:
    """Whether certificates may prove more than splitting does: with many unstable neurons."""
    unstable = sum(int(interval.unstable.sum()) for interval in bounds.values())
    return network.rectifiers_only and unstable >= FEWEST_UNSTABLE


def decided_rows(network: Network, region: Region, prop: Property, bounds: Bounds, ends: float) -> RegionRows | None:
    """The rows with certificates as good as time allows; None where there is no time, or nothing to be relaxed.

    Args:
        network: In float64, one that `suits_certificates`.
        region: A batch of one.
        prop: A batch of one.
        bounds: Proven ones of every pre-activation.
        ends: By the monotonic clock, when rows have to be decided; their proofs come after that.
    """
    if time.monotonic() > ends:
        return None
    rows = RegionRows.of(network, region, prop, bounds)
    if not rows.relaxed:
        return None
    with suppress(TimeUp), until(ends):
        rows.decide((rows.heights > 0).nonzero().flatten())
    return rows if any(rows.solver.solutions) else None
