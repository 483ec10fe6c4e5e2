"""The relaxed program of a network around one point, as arrays.

Every neuron z before a ReLU and every a it makes is a column, beside those of the input, and all count as
deviations from the values at the point, in units of the radius: so the ball is the unit ball at every radius, the
equations between layers have no constants, and from radius to radius only the right-hand sides and the slopes of
upper lines change. An undecided neuron is held in its triangle: a >= 0, a >= z, a <= slope * z + high.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from relucert.bounding.forward import INPUT, Bounds
from relucert.bounding.relaxers import parallel
from relucert.network import Affine, Network, Relu
from relucert.norm import Norm
from relucert.rigor import DOUBLE

Array = NDArray[np.float64]


class Sides(NamedTuple):
    """What one radius and the neurons' bounds make of the program, an entry a ReLU; infinite: no such side.

    zero: bounds of a; line: bounds of a - z; slope, top: a - slope * z <= top.
    """

    zero: tuple[Array, Array]
    line: tuple[Array, Array]
    slope: Array
    top: Array


@dataclass(frozen=True, eq=False)
class Program:
    """Columns: the input's (`inputs` of them), then z of every rectified value, then a of every ReLU's value.

    equations: rows that vanish, the z in terms of what makes them. sources: the column of each a's own z.
    forms: for every value with neurons, and the output, its rows over all columns.
    """

    inputs: int
    equations: Array
    sources: NDArray[np.int32]
    activations: dict[int, slice]  # of each ReLU's value among all ReLUs, in order
    origins: dict[int, int]  # the value that each of them rectifies
    forms: dict[int, Array]
    before: Array  # z at the point, an entry a ReLU
    after: Array  # a at the point

    @property
    def columns(self) -> int:
        return int(self.equations.shape[1])

    @property
    def first(self) -> int:
        """The column of the first a; the z come before."""
        return self.columns - len(self.after)

    @cached_property
    def own(self) -> Array:
        """Rows that pick each a."""
        return np.eye(len(self.after), self.columns, k=self.first)

    @cached_property
    def origin(self) -> Array:
        """Rows that pick each a's own z."""
        rows = np.zeros((len(self.after), self.columns))
        rows[np.arange(len(rows)), self.sources] = 1
        return rows

    def sides(self, radius: float, bounds: Bounds, member: int) -> Sides:
        """At a radius, with the neurons' bounds of one batch member; ReLUs whose bounds are missing have no top."""
        slope, high = np.zeros_like(self.after), np.full_like(self.after, np.inf)
        for value, place in self.activations.items():
            own = bounds.get(self.origins[value])
            if own is not None:
                lines = parallel(type(own)(*(side[member].double() for side in own)), DOUBLE)
                slope[place], high[place] = lines.slope_above.numpy(), lines.high.numpy()
        dead, active = (high == 0) & (slope == 0), (high == 0) & (slope > 0)
        zero, line = -self.after / radius, (self.before - self.after) / radius
        top = (high + slope * self.before - self.after) / radius
        return Sides(
            (np.where(active, -np.inf, zero), np.where(dead, zero, np.inf)),
            (np.where(dead, -np.inf, line), np.where(active, line, np.inf)),
            slope,
            np.where(dead | active, np.inf, top),
        )


def build(network: Network, point: torch.Tensor, norm: Norm) -> Program:
    """The program around a point (size,); network and point in float64."""
    rectified = network.rectified
    relus = [(value, node.inputs[0]) for value, node in network.steps() if isinstance(node.operation, Relu)]
    stages = {value: _stage(network, value) for value in (*rectified, network.output)}
    entries = _input_columns([stage[INPUT] for stage in stages.values() if INPUT in stage], norm)
    inputs = next((part.shape[1] for part in entries), 0)
    entered = iter(entries)
    starts, width = {}, inputs + sum(network.sizes[value] for value in rectified)
    first = width
    for value, _ in relus:
        starts[value] = width
        width += network.sizes[value]
    forms = {}
    for value, stage in stages.items():
        forms[value] = np.zeros((network.sizes[value], width))
        for source, part in stage.items():
            start, part = (0, next(entered)) if source == INPUT else (starts[source], part)
            forms[value][:, start : start + part.shape[1]] = part
    places = dict(zip(rectified, _slices([network.sizes[value] for value in rectified], inputs), strict=True))
    made = np.concatenate([forms[value] for value in rectified]) if rectified else np.zeros((0, width))
    made[np.arange(len(made)), inputs + np.arange(len(made))] -= 1
    at_point = [value[0].numpy() for value in network.values(point[None])]
    empty = np.zeros(0)
    return Program(
        inputs,
        made,
        np.concatenate([np.arange(places[s].start, places[s].stop) for _, s in relus] or [empty]).astype(np.int32),
        {value: slice(starts[value] - first, starts[value] - first + network.sizes[value]) for value, _ in relus},
        dict(relus),
        forms,
        np.concatenate([at_point[source] for _, source in relus] or [empty]),
        np.concatenate([at_point[value] for value, _ in relus] or [empty]),
    )


def _slices(sizes: list[int], start: int) -> list[slice]:
    ends = start + np.cumsum(sizes)
    return [slice(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True)]


def _stage(network: Network, value: int) -> dict[int, Array]:
    """The linear part of a value in terms of the input and of what ReLUs make: rows (size, size of the source)."""
    pending = {value: torch.eye(network.sizes[value], dtype=torch.float64)}
    found = {}
    while pending:
        current = max(pending)
        rows = pending.pop(current)
        node = network.nodes[current - 1] if current != INPUT else None
        if node is None or not isinstance(node.operation, Affine):
            found[current] = rows.numpy()
            continue
        for source, part in zip(
            node.inputs, node.operation.transpose(rows.unflatten(-1, network.shapes[current])), strict=True
        ):
            flat = part.reshape(len(rows), -1)
            pending[source] = pending[source] + flat if source in pending else flat
    return found


def _input_columns(parts: list[Array], norm: Norm) -> list[Array]:
    """Rows on the input's deviation in terms of the columns that stand for it."""
    if norm.body == "diamond":  # what is added and what is taken away
        return [np.concatenate([part, -part], 1) for part in parts]
    if norm.body == "sphere" and parts and (rows := np.concatenate(parts)).shape[0] < rows.shape[1]:
        triangle: Array = np.linalg.qr(rows.T).R  # only the plane that the rows span matters
        return np.split(triangle.T, np.cumsum([len(part) for part in parts])[:-1])
    return parts
