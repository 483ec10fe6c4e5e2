"""The polish: a local search over the linear regions of a network for a nearer witness.

Where no neuron changes between active and inactive the network is affine, so the nearest point of such a region at
which a rival has caught up solves a small program. Where the optimum rests on a neuron's boundary, the region beyond it
may hold a nearer one. A region of a wide network has thousands of facets of which few matter: the others are added
only where a solution violates them.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.attacks.nearest import Array, Nearest, NearestProgram, nearest_program, offset_walls
from relucert.attacks.witness import AdversarialCheck, AdversarialPoint
from relucert.common.deadline import TimeUp, check_time, until
from relucert.network.linear_regions import Pattern, affine_values, form_gradients, pattern_at

WAY = (1.0, 0.0, 0.5)  # points on the way from the image (0) to the witness (1) in whose regions the search starts
REGIONS = 40  # the most linear regions that a search looks into
PATIENCE = 6  # regions in a row that may gain nothing
CUTS = 12  # the most solutions of one region's program, with facets added in between
FACETS = 64  # the most facets that are added to a program at once
SINGLES = 4  # neighbouring regions across a single facet
GAIN = 1e-6  # a smaller relative gain counts as none
SLACK = 16  # units of rounding of the scores, by which a rival is to be ahead
STEPS_BACK = (1e-3, 1e-2, 0.05, 0.1, 0.2, 0.5)  # from a solution towards the witness, where the solution fails
Facet = tuple[int, int]  # a facet of a linear region: a value that feeds a ReLU, and one of its neurons


@dataclass
class Polisher:
    """Shortens one witness of an image (size,), in float64; prop: a batch of one.

    Offsets of programs count in units of the region's scale.
    """

    check: AdversarialCheck
    centre: Tensor
    prop: Property
    witness: AdversarialPoint
    deadline: float

    @property
    def scale(self) -> Tensor:
        scale = self.check.shape.scale
        return torch.ones_like(self.centre) if scale is None else scale

    def run(self) -> AdversarialPoint:
        """The nearest witness found until time is over, which is never farther than the first."""
        with suppress(TimeUp), until(self.deadline):
            self._search()
        return self.witness

    def _search(self) -> None:
        """Looks into regions as long as they gain: after each that does into the witness's new region, then across the
        facets of that."""
        frontier, tried, fruitless = [self._pattern(share) for share in WAY], set[bytes](), 0
        while len(tried) < REGIONS and fruitless < PATIENCE:
            while frontier and _key(frontier[0]) in tried:
                frontier.pop(0)
            if not frontier:
                return
            pattern, before = frontier.pop(0), self.witness.distance
            resisting = self._look_into(pattern)
            gained = self.witness.distance < before * (1 - GAIN)
            fruitless = 0 if gained else fruitless + 1
            if gained or not tried:
                frontier = [self._pattern(1.0), *_neighbours(pattern, resisting), *frontier]
            tried.add(_key(pattern))

    def _pattern(self, share: float) -> Pattern:
        """The activation pattern of a point on the way from the image to the witness."""
        return pattern_at(self.check.exact, torch.lerp(self.centre, self.witness.point.double(), share)[None])

    def _look_into(self, pattern: Pattern) -> list[Facet]:
        """Offers every solution on the way to a region's nearest point; returns the facets that resist, in order."""
        program, facets = self._program(pattern), list[Facet]()
        solution = None
        for _ in range(CUTS):
            check_time()
            solution = program.solve(max(0.01, self.deadline - time.monotonic()))
            if solution is None or not np.isfinite(solution.offset).all():
                return []
            self._offer(solution)
            fresh = self._violated(pattern, solution.offset, facets)
            if not fresh or self._too_far(solution):
                break
            for rows, least in self._inequalities(pattern, fresh):
                program.add(rows, least)
            facets += fresh
        return [] if solution is None else _resisting(solution, facets)

    def _too_far(self, solution: Nearest) -> bool:
        """Whether a region has nothing nearer than the witness, since more facets only make its solution farther."""
        offset = torch.from_numpy(solution.offset)
        length = float(self.check.shape.norm.distance(offset, torch.zeros_like(offset)))
        return length >= self.witness.distance * (1 - GAIN)

    def _program(self, pattern: Pattern) -> NearestProgram:
        """The nearest point at which the row that is least at the witness is violated, in a region's affine map."""
        network, centre, prop = self.check.exact, self.centre, self.prop
        scores = network(self.witness.point.double()[None])
        least = int(prop.values(scores).argmin())
        lead, offset = -prop.rows[:, least : least + 1], -prop.offsets[0, least]
        row = form_gradients(network, pattern, network.output, lead)[0] * self.scale
        behind = -(lead[0] @ affine_values(network, pattern, centre[None])[-1][0] + offset)
        slack = SLACK * torch.finfo(self.check.precision).eps * float(scores.abs().max())
        walls = offset_walls(centre, self.check.inner_box, self.scale)
        program = nearest_program(self.check.shape.norm, *walls)
        program.add(row.numpy(), (behind + slack).numpy())
        return program

    def _offer(self, solution: Nearest) -> None:
        """Keeps the nearest of some points about a solution, if it passes and is nearer than the witness."""
        goal = self._point(solution.offset)
        back = torch.tensor(STEPS_BACK, dtype=torch.float64)[:, None]
        between = goal + back * (self.witness.point.double() - goal)
        for candidate in (
            self.check.beyond(self.centre, goal, self.prop),
            self.check.nearest(self.centre, between, self.prop),
        ):
            if candidate is not None and candidate.distance < self.witness.distance:
                self.witness = candidate

    def _point(self, offset: Array) -> Tensor:
        return self.centre + self.scale * torch.from_numpy(offset)

    def _violated(self, pattern: Pattern, offset: Array, present: list[Facet]) -> list[Facet]:
        """The facets of the region that a solution is farthest beyond, without those that are in the program."""
        values = affine_values(self.check.exact, pattern, self._point(offset)[None])
        excess = []
        for value, active in pattern.items():
            beyond = torch.where(active[0], -values[value][0], values[value][0])
            beyond[[neuron for source, neuron in present if source == value]] = 0
            beyond[beyond <= 1e-7 * values[value].abs().max()] = 0
            excess.append(beyond)
        if not excess:
            return []
        everyone = torch.cat(excess)
        worst = everyone.topk(min(FACETS, len(everyone)))
        candidates = [
            (value, neuron) for value, beyond in zip(pattern, excess, strict=True) for neuron in range(len(beyond))
        ]
        return [candidates[index] for index in worst.indices[worst.values > 0].tolist()]

    def _inequalities(self, pattern: Pattern, facets: list[Facet]) -> list[tuple[Array, Array]]:
        """The inequalities that keep the neurons of these facets active or inactive, value by value."""
        network, constraints = self.check.exact, []
        values = affine_values(network, pattern, self.centre[None])
        for value in sorted({value for value, _ in facets}):
            neurons = [neuron for source, neuron in facets if source == value]
            signs = torch.where(pattern[value][0, neurons], 1.0, -1.0).double()
            forms = torch.zeros(1, len(neurons), network.sizes[value], dtype=torch.float64)
            forms[0, range(len(neurons)), neurons] = signs
            rows = form_gradients(network, pattern, value, forms)[0] * self.scale
            constraints.append((rows.numpy(), -(signs * values[value][0, neurons]).numpy()))
        return constraints


def _resisting(solution: Nearest, facets: list[Facet]) -> list[Facet]:
    multipliers = solution.multipliers[1:]  # without the property's own inequality
    strongest = np.argsort(-multipliers)
    return [facets[index] for index in strongest if multipliers[index] > 1e-6 * solution.multipliers.max()]


def _neighbours(pattern: Pattern, facets: list[Facet]) -> list[Pattern]:
    """The regions across all the facets at once and across each of the first few."""
    return [_across(pattern, crossed) for crossed in [facets, *([facet] for facet in facets[:SINGLES])] if crossed]


def _across(pattern: Pattern, facets: list[Facet]) -> Pattern:
    changed = {value: active.clone() for value, active in pattern.items()}
    for value, neuron in facets:
        changed[value][0, neuron] ^= True
    return changed


def _key(pattern: Pattern) -> bytes:
    return b"".join(np.packbits(active.numpy()).tobytes() for active in pattern.values())
