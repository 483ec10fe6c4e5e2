"""Products with a fixed number, in a network whose products are differences of squares, as factors that they are.

A product of two values is stored as `(t + q)^2 - (t - q)^2`, relaxed square by square. In the part of a network that
moves (`bounding/moving_part.py`) one of the two may be a number that is fixed in every box, such as a mask or the count
that a mean is divided by. Then, t being what moves and c, c' what fixed numbers add to it,

    (t + c)^2 - (t + c')^2 = s t + d,    s = 2 (c - c'),    d = (c - c') (c + c'),

which needs no relaxation. Boxes with the same s, up to rounding, share a network in which s is a stored factor; by how
much s itself may differ from it, times the largest |t| in a box, widens d.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.box import Box
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.interval import Centred, Interval
from relucert.bounding.interval_propagation import interval_bounds
from relucert.bounding.moving_part import MovingPart
from relucert.network import INPUT, Add, IndexMap, Network, Node, Power, Scale
from relucert.network.graph import needed_nodes

DIGITS = 36  # of a factor in binary: factors that differ by less are one


class PartOfBoxes(NamedTuple):
    """What moves in some of the boxes, by their numbers, (boxes,)."""

    part: MovingPart
    members: Tensor


class _Product(NamedTuple):
    """A difference of squares in a network of what moves.

    Attributes:
        value: The difference.
        moving: t.
        added: The values that are what is added to it, c and c': consecutive inputs.
    """

    value: int
    moving: int
    added: tuple[int, int]


def with_factors(part: MovingPart, boxes: Box) -> Iterator[PartOfBoxes]:
    """What moves in boxes, (boxes, inputs) for each end, with factors in the place of products with fixed numbers.

    Boxes in which some fixed number is not finite, such as the inverse of 0, are left out.
    """
    whole = _where_finite(part, torch.arange(len(boxes.low)))
    part, members = whole
    products = list(_products(part.network))
    if not products or not len(members):
        yield whole
        return
    factors = torch.cat([_factor(part, product) for product in products], 1)
    distinct, which = torch.unique(factors, dim=0, return_inverse=True)
    for number, row in enumerate(distinct):
        some = (which == number).nonzero().flatten()
        narrowed, of_boxes = replace(part, fixed=part.fixed.select(some)), members[some]
        sizes = [part.network.sizes[product.value] for product in products]
        builder = _Builder(narrowed, Box(boxes.low[of_boxes], boxes.high[of_boxes]))
        for product, factor in zip(products, row.split(sizes), strict=True):
            builder.replace(product, factor)
        yield _where_finite(builder.finish(), of_boxes)


def _where_finite(part: MovingPart, members: Tensor) -> PartOfBoxes:
    """Those of some boxes, (boxes,), in which all fixed numbers are finite."""
    finite = part.finite.nonzero().flatten()
    return PartOfBoxes(replace(part, fixed=part.fixed.select(finite)), members[finite])


def _products(network: Network) -> Iterator[_Product]:
    """The differences of squares of one moving value with fixed numbers added, in the order of the graph."""
    users = Counter(source for node in network.nodes for source in node.inputs)
    for value, node in network.steps():
        if not isinstance(node.operation, Add) or INPUT in node.inputs:
            continue
        first, negated = node.inputs
        negative = network.node(negated).operation
        if not isinstance(negative, Scale) or negative.divide or not bool((negative.factor == -1).all()):
            continue
        second = network.source(negated)
        sums = [network.source(square) for square in (first, second) if _is_square(network, square)]
        if len(sums) < 2 or INPUT in sums or any(users[source] > 1 for source in (first, negated, second, *sums)):
            continue
        terms = [network.node(source).inputs for source in sums if isinstance(network.node(source).operation, Add)]
        if len(terms) == 2 and terms[0][0] == terms[1][0] and all(_is_fixed(network, added) for _, added in terms):
            yield _Product(value, terms[0][0], (terms[0][1], terms[1][1]))


def _is_square(network: Network, value: int) -> bool:
    operation = None if value == INPUT else network.node(value).operation
    return isinstance(operation, Power) and operation.exponent == 2


def _is_fixed(network: Network, value: int) -> bool:
    """Whether a value is some fixed numbers; the moving inputs are the first value."""
    return value > 1 and network.node(value).inputs == (INPUT,)


def _columns(network: Network, value: int) -> Tensor:
    """Which inputs a value is that takes them from the input."""
    operation = network.node(value).operation
    assert isinstance(operation, IndexMap)
    return torch.tensor(operation.indices)


def _numbers(part: MovingPart, value: int) -> Interval:
    """A value that is some fixed numbers, in every box."""
    return part.fixed.pick(_columns(part.network, value) - len(part.inputs))


def _factor(part: MovingPart, product: _Product) -> Tensor:
    """About s, for every box: (boxes, size)."""
    first, second = (_numbers(part, added).middle for added in product.added)
    mantissa, exponent = torch.frexp(2 * (first - second))
    return torch.ldexp((mantissa * 2.0**DIGITS).round() / 2.0**DIGITS, exponent)


@dataclass(eq=False)
class _Builder:
    """Replaces products of a network of what moves in some boxes, in the order of the graph."""

    part: MovingPart
    boxes: Box

    def replace(self, product: _Product, factor: Tensor) -> None:
        """Puts `factor * t + d` in the place of a difference of squares; d takes the place of c among the inputs."""
        network, numbers = self.part.network, [_numbers(self.part, added) for added in product.added]
        largest = self._largest(product.moving)
        first, second = (interval.middle for interval in numbers)
        first_radius, second_radius = (interval.half_width for interval in numbers)
        off = (2 * (first - second) - factor).abs() + 2 * (first_radius + second_radius)
        size = first.abs() + first_radius + second.abs() + second_radius
        middle = (first - second) * (first + second)
        radius = 2 * size * (first_radius + second_radius) + off * largest
        rounding = RIGOROUS.gamma(8) * (size.square() + size * largest)
        radius = RIGOROUS.above(radius + rounding, 12)
        columns = _columns(network, product.added[0]) - len(self.part.inputs)
        fixed = self.part.fixed.replaced(columns, Centred(middle, radius).interval(RIGOROUS))
        nodes = list(network.nodes)
        scaled = network.source(network.node(product.value).inputs[0])  # the sum t + c, which is not needed any more
        nodes[scaled - 1] = Node(Scale(factor, divide=False), (product.moving,))
        nodes[product.value - 1] = Node(Add(), (scaled, product.added[0]))
        self.part = replace(self.part, network=replace(network, nodes=tuple(nodes)), fixed=fixed)

    def _largest(self, value: int) -> Tensor:
        """The largest absolute values of a moving value in the boxes: (boxes, size)."""
        low, high = (
            torch.cat([ends[:, self.part.inputs], fixed], 1)
            for ends, fixed in zip(self.boxes, self.part.fixed, strict=True)
        )
        finite, size = self.part.finite, self.part.network.sizes[value]  # numbers may have overflowed on the way
        region = Region.boxes(low[finite], high[finite])
        bounds = interval_bounds(self.part.network, region, RIGOROUS, (value,))[value]
        largest = low.new_full((len(low), size), torch.inf)
        largest[finite] = bounds.largest
        return largest

    def finish(self) -> MovingPart:
        """The part, without the nodes and the fixed numbers that nothing depends on any more."""
        network, moving = self.part.network, len(self.part.inputs)
        nodes = needed_nodes(network.nodes)
        picks = {
            number: torch.tensor(node.operation.indices)
            for number, node in enumerate(nodes)
            if node.inputs == (INPUT,) and isinstance(node.operation, IndexMap)
        }
        used = torch.zeros(network.sizes[INPUT] + 1, dtype=torch.bool)  # the last one stands for zero
        used[:moving] = True
        used[torch.cat(list(picks.values()))] = True
        columns = used[:-1].nonzero().flatten()
        places = torch.full((len(used),), -1)
        places[columns] = torch.arange(len(columns))
        for number, indices in picks.items():
            nodes[number] = Node(IndexMap.of(places[indices], (len(columns),)), (INPUT,))
        fixed = self.part.fixed.pick(columns[moving:] - moving)
        return replace(self.part, network=Network((len(columns),), tuple(nodes), network.name), fixed=fixed)
