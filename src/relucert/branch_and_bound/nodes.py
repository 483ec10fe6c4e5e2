"""Parts of a region on which the signs of some neurons are known, and lower bounds of margins on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relucert.bounding.backward import DualVariables, bound_forms, enclose
from relucert.bounding.interval import Bounds, Interval, select
from relucert.bounding.relaxers import FAST_LIN
from relucert.network import Network, Relu
from relucert.query.property import Property
from relucert.region import Region, RegionShape
from relucert.rigor import RIGOROUS
from relucert.solvers.ascent import Climb

RATE = 0.2  # of the ascent


@dataclass(frozen=True, eq=False)
class Nodes:
    """Some nodes of the search, each a part of the region and a row of the property.

    Attributes:
        signs: 1 and -1 where a neuron is known not to be negative, not to be positive, else 0: (count, neurons).
        slopes, multipliers: What the bound was last computed with, (count, ReLUs), in float32.
        rows: Which row of the property each is about, (count,).
        names: What the record of the search calls them, (count,).
    """

    signs: Tensor
    slopes: Tensor
    multipliers: Tensor
    rows: Tensor
    names: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def pick(self, chosen: Tensor | slice) -> Nodes:
        return Nodes(*(part[chosen] for part in self._parts))

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
    return Nodes(*(torch.cat(columns) for columns in zip(*(part._parts for part in parts), strict=True)))


@dataclass(frozen=True, eq=False)
class BoundedNodes:
    """Nodes with the proven bounds of their neurons, and which of them have no point at all, (count,)."""

    nodes: Nodes
    bounds: Bounds
    empty: Tensor

    def pick(self, chosen: Tensor) -> BoundedNodes:
        return BoundedNodes(self.nodes.pick(chosen), select(self.bounds, chosen), self.empty[chosen])


class NodeBounder:
    """Bounds nodes for one question: regions of one shape around an image (size,), and a property, a batch of one."""

    def __init__(self, network: Network, centre: Tensor, shape: RegionShape, prop: Property) -> None:
        self.network = network
        self.networks = {dtype: network.cast(dtype) for dtype in (torch.float32, torch.float64)}
        self.exact = self.networks[torch.float64]
        self.centre, self.shape, self.prop = centre, shape, prop.cast(torch.float64)
        self.values = network.rectified
        self.relus = {
            value: node.inputs[0]
            for value, node in network.steps()
            if isinstance(node.operation, Relu) and value in network.ancestors((network.output,))
        }
        self._first: tuple[float, Bounds] = (-1.0, {})

    def roots(self) -> Nodes:
        """The whole region, once for every row. Slopes that are no numbers yet stand for Fast-Lin's."""
        count, sizes = self.prop.rows.shape[1], self.exact.sizes
        relus = torch.zeros(count, sum(sizes[value] for value in self.relus))
        signs = torch.zeros(count, sum(sizes[value] for value in self.values), dtype=torch.int8)
        rows = torch.arange(count)
        return Nodes(signs, torch.full_like(relus, torch.nan), relus, rows, rows.clone())

    def region(self, count: int, radius: float, dtype: torch.dtype = torch.float64) -> Region:
        which = torch.zeros(count, dtype=torch.long)
        return self.shape.around(self.centre[None].to(dtype), radius, which)

    def enclosed(self, nodes: Nodes, radius: float) -> BoundedNodes:
        """The bounds of all neurons, layer after layer, each with the signs of the ones before it: proven."""
        region, bounds = self.region(len(nodes), radius), self._before_relus(radius, len(nodes))
        empty = torch.zeros(len(nodes), dtype=torch.bool)
        for value, signs in self.by_value(nodes.signs).items():
            if value not in bounds:
                bounds[value] = enclose(self.exact, region, value, bounds, RIGOROUS)
            known = Interval(
                torch.where(signs > 0, 0.0, -torch.inf).double(), torch.where(signs < 0, 0.0, torch.inf).double()
            )
            bounds[value] = bounds[value].meet(known)
            empty |= (bounds[value].lower > bounds[value].upper).any(1)
        return BoundedNodes(nodes, bounds, empty)

    def climbed(
        self, bounded: BoundedNodes, radius: float, steps: int, ends: float, dtype: torch.dtype = torch.float32
    ) -> tuple[Nodes, Tensor]:
        """The nodes with better slopes and multipliers, and how much each unstable neuron matters: (count, neurons).

        A neuron matters as much as its relaxation's gap, times its coefficient, lowers the bound.
        """
        nodes = bounded.nodes
        bounds = {value: interval.cast(dtype) for value, interval in bounded.bounds.items()}
        slopes = {}
        for value, last in self.by_relu(nodes.slopes).items():
            start = FAST_LIN(bounded.bounds[self.relus[value]], RIGOROUS).slope_below
            slopes[value] = torch.where(last.isnan(), start, last.double()).to(dtype)[:, None]
        multipliers = {value: last.to(dtype)[:, None] for value, last in self.by_relu(nodes.multipliers).items()}
        forms = self.prop.rows[0, nodes.rows][:, None].to(dtype)
        offsets = self.prop.offsets[0, nodes.rows][:, None].to(dtype)
        climb = Climb(
            self.networks[dtype], self.region(len(nodes), radius, dtype), forms, self.exact.output, bounds,
            DualVariables(slopes, multipliers), offsets,
        )  # fmt: skip
        climb.run(steps, RATE, ends, enough=0.0)
        better = replace(
            nodes,
            slopes=_flat(climb.duals.slopes, nodes.slopes),
            multipliers=_flat(climb.duals.multipliers, nodes.multipliers),
        )
        return better, self._weights(climb.coefficients(), bounded.bounds, len(nodes))

    def least(self, bounded: BoundedNodes, nodes: Nodes, radius: float) -> Tensor:
        """The lower bounds of the nodes' rows, proven, with these nodes' slopes and multipliers: (count,)."""
        duals = DualVariables(
            {value: table.double()[:, None].nan_to_num(0) for value, table in self.by_relu(nodes.slopes).items()},
            {value: table.double()[:, None] for value, table in self.by_relu(nodes.multipliers).items()},
        )
        forms, offsets = self.prop.rows[0, nodes.rows][:, None], self.prop.offsets[0, nodes.rows][:, None]
        region = self.region(len(nodes), radius)
        return bound_forms(
            self.exact, region, forms, self.exact.output, bounded.bounds, RIGOROUS, duals=duals, offsets=offsets
        ).lower.squeeze(1)

    def by_value(self, columns: Tensor) -> dict[int, Tensor]:
        """Columns, one for each neuron, by the value that feeds its ReLU."""
        return _split(columns, self.values, self.exact.sizes)

    def by_relu(self, columns: Tensor) -> dict[int, Tensor]:
        """Columns, one for each activation, by the value of its ReLU."""
        return _split(columns, tuple(self.relus), self.exact.sizes)

    def _before_relus(self, radius: float, count: int) -> Bounds:
        """The neurons that no other neuron comes before: the same for all nodes, so bounded once per radius."""
        if self._first[0] != radius:
            region = self.region(1, radius)
            first = (value for value in self.values if not self.exact.relu_depths[value])
            self._first = radius, {value: enclose(self.exact, region, value, {}, RIGOROUS) for value in first}
        return {
            value: Interval(*(side.expand(count, -1) for side in interval))
            for value, interval in self._first[1].items()
        }

    def _weights(self, coefficients: dict[int, Tensor], bounds: Bounds, count: int) -> Tensor:
        weights = {value: torch.zeros_like(bounds[value].lower) for value in self.values}
        for value, source in self.relus.items():
            lower, upper = bounds[source]
            unstable = bounds[source].unstable
            gap = torch.where(unstable, -lower * upper / torch.where(unstable, upper - lower, 1), 0)
            weights[source] += gap * (coefficients[value][:, 0].double().abs() + torch.finfo(torch.float32).tiny)
        if not self.values:
            return self.prop.rows.new_zeros(count, 0)
        return torch.cat([weights[value] for value in self.values], 1)


def _split(columns: Tensor, values: tuple[int, ...], sizes: tuple[int, ...]) -> dict[int, Tensor]:
    return dict(zip(values, columns.split([sizes[value] for value in values], 1), strict=True)) if values else {}


def _flat(tables: dict[int, Tensor], otherwise: Tensor) -> Tensor:
    return torch.cat([table[:, 0].float() for table in tables.values()], 1) if tables else otherwise
