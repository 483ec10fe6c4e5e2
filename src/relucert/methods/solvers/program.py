"""The relaxed program of a network around one point, as arrays.

Every pre-activation z and every activation a is a column, beside those of the input, and all count as deviations from
the values at the point, in units of the radius (the input's also in units of its scale): so the ball is the unit ball
at every radius, the equations between layers have no constants, and from radius to radius only the right-hand sides,
the box's walls and the slopes of upper lines change. An unstable neuron is held in its triangle: a >= 0, a >= z,
a <= slope * z + high.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE
from relucert.bounding.interval import Bounds
from relucert.bounding.relaxers import FAST_LIN
from relucert.network import INPUT, Network, Relu, pull_back, transposed

Array = NDArray[np.float64]


class RightHandSides(NamedTuple):
    """The numbers of a program that the radius and the neurons' bounds decide; infinite: no such side.

    inputs: bounds of the input's columns. One entry per ReLU each: zero, the bounds of a; line, the bounds of a - z;
    slope and top: a - slope * z <= top.
    """

    inputs: tuple[Array, Array]

    zero: tuple[Array, Array]
    line: tuple[Array, Array]
    slope: Array
    top: Array


@dataclass(frozen=True, eq=False)
class Program:
    """Columns: the input's (`inputs` of them), then z of every pre-activation, then a of every ReLU's value.

    equations: rows that vanish, the z in terms of what makes them. sources: the column of each a's own z.
    forms: for every value with neurons, and the output, its rows over all columns.
    walls: how far the input's columns may go down and up, in units of the scale; infinite where every input is valid.
    """

    inputs: int
    equations: Array
    sources: NDArray[np.int32]
    activations: dict[int, slice]  # of each ReLU's value among all ReLUs, in order
    origins: dict[int, int]  # the value that each of them rectifies
    forms: dict[int, Array]
    before: Array  # z at the point, one entry per ReLU
    after: Array  # a at the point
    walls: tuple[Array, Array]
    extent: float  # of a unit ball in its columns

    @property
    def columns(self) -> int:
        return int(self.equations.shape[1])

    @property
    def first(self) -> int:
        """The column of the first a; the z come before."""
        return self.columns - len(self.after)

    @cached_property
    def activation_rows(self) -> Array:
        """Rows that pick each a."""
        return np.eye(len(self.after), self.columns, k=self.first)

    @cached_property
    def source_rows(self) -> Array:
        """Rows that pick each a's own z."""
        rows = np.zeros((len(self.after), self.columns))
        rows[np.arange(len(rows)), self.sources] = 1
        return rows

    def right_hand_sides(self, radius: float, bounds: Bounds, member: int) -> RightHandSides:
        """At a radius, with the neurons' bounds of one batch member; ReLUs whose bounds are missing have no top."""
        slope, high = np.zeros_like(self.after), np.full_like(self.after, np.inf)
        for value, columns in self.activations.items():
            interval = bounds.get(self.origins[value])
            if interval is not None:
                lines = FAST_LIN(Relu(), interval.select(slice(member, member + 1)).cast(torch.float64), DOUBLE)
                slope[columns], high[columns] = lines.slope_above[0].numpy(), lines.high[0].numpy()
        inactive, active = (high == 0) & (slope == 0), (high == 0) & (slope > 0)
        zero, line = -self.after / radius, (self.before - self.after) / radius
        top = (high + slope * self.before - self.after) / radius
        down, up = (np.minimum(wall / radius, self.extent) for wall in self.walls)
        return RightHandSides(
            (-down, up),
            (np.where(active, -np.inf, zero), np.where(inactive, zero, np.inf)),
            (np.where(inactive, -np.inf, line), np.where(active, line, np.inf)),
            slope,
            np.where(inactive | active, np.inf, top),
        )


def build(network: Network, region: Region, member: int) -> Program:
    """The program around the centre of one member of a batch; network in float64."""
    point = region.centre[member].double()
    relus = [(value, node.inputs[0]) for value, node in network.steps() if isinstance(node.operation, Relu)]
    preactivations = network.preactivations
    stages = {value: _stage(network, value) for value in (*preactivations, network.output)}
    scale = np.ones(network.sizes[INPUT]) if region.scale is None else region.scale.double().numpy()
    entries = [stage[INPUT] * scale for stage in stages.values() if INPUT in stage]
    inputs = _Inputs.of(region, member, entries, scale)
    entered = iter(inputs.entries)
    starts, width = {}, inputs.columns + sum(network.sizes[value] for value in preactivations)
    first = width
    for value, _ in relus:
        starts[value] = width
        width += network.sizes[value]
    forms = {}
    for value, stage in stages.items():
        forms[value] = np.zeros((network.sizes[value], width))
        for source, matrix in stage.items():
            start, matrix = (0, next(entered)) if source == INPUT else (starts[source], matrix)
            forms[value][:, start : start + matrix.shape[1]] = matrix
    places = dict(
        zip(preactivations, _slices([network.sizes[value] for value in preactivations], inputs.columns), strict=True)
    )
    equations = np.concatenate([forms[value] for value in preactivations]) if preactivations else np.zeros((0, width))
    equations[np.arange(len(equations)), inputs.columns + np.arange(len(equations))] -= 1
    at_point = [value[0].numpy() for value in network.values(point[None])]
    empty = np.zeros(0)
    return Program(
        inputs.columns,
        equations,
        np.concatenate([np.arange(places[s].start, places[s].stop) for _, s in relus] or [empty]).astype(np.int32),
        {value: slice(starts[value] - first, starts[value] - first + network.sizes[value]) for value, _ in relus},
        dict(relus),
        forms,
        np.concatenate([at_point[source] for _, source in relus] or [empty]),
        np.concatenate([at_point[value] for value, _ in relus] or [empty]),
        inputs.walls,
        inputs.extent,
    )


def _slices(sizes: list[int], start: int) -> list[slice]:
    ends = start + np.cumsum(sizes)
    return [slice(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True)]


class _StageRule:
    """Pulls forms back as far as the values of ReLUs, and keeps those."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.reached: dict[int, torch.Tensor] = {}

    def affine(self, value: int, form: torch.Tensor) -> list[torch.Tensor]:
        return transposed(self.network, value, form)

    def activation(self, value: int, source: int, form: torch.Tensor) -> None:
        self.reached[value] = form

    def join(self, value: int, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one + other


def _stage(network: Network, value: int) -> dict[int, Array]:
    """The linear part of a value in terms of the input and of ReLUs' values: rows (size, size of the source)."""
    rule = _StageRule(network)
    identity = torch.eye(network.sizes[value], dtype=torch.float64)[None]
    reached = pull_back(network, value, identity, rule) | rule.reached
    return {source: reached[source][0].numpy() for source in sorted(reached, reverse=True)}


class _Inputs(NamedTuple):
    """The columns that stand for the input's deviation: how many, the rows on them, and their walls."""

    columns: int
    entries: list[Array]
    walls: tuple[Array, Array]
    extent: float

    @classmethod
    def of(cls, region: Region, member: int, rows: list[Array], scale: Array) -> _Inputs:
        """rows: those on the input's deviation in units of the scale."""
        size = len(scale)
        down, up = np.full(size, np.inf), np.full(size, np.inf)
        if region.box is not None:
            centre = region.centre[member].double().numpy()
            units = np.where(scale > 0, scale, 1.0)
            down = np.maximum(centre - region.box.low.double().numpy(), 0) / units
            up = np.maximum(region.box.high.double().numpy() - centre, 0) / units
        body = region.norm.body
        if body == "diamond":  # what is added and what is taken away
            none = np.zeros(2 * size)
            return cls(
                2 * size, [np.concatenate([matrix, -matrix], 1) for matrix in rows], (none, np.append(up, down)), 1.0
            )
        if body == "box":
            return cls(size, rows, (down, up), 1.0)
        if region.box is None and rows and (stacked := np.concatenate(rows)).shape[0] < size:
            triangle: Array = np.linalg.qr(stacked.T).R  # only the plane that the rows span matters
            rows = np.split(triangle.T, np.cumsum([len(matrix) for matrix in rows])[:-1])
            size = len(triangle)
            down = up = np.full(size, np.inf)
        return cls(size, rows, (down, up), np.inf)
