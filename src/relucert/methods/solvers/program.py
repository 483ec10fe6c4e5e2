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
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE
from relucert.bounding.interval import Bounds
from relucert.bounding.relaxers import FAST_LIN
from relucert.common.deadline import check_time
from relucert.methods.passes import THE_INPUT, Passes
from relucert.network import INPUT, Network, Relu

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
    """Columns: the input's (`inputs` of them), then z of every neuron, then a of every neuron.

    equations: rows that vanish, the z in terms of what makes them. neurons: by pre-activation, which they are.
    forms: for every value with neurons, and the output, its rows over all columns.
    walls: how far the input's columns may go down and up, in units of the scale; infinite where every input is valid.
    """

    inputs: int
    equations: Array
    neurons: dict[int, slice]
    forms: dict[int, Array]
    before: Array  # z at the point, one entry per neuron
    walls: tuple[Array, Array]
    extent: float  # of a unit ball in its columns

    @property
    def columns(self) -> int:
        return int(self.equations.shape[1])

    @cached_property
    def after(self) -> Array:
        """a at the point, one entry per neuron."""
        return np.maximum(self.before, 0)

    @cached_property
    def activation_rows(self) -> Array:
        """Rows that pick each a."""
        return np.eye(len(self.before), self.columns, k=self.inputs + len(self.before))

    @cached_property
    def source_rows(self) -> Array:
        """Rows that pick each a's own z."""
        return np.eye(len(self.before), self.columns, k=self.inputs)

    def right_hand_sides(self, radius: float, bounds: Bounds, member: int) -> RightHandSides:
        """At a radius, with the neurons' bounds of one batch member; ReLUs whose bounds are missing have no top."""
        slope, high = np.zeros_like(self.after), np.full_like(self.after, np.inf)
        for value, neurons in self.neurons.items():
            interval = bounds.get(value)
            if interval is not None:
                lines = FAST_LIN(Relu(), interval.select(slice(member, member + 1)).cast(torch.float64), DOUBLE)
                slope[neurons], high[neurons] = lines.slope_above[0].numpy(), lines.high[0].numpy()
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
    passes, preactivations = Passes(network, quick=False), network.preactivations
    stages = {}
    for value in (*preactivations, network.output):
        check_time()
        stages[value] = passes.local_transposed(value, torch.eye(network.sizes[value], dtype=torch.float64))
    scale = np.ones(network.sizes[INPUT]) if region.scale is None else region.scale.double().numpy()
    entries = [stage[THE_INPUT].numpy() * scale for stage in stages.values() if THE_INPUT in stage]
    inputs = _Inputs.of(region, member, entries, scale)
    entered = iter(inputs.entries)
    ends = np.cumsum([0, *(network.sizes[value] for value in preactivations)]).tolist()
    neurons = {value: slice(*pair) for value, pair in zip(preactivations, pairwise(ends), strict=True)}
    count, forms = ends[-1], {}
    width = inputs.columns + 2 * count
    for value, stage in stages.items():
        forms[value] = np.zeros((network.sizes[value], width))
        activations = forms[value][:, width - count :]
        for source, matrix in stage.items():
            if source == THE_INPUT:
                forms[value][:, : inputs.columns] = next(entered)
            else:
                activations[:, neurons[source]] = matrix.numpy()
    equations = np.concatenate([np.zeros((0, width)), *(forms[value] for value in preactivations)])
    equations -= np.eye(count, width, k=inputs.columns)
    at_point = network.values(region.centre[member].double()[None])
    before = np.concatenate([np.zeros(0), *(at_point[value][0].numpy() for value in preactivations)])
    return Program(inputs.columns, equations, neurons, forms, before, inputs.walls, inputs.extent)


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
