"""Lower bounds of linear forms in ball arithmetic, for the check of proofs: every number carries its error.

For networks of the operations in `layers.py`, and no others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import torch
from flint import arb, fmpq

from relucert.checker.layers import LAYERS, ONE, ZERO, Layer, Row, layer_of
from relucert.errors import UnsupportedError
from relucert.network import Network

Bounds = dict[int, tuple[Row, Row]]  # of the neurons of a value, from below and from above, exact numbers
Table = dict[int, list[float]]
INFINITE = arb(math.inf)
WALLS = 8


@dataclass(frozen=True)
class BallRegion:
    """The x with `||(x - centre) / scale||_p <= radius` that are not farther than the rooms, where there are any.

    rooms: how far every coordinate may go down and up, in units of its scale.
    """

    norm: float
    radius: arb
    centre: Row
    scale: Row | None
    rooms: list[tuple[arb, arb]] | None

    @classmethod
    def between(cls, low: tuple[Fraction, ...], high: tuple[Fraction, ...]) -> BallRegion:
        """A box with exact ends."""
        centre, rooms = [], []
        for one, other in zip(low, high, strict=True):
            centre.append(exact((one + other) / 2))
            rooms.append((exact((other - one) / 2),) * 2)
        return cls(math.inf, ONE, centre, None, rooms)


class Bounder:
    """Bounds over one region.

    layers: those of some values in the place of what the network stores.
    """

    def __init__(self, network: Network, region: BallRegion, layers: Mapping[int, Layer] | None = None) -> None:
        if unknown := sorted({node.operation.name for node in network.nodes} - {"relu", *LAYERS}):
            raise UnsupportedError(f"proofs can't be checked for the operations {', '.join(unknown)}")
        self.network, self.norm, self.radius = network, region.norm, region.radius
        self.centre, self.scale, self.rooms = region.centre, region.scale, region.rooms
        given = layers or {}
        self.layers = {
            value: given.get(value) or layer_of(network, value, node)
            for value, node in network.steps()
            if node.operation.name != "relu"
        }
        self.first: Bounds = {}

    def within(self, low: Mapping[int, Fraction], high: Mapping[int, Fraction]) -> Bounder:
        """The bounds over the part of a box, its scale being 1, whose coordinates are between these ends."""
        part = copy(self)
        part.first, part.centre, part.rooms = {}, list(self.centre), list(self.rooms or [])
        for place, end in low.items():
            part.centre[place] = exact((end + high[place]) / 2)
            part.rooms[place] = (exact((high[place] - end) / 2),) * 2
        return part

    def enclose(self) -> Bounds:
        """Bounds of every neuron, with CROWN's lower lines."""
        bounds: Bounds = {}
        slopes: Table = {}
        for value in self.network.rectified:
            lower, upper = (list(side) for side in self._both(value, bounds, slopes))
            bounds[value] = lower, upper
            lines = [1.0 if above > -below else 0.0 for below, above in zip(lower, upper, strict=True)]
            slopes.update(dict.fromkeys(self._relus(value), lines))
        return bounds

    def _relus(self, value: int) -> list[int]:
        return [
            relu for relu, node in self.network.steps() if node.operation.name == "relu" and node.inputs[0] == value
        ]

    def _both(self, value: int, bounds: Bounds, slopes: Table) -> tuple[Row, Row]:
        if value in self.first:
            return self.first[value]
        size = self.network.sizes[value]
        rows = [
            [arb(sign) if other == place else ZERO for other in range(size)]
            for sign in (1, -1)
            for place in range(size)
        ]
        least = [ball.lower() for ball in self.lower(rows, value, bounds, slopes)]
        both = least[:size], [-ball for ball in least[size:]]
        if not self.network.relu_depths[value]:
            self.first[value] = both  # no neuron comes before: the same in every leaf
        return both

    def lower(self, rows: list[Row], value: int, bounds: Bounds, slopes: Table) -> list[arb]:
        """Lower bounds, as balls, of forms on a value over the region."""
        total = [ZERO] * len(rows)
        pending = {value: rows}
        for current in range(value, 0, -1):
            if current not in pending:
                continue
            node, forms = self.network.nodes[current - 1], pending.pop(current)
            if node.operation.name == "relu":
                source = node.inputs[0]
                low, high = bounds[source]
                lines = slopes.get(current)
                pulled = [[_through(row, low, high, lines, total, place) for place, row in enumerate(forms)]]
            else:
                layer = self.layers[current]
                if layer.constant is not None:
                    for place, row in enumerate(forms):
                        total[place] += _product(row, layer.constant)
                pulled = [layer.transpose(forms)] * len(node.inputs)
            for source, part in zip(node.inputs, pulled, strict=True):
                pending[source] = (
                    [
                        [one + other for one, other in zip(*both, strict=True)]
                        for both in zip(pending[source], part, strict=True)
                    ]
                    if source in pending
                    else part
                )
        for place, row in enumerate(pending.get(0, [])):
            total[place] += _product(row, self.centre) - self._fall(row)
        return total

    def _fall(self, row: Row) -> arb:
        """How far a form on the input falls below its value at the centre, at most."""
        if self.scale is not None:
            row = [number * unit for number, unit in zip(row, self.scale, strict=True)]
        sizes = [abs(number) for number in row]
        if self.rooms is None:
            return self.radius * self._dual(sizes)
        rooms = [
            down if number > 0 else up if number < 0 else _most(down, up)
            for number, (down, up) in zip(row, self.rooms, strict=True)
        ]
        free = self._free(sizes, rooms)
        by_walls = ZERO
        for size, part, room in zip(sizes, free, rooms, strict=True):
            by_walls += _most(size - part, ZERO) * room
        return by_walls + self.radius * self._dual(free)

    def _dual(self, sizes: Row) -> arb:
        if self.norm == math.inf:
            return sum(sizes, ZERO)
        if self.norm == 2:
            return sum((size.abs_upper() ** 2 for size in sizes), ZERO).sqrt()
        return reduce(_most, sizes, ZERO)

    def _free(self, sizes: Row, rooms: Row) -> Row:
        """The part of each coefficient that the norm is to hold, the valid inputs holding the rest: any part is sound,
        and this one is about the best."""
        if self.norm == math.inf:
            return [ZERO] * len(sizes)
        size, room = (torch.tensor([float(ball) for ball in row], dtype=torch.float64) for row in (sizes, rooms))
        radius = float(self.radius)
        if self.norm == 1:
            order = size.argsort(descending=True)
            last = int((room[order].cumsum(0) < radius).sum())
            limit = torch.full_like(size, float(size[order[last]]) if last < len(size) else 0.0)
        else:
            walled = torch.zeros_like(size, dtype=torch.bool)
            level = 0.0
            for _ in range(WALLS):
                left = math.sqrt(max(0.0, radius * radius - float((room.square() * walled).sum())))
                level = float((size * ~walled).norm()) / left if left > 0 else 0.0
                walled |= size > level * room
            limit = level * room
        return [arb(part) for part in torch.minimum(size, limit).tolist()]


def _through(row: Row, low: Row, high: Row, slopes: list[float] | None, total: list[arb], place: int) -> Row:
    """A form on the values of ReLUs, as a smaller one on their sources, of exact numbers.

    What a coefficient's ball leaves open is charged with the most that the ReLU can make.
    """
    pulled_row = []
    for neuron, (given, below, above) in enumerate(zip(row, low, high, strict=True)):
        coefficient = given.mid()
        if not (above <= 0 or given.is_exact()):  # also where `above` is no number: then nothing is proven
            total[place] -= given.rad() * above
        if above <= 0:
            pulled = ZERO
        elif below >= 0:
            pulled = coefficient
        else:
            slope = (above / (above - below)).mid()
            slope = ZERO if slope < 0 else ONE if slope > 1 else slope
            if coefficient >= 0:
                pulled = coefficient * (slope if slopes is None else arb(min(1.0, max(0.0, slopes[neuron]))))
            else:
                pulled = coefficient * slope
                total[place] += coefficient * _most(-slope * below, (ONE - slope) * above)
        pulled_row.append(pulled)
    return pulled_row


def exact(number: Fraction) -> arb:
    """A ball that contains a rational number."""
    return arb(fmpq(number.numerator, number.denominator))


def _product(row: Row, other: Row) -> arb:
    return sum((one * two for one, two in zip(row, other, strict=True)), ZERO)


def _most(one: arb, two: arb) -> arb:
    return one.max(two)
