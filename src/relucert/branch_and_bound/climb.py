"""Batched ascent on lower bounds: slopes of undecided neurons, multipliers of split ones, in float32.

A bound is a pull-back through the stages. Its gradient is one forward pass of the relaxed network from the point of the
region where the pulled-back form is least: with the coefficient g of a neuron's activation, the slope of its lower line
gains g+ z, the multiplier of its sign -z or z.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.branch_and_bound.stages import Maps, Stage, Stages
from relucert.network import Rows
from relucert.region import Region
from relucert.rigor import FLOAT

SLOPE_RATE, MULTIPLIER_RATE, DECAY = 0.3, 1.0, 0.95
MEANS = (0.9, 0.99)  # Adam's
INTERCEPT_WEIGHT = 0.2  # in the choice of the neuron to split
TINY = 1e-12


class Nodes(NamedTuple):
    """Parts of the region for rows, some neurons' signs being known.

    Attributes:
        rows: Which row each is about, (count,).
        signs: 1, -1 or, where it is not known, 0, of every undecided neuron: (count, undecided), int8.
        duals: The slopes of free neurons, the multipliers of split ones: (count, undecided).
    """

    rows: Tensor
    signs: Tensor
    duals: Tensor

    def pick(self, chosen: Tensor | slice) -> Nodes:
        return Nodes(self.rows[chosen], self.signs[chosen], self.duals[chosen])

    def split(self, neurons: Tensor) -> Nodes:
        """Two of each by one neuron's sign, (count,): all with the sign 1, then all with -1; no multiplier yet."""
        duals = self.duals.scatter(1, neurons[:, None], 0.0)
        halves = [
            Nodes(self.rows, self.signs.scatter(1, neurons[:, None], sign), duals) for sign in (1, -1)
        ]  # fmt: skip
        return join(halves)


def join(parts: list[Nodes]) -> Nodes:
    return Nodes(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class Climbed:
    """What an ascent came to.

    Attributes:
        lower: The highest bounds, as computed, (count,).
        nodes: With the slopes and multipliers that they are due to.
        scores: How much each neuron matters to the bound, (count, undecided); 0 where it is split.
        points: Where the relaxed rows are least, (count, inputs).
    """

    lower: Tensor
    nodes: Nodes
    scores: Tensor
    points: Tensor


class Climber:
    """Bounds rows, functions of some of the stages, over parts of the region."""

    def __init__(self, stages: Stages, rows: Maps, depth: int | None = None) -> None:
        """depth: the number of stages that the rows depend on."""
        self.stages = stages.stages[:depth]
        self.rows, self.undecided = rows, sum(stage.undecided for stage in self.stages)
        self.corners = _Corners(stages.region.cast(torch.float32))
        self.chords: list[tuple[Tensor, Tensor]] = []
        for stage in self.stages:
            width = stage.upper - stage.lower
            slope = torch.where(width > 0, stage.upper / width, 0)
            self.chords.append((slope, -slope * stage.lower))
        self.matrices = [self._scaled(stage.maps.entrance) for stage in self.stages]
        self.row_matrix = self._scaled(rows.entrance)

    def _scaled(self, entrance: Tensor | None) -> Tensor | None:
        return None if entrance is None else entrance * self.corners.scale

    def roots(self) -> Nodes:
        """The whole region for every row, with CROWN's slopes."""
        count = len(self.rows.bias)
        adaptive = [(stage.upper > -stage.lower).float() for stage in self.stages]
        slopes = torch.cat(adaptive) if adaptive else torch.zeros(0)
        signs = torch.zeros(count, self.undecided, dtype=torch.int8)
        return Nodes(torch.arange(count), signs, slopes.repeat(count, 1))

    def run(
        self, nodes: Nodes, steps: int, ends: float, rate: float = SLOPE_RATE, enough: float = torch.inf
    ) -> Climbed:
        """At most so many steps: none once time is over or every bound is above what is enough."""
        ascent = _Ascent(self, nodes)
        best, highest = nodes.duals, torch.full((len(nodes.rows),), -torch.inf)
        mean = square = torch.zeros_like(nodes.duals)
        for step in range(steps + 1):
            pulled = ascent.pull()
            better = pulled.bound > highest
            best = torch.where(better[:, None], ascent.duals, best)
            highest = torch.where(better, pulled.bound, highest)
            if step == steps or bool((highest > enough).all()) or time.monotonic() > ends:
                break
            gradient = ascent.gradient(pulled)
            if step == 0:
                units = ascent.units(pulled, rate)
            mean = torch.lerp(gradient, mean, MEANS[0])
            square = torch.lerp(gradient.square(), square, MEANS[1])
            way = mean / (square / (1 - MEANS[1] ** (step + 1))).sqrt_().add_(TINY).mul_(1 - MEANS[0] ** (step + 1))
            ascent.move(way * units * DECAY**step)
        if not bool(better.all()):
            ascent.duals = best
            pulled = ascent.pull()
        ascent.gradient(pulled)
        return Climbed(highest, nodes._replace(duals=best), ascent.scores(pulled), self.corners.point(pulled.corner))

    def margins(self, points: Tensor) -> Tensor:
        """What all rows are at points of the region, (count, inputs), as computed: (count, rows)."""
        deviation = points - self.corners.reference
        activations: list[Tensor] = []

        def value(maps: Maps) -> Tensor:
            total = maps.bias.expand(len(points), -1)
            if maps.entrance is not None:
                total = total + deviation @ maps.entrance.T
            for place, weight in maps.weights.items():
                total = total + activations[place] @ weight.T
            return total

        for stage in self.stages:
            activations.append(value(stage.maps).clamp(min=0))
        return value(self.rows)


class _Pulled(NamedTuple):
    bound: Tensor
    positive: list[Tensor]
    negative: list[Tensor]
    corner: Tensor


class _Ascent:
    """The numbers of one batch of nodes on the way."""

    def __init__(self, climber: Climber, nodes: Nodes) -> None:
        self.climber, self.duals = climber, nodes.duals
        rows = climber.rows
        self.forms = {place: weight[nodes.rows] for place, weight in rows.weights.items()}
        self.entrance = None if climber.row_matrix is None else climber.row_matrix[nodes.rows]
        self.bias = rows.bias[nodes.rows]
        signs = nodes.signs.float()
        self.signs, self.free, self.plus = signs, (signs == 0).float(), (signs > 0).float()
        self.slopes = [chord[0] * self.free[:, stage.columns] for stage, chord in self._each()]
        self.heights = [chord[1] * self.free[:, stage.columns] for stage, chord in self._each()]
        self.values: list[Tensor] = []
        self.activations: list[Tensor] = []

    def _each(self) -> list[tuple[Stage, tuple[Tensor, Tensor]]]:
        return list(zip(self.climber.stages, self.climber.chords, strict=True))

    def pull(self) -> _Pulled:
        forms, bound = dict(self.forms), self.bias
        at_input = self.entrance
        lower, multipliers = self.duals * self.free, self.duals * self.signs
        positive: list[Tensor] = [self.bias] * len(self.climber.stages)
        negative = list(positive)
        for place in range(len(self.climber.stages) - 1, -1, -1):
            stage = self.climber.stages[place]
            if place not in forms:
                positive[place] = negative[place] = torch.zeros(len(self.bias), stage.undecided)
                coefficients = torch.zeros(len(self.bias), len(stage.neurons))
            else:
                coefficients = forms.pop(place)
            undecided, on = coefficients[:, : stage.undecided], coefficients[:, stage.undecided :]
            above = undecided.clamp(min=0)
            below = undecided - above
            positive[place], negative[place] = above, below
            columns = stage.columns
            pulled = above * lower[:, columns] + below * self.slopes[place] + undecided * self.plus[:, columns]
            pulled -= multipliers[:, columns]
            bound = bound + (below * self.heights[place]).sum(1)
            moved = torch.cat([pulled, on], 1)
            bound = bound + moved @ stage.maps.bias
            for earlier, weight in stage.maps.weights.items():
                part = moved @ weight
                forms[earlier] = forms[earlier] + part if earlier in forms else part
            matrix = self.climber.matrices[place]
            if matrix is not None:
                part = moved @ matrix
                at_input = part if at_input is None else at_input + part
        if at_input is None:
            at_input = torch.zeros(len(bound), len(self.climber.corners.scale))
        fall, corner = self.climber.corners.least(at_input)
        return _Pulled(bound - fall, positive, negative, corner)

    def gradient(self, pulled: _Pulled) -> Tensor:
        """Of the bound, by the slopes and multipliers; leaves the relaxed values behind."""
        self.values, self.activations = [], []
        lower = self.duals * self.free
        parts = []
        for place, stage in enumerate(self.climber.stages):
            maps, matrix = stage.maps, self.climber.matrices[place]
            value = maps.bias.expand(len(self.bias), -1)
            if matrix is not None:
                value = value + pulled.corner @ matrix.T
            for earlier, weight in maps.weights.items():
                value = value + self.activations[earlier] @ weight.T
            columns = stage.columns
            undecided = value[:, : stage.undecided]
            line = torch.where(
                pulled.negative[place] < 0,
                self.slopes[place] * undecided + self.heights[place],
                lower[:, columns] * undecided,
            )
            line = line + self.plus[:, columns] * undecided
            self.values.append(undecided)
            self.activations.append(torch.cat([line, value[:, stage.undecided :]], 1))
            gain = pulled.positive[place] * self.free[:, columns] - self.signs[:, columns]
            parts.append(gain * undecided)
        return torch.cat(parts, 1) if parts else torch.zeros_like(self.duals)

    def units(self, pulled: _Pulled, rate: float) -> Tensor:
        """The length of the first step of every variable: multipliers count in units of their stage's coefficients."""
        parts = []
        for place, stage in enumerate(self.climber.stages):
            size = (pulled.positive[place] - pulled.negative[place]).mean(1, keepdim=True).nan_to_num(0)
            split = self.signs[:, stage.columns].abs()
            parts.append(self.free[:, stage.columns] * rate + split * size * MULTIPLIER_RATE)
        return torch.cat(parts, 1) if parts else torch.zeros_like(self.duals)

    def move(self, way: Tensor) -> None:
        moved = self.duals + way
        self.duals = torch.where(self.free > 0, moved.clamp(0, 1), moved.clamp(min=0)).nan_to_num(0)

    def scores(self, pulled: _Pulled) -> Tensor:
        """By how much a neuron's relaxed activation is off at the point where the bound is least, times its
        coefficient, and a share of what its upper line loses at most."""
        parts = []
        for place, stage in enumerate(self.climber.stages):
            values = self.values[place]
            relaxed = self.activations[place][:, : stage.undecided]
            off = torch.minimum(relaxed, relaxed - values).clamp(min=0)
            score = -pulled.negative[place] * (off + INTERCEPT_WEIGHT * self.heights[place])
            missed = pulled.positive[place] * (values.clamp(min=0) - relaxed).clamp(min=0)
            parts.append((score + missed + TINY) * self.free[:, stage.columns])
        return torch.cat(parts, 1) if parts else torch.zeros_like(self.duals)


class _Corners:
    """Where linear forms on the input's deviation are least in a region, a batch of one in float32.

    Forms, and the points where they are least, are in units of the scale.
    """

    def __init__(self, region: Region) -> None:
        self.region, self.reference = region, region.reference[0]
        self.is_box = region.norm.body == "box"
        self.scale = region.spans(FLOAT).largest[0] if self.is_box else torch.ones_like(self.reference)

    def least(self, forms: Tensor) -> tuple[Tensor, Tensor]:
        """How far forms (count, inputs) fall, (count,), and where, (count, inputs)."""
        if self.is_box:
            return forms.abs().sum(1), -forms.sign()
        with torch.inference_mode(False), torch.enable_grad():
            leaf = forms.clone().requires_grad_()
            region = self.region.clone()
            fall = region.deviation(Rows(leaf[None], self.reference.shape), FLOAT, two_sided=False).below[0]
            (gradient,) = torch.autograd.grad(fall.sum(), leaf)
        return fall.detach(), -gradient

    def point(self, corner: Tensor) -> Tensor:
        return self.reference + corner * self.scale
