"""A margin over one region: find a certificate, ascend the dual, choose the weights anew, and so on.

The result is multipliers, of which `proof` makes a bound.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.common.progress import Progress, Report, silent
from relucert.methods.quadratic.certificate import Certificate, Demand, propose, start_vectors
from relucert.methods.quadratic.dual import DualFunction, DualPoint, Target, ascend, first_point
from relucert.methods.quadratic.maps import DTYPE, Maps
from relucert.methods.quadratic.problem import Problem
from relucert.methods.quadratic.proof import ProposedDual

LEAST_WEIGHT = 0.02  # of a neuron, as a share of the mean
STALLED = 2  # repeats without a rise after which it ends
NOISE = 0.3  # that is added to primal vectors, relatively: what they have forgotten may come back


@dataclass(frozen=True)
class Effort:
    """The effort for one certificate.

    Attributes:
        repeats: How often the weights are chosen anew, at most.
        power_rounds: Power iterations each time.
        steps: Steps of the ascent each time.
        rise: By how much, relatively to the target at the centre, the bound must rise for another repeat.
    """

    repeats: int = 10
    power_rounds: int = 60
    steps: int = 150
    rise: float = 0.004


EFFORT = Effort()


@dataclass(frozen=True, eq=False)
class Memory:
    """A warm start for the solution at another radius: everything in full size, whichever neurons are loose.

    Attributes:
        radius: The radius of the solution.
        point: The dual variables; the tangent in full size.
        costs: The coefficients of every hidden layer's outputs.
        moments: Mean squares of deviations, per squared radius.
        vectors: Primal vectors in full size.
    """

    radius: float
    point: DualPoint
    costs: list[Tensor]
    moments: list[Tensor]
    vectors: Tensor


@dataclass(frozen=True, eq=False)
class Solution:
    """Multipliers, the bound that they are said to give, and what to start from next time."""

    value: float
    certificate: Certificate
    dual: ProposedDual
    memory: Memory


def solve(
    problem: Problem, target: Target, memory: Memory | None, enough: float = torch.inf, ends: float = torch.inf,
    report: Report = silent,
) -> Solution | None:  # fmt: skip
    """The best multipliers for a target; None where there is no certificate, or it did not stay within float32.

    enough: a bound at which to stop; ends: by the monotonic clock, when it has to be over, judged by the repeat before;
    report: called with every repeat.
    """
    maps, effort = Maps(problem), EFFORT
    generator = torch.Generator().manual_seed(0)
    height = abs(float(target.form @ maps.layers[-1].centre.clamp(min=0)) + target.offset)
    state, best = _State.start(maps, target, memory, generator), None
    stalled = 0
    for repeat in range(effort.repeats):
        report(Progress(step=repeat, steps=effort.repeats))
        began = time.monotonic()
        solution = state.improve(maps, target, effort, enough, generator)
        if solution is None:
            break
        before = -torch.inf if best is None else best.value
        if best is None or solution.value > before:
            best = solution
        stalled = stalled + 1 if solution.value < before + effort.rise * height else 0
        if solution.value > enough or stalled == STALLED or 2 * time.monotonic() - began > ends:
            break
    return best


@dataclass(eq=False)
class _State:
    """The state of the alternation; without a point it is at its beginning."""

    point: DualPoint | None
    costs: list[Tensor]
    moments: list[Tensor]
    vectors: Tensor

    @classmethod
    def start(cls, maps: Maps, target: Target, memory: Memory | None, generator: torch.Generator) -> _State:
        if memory is not None:
            return _recalled(maps, memory)
        costs, form = [], target.form
        for layer in reversed(maps.layers):
            costs.append(form)
            form = layer.weight.T @ (form * layer.slope)
        vectors = start_vectors(maps, generator)
        moments = [deviation.square().sum(1) for deviation in maps.deviations(vectors)]
        return cls(None, costs[::-1], moments, vectors)

    def improve(
        self, maps: Maps, target: Target, effort: Effort, enough: float, generator: torch.Generator
    ) -> Solution | None:
        """One certificate with new weights, and one ascent with it; None where there is no certificate."""
        first = self.point is None
        size = self.vectors.square().mean(1, keepdim=True).sqrt()
        noise = NOISE * size * torch.randn(self.vectors.shape, generator=generator)
        proposal = propose(maps, self.demand(maps), self.vectors + noise, effort.power_rounds * (2 if first else 1))
        if proposal is None:
            return None
        self.vectors, self.moments = proposal.vectors, proposal.moments
        weights = [weight.to(DTYPE) for weight in proposal.certificate.weights]
        function = DualFunction(maps, weights, proposal.matrix, target)
        point = self.point or first_point(function)
        value, self.point, self.costs = ascend(function, point, self.moments, effort.steps, enough)
        return Solution(value, proposal.certificate, _double(self.point), self.remember(maps))

    def demand(self, maps: Maps) -> Demand:
        """Neurons with negative costs gain from variance; all unstable ones get a little weight."""
        deviations = None if self.point is None else maps.deviations(self.point.tangent / self.point.rate)
        gains, means = [], []
        for number, (layer, cost) in enumerate(zip(maps.layers, self.costs, strict=True)):
            gains.append((cost.clamp(max=0).abs() + LEAST_WEIGHT * cost.abs().mean()) * layer.unstable)
            means.append(layer.centre if deviations is None else layer.centre + deviations[number])
        return Demand(gains, means)

    def remember(self, maps: Maps) -> Memory:
        assert self.point is not None
        radius = float(maps.problem.region.radius[0])
        point = DualPoint(self.point.rate, self.point.links, _full(maps, self.point.tangent))
        moments = [moment / radius**2 for moment in self.moments]
        return Memory(radius, point, self.costs, moments, _full(maps, self.vectors))


def _recalled(maps: Maps, memory: Memory) -> _State:
    radius = float(maps.problem.region.radius[0])
    share = radius / memory.radius
    places, inputs = _places(maps), maps.problem.sizes[0]
    vectors, tangent = memory.vectors[places].clone(), memory.point.tangent[places].clone()
    vectors[inputs:] *= share  # sector errors grow with the region, inputs are counted in units of it
    tangent[inputs:] *= share
    point = DualPoint(memory.point.rate, [link.clone() for link in memory.point.links], tangent)
    return _State(point, memory.costs, [moment * radius**2 for moment in memory.moments], vectors)


def _places(maps: Maps) -> Tensor:
    """Where the rows of the certificate's matrix are among all inputs and neurons."""
    problem = maps.problem
    parts, first = [problem.moving], len(problem.centre)
    for layer in problem.layers[:-1]:
        parts.append(layer.loose + first)
        first += len(layer.bias)
    return torch.cat(parts)


def _full(maps: Maps, vector: Tensor) -> Tensor:
    problem = maps.problem
    size = len(problem.centre) + sum(len(layer.bias) for layer in problem.layers[:-1])
    return vector.new_zeros(size, *vector.shape[1:]).index_copy(0, _places(maps), vector)


def _double(point: DualPoint) -> ProposedDual:
    return ProposedDual(point.rate.double(), tuple(link.double() for link in point.links), point.tangent.double())
