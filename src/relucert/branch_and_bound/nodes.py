"""Parts of a ball on which the signs of some neurons are known, and lower bounds of margins on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relucert.bounding.backward import enclose, minimise
from relucert.bounding.forward import Bounds
from relucert.bounding.relaxers import Interval, parallel
from relucert.network import Network, Relu
from relucert.norm import Norm
from relucert.region import Ball
from relucert.rigor import RIGOROUS
from relucert.solvers.ascent import Climb

RATE = 0.2  # of the ascent


@dataclass(frozen=True, eq=False)
class Nodes:
    """Some nodes of the search, each a part of the ball and a rival.

    signs: 1 and -1 where a neuron is known not to be negative, not to be positive, else 0: (count, neurons).
    slopes, multipliers: what the bound was last found with, (count, ReLUs), in float32.
    rows: which margin each is about; names: what the record of the search calls them; both (count,).
    """

    signs: Tensor
    slopes: Tensor
    multipliers: Tensor
    rows: Tensor
    names: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def pick(self, chosen: Tensor | slice) -> Nodes:
        return Nodes(*(own[chosen] for own in self._parts))

    def split(self, neurons: Tensor, names: Tensor) -> Nodes:
        """Two nodes of each, by the sign of one neuron each, (count,): all the positive halves, then the others."""
        halves = []
        for sign in (1, -1):
            signs = self.signs.clone()
            signs[torch.arange(len(self)), neurons] = sign
            halves.append(replace(self, signs=signs))
        return replace(join(halves), names=names)

    @property
    def _parts(self) -> tuple[Tensor, ...]:
        return self.signs, self.slopes, self.multipliers, self.rows, self.names


def join(parts: list[Nodes]) -> Nodes:
    return Nodes(*(torch.cat(own) for own in zip(*(part._parts for part in parts), strict=True)))


@dataclass(frozen=True, eq=False)
class Bounded:
    """Nodes with the proven bounds of their neurons, and which of them have no point at all, (count,)."""

    nodes: Nodes
    bounds: Bounds
    empty: Tensor

    def pick(self, chosen: Tensor) -> Bounded:
        bounds = {value: Interval(own.lower[chosen], own.upper[chosen]) for value, own in self.bounds.items()}
        return Bounded(self.nodes.pick(chosen), bounds, self.empty[chosen])


class Region:
    """One question: an image (size,), what moves it, and the margins, (rows, classes), that may vanish."""

    def __init__(
        self, network: Network, centre: Tensor, norm: Norm, box: tuple[float, float] | None, margins: Tensor
    ) -> None:
        self.networks = {kind: network.cast(kind) for kind in (torch.float32, torch.float64)}
        self.exact = self.networks[torch.float64]
        self.centre, self.norm, self.box, self.margins = centre, norm, box, margins.double()
        self.values = network.rectified
        self.relus = {
            made: node.inputs[0]
            for made, node in network.steps()
            if isinstance(node.operation, Relu) and made in network.ancestors((network.output,))
        }
        self._first: tuple[float, Bounds] = (-1.0, {})

    def roots(self) -> Nodes:
        """The whole ball, once for every margin. Slopes that are no numbers yet stand for Fast-Lin's."""
        count, sizes = len(self.margins), self.exact.sizes
        relus = torch.zeros(count, sum(sizes[made] for made in self.relus))
        signs = torch.zeros(count, sum(sizes[value] for value in self.values), dtype=torch.int8)
        rows = torch.arange(count)
        return Nodes(signs, torch.full_like(relus, torch.nan), relus, rows, rows.clone())

    def enclosed(self, nodes: Nodes, radius: float) -> Bounded:
        """The bounds of all neurons, layer after layer, each with the signs of the ones before it: proven."""
        ball, bounds = self._ball(len(nodes), radius, torch.float64), self._before_relus(radius, len(nodes))
        empty = torch.zeros(len(nodes), dtype=torch.bool)
        for value, signs in self.by_value(nodes.signs).items():
            if value not in bounds:
                bounds[value] = enclose(self.exact, ball, value, bounds, parallel, RIGOROUS)
            known = Interval(
                torch.where(signs > 0, 0.0, -torch.inf).double(), torch.where(signs < 0, 0.0, torch.inf).double()
            )
            bounds[value] = bounds[value].meet(known)
            empty |= (bounds[value].lower > bounds[value].upper).any(1)
        return Bounded(nodes, bounds, empty)

    def climbed(
        self, held: Bounded, radius: float, steps: int, ends: float, kind: torch.dtype = torch.float32
    ) -> tuple[Nodes, Tensor]:
        """The nodes with better slopes and multipliers, and how much each undecided neuron matters: (count, neurons).

        A neuron matters as much as its relaxation's gap, times its coefficient, lowers the bound.
        """
        nodes = held.nodes
        bounds = {value: Interval(*(side.to(kind) for side in own)) for value, own in held.bounds.items()}
        slopes = {}
        for made, own in self.by_relu(nodes.slopes).items():
            start = parallel(held.bounds[self.relus[made]], RIGOROUS).slope_below
            slopes[made] = torch.where(own.isnan(), start, own.double()).to(kind)[:, None]
        multipliers = {made: own.to(kind)[:, None] for made, own in self.by_relu(nodes.multipliers).items()}
        forms = self.margins[nodes.rows][:, None].to(kind)
        network = self.networks[kind]
        climb = Climb(network, self._ball(len(nodes), radius, kind), forms, network.output, bounds, slopes, multipliers)
        climb.run(steps, RATE, ends, enough=0.0)
        better = replace(
            nodes, slopes=_flat(climb.slopes, nodes.slopes), multipliers=_flat(climb.multipliers, nodes.multipliers)
        )
        return better, self._weights(climb.coefficients(), held.bounds)

    def least(self, held: Bounded, nodes: Nodes, radius: float) -> Tensor:
        """The margins' lower bounds, proven, with these nodes' slopes and multipliers: (count,)."""
        slopes = {made: own.double()[:, None].nan_to_num(0) for made, own in self.by_relu(nodes.slopes).items()}
        multipliers = {made: own.double()[:, None] for made, own in self.by_relu(nodes.multipliers).items()}
        forms, ball = self.margins[nodes.rows][:, None], self._ball(len(nodes), radius, torch.float64)
        return minimise(
            self.exact, ball, forms, self.exact.output, held.bounds, parallel, RIGOROUS, slopes, multipliers
        ).squeeze(1)

    def by_value(self, columns: Tensor) -> dict[int, Tensor]:
        """Columns, a neuron each, by the value that feeds its ReLU."""
        return _split(columns, self.values, self.exact.sizes)

    def by_relu(self, columns: Tensor) -> dict[int, Tensor]:
        """Columns, one each of what ReLUs make, by the value they make."""
        return _split(columns, tuple(self.relus), self.exact.sizes)

    def _ball(self, count: int, radius: float, kind: torch.dtype) -> Ball:
        which = torch.zeros(count, dtype=torch.long)
        return Ball(self.centre[None].to(kind), torch.full((count,), radius, dtype=kind), self.norm, which, self.box)

    def _before_relus(self, radius: float, count: int) -> Bounds:
        """The neurons that no other neuron comes before: the same for all nodes, so bounded once a radius."""
        if self._first[0] != radius:
            ball, found = self._ball(1, radius, torch.float64), {}
            for value in self.values:
                if not self.exact.relu_depths[value]:
                    found[value] = enclose(self.exact, ball, value, {}, parallel, RIGOROUS)
            self._first = radius, found
        return {value: Interval(*(side.expand(count, -1) for side in own)) for value, own in self._first[1].items()}

    def _weights(self, met: dict[int, Tensor], bounds: Bounds) -> Tensor:
        weights = {value: torch.zeros_like(bounds[value].lower) for value in self.values}
        for made, source in self.relus.items():
            lower, upper = bounds[source]
            undecided = bounds[source].undecided
            gap = torch.where(undecided, -lower * upper / torch.where(undecided, upper - lower, 1), 0)
            weights[source] += gap * (met[made][:, 0].double().abs() + torch.finfo(torch.float32).tiny)
        return torch.cat([weights[value] for value in self.values], 1) if self.values else torch.zeros(len(met), 0)


def _split(columns: Tensor, values: tuple[int, ...], sizes: tuple[int, ...]) -> dict[int, Tensor]:
    return dict(zip(values, columns.split([sizes[value] for value in values], 1), strict=True)) if values else {}


def _flat(tables: dict[int, Tensor], otherwise: Tensor) -> Tensor:
    return torch.cat([own[:, 0].float() for own in tables.values()], 1) if tables else otherwise
