"""A query as problems that every method takes: the outputs of a network must stay positive in a region.

Each violation becomes one margin, appended to the network: all of `a_j y <= b_j` are met where
`max_j (a_j y - b_j) <= 0`, and `max(p, q) = p + relu(q - p)`. Boxes are rounded outwards and bounds upwards: where the
margins are positive, no violation is possible. Strict constraints are met at fewer points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain, groupby
from math import inf, isfinite, prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from relucert.arithmetic.box import Box
from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region, RegionShape
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.interval_propagation import interval_bounds
from relucert.common.numbers import float_above, float_below
from relucert.errors import InputError
from relucert.network import INPUT, Add, Affine, IndexMap, Layer, Linear, Network, Node, Relu, Reshape
from relucert.query.problem import Problem
from relucert.verification.specification.violations import MET_EVERYWHERE, Constraint, Violation

MOST_CONSTRAINTS = 512  # of one problem
LEAST_RADIUS = 2.0**-1000  # where the box is one point


class BoxViolations(NamedTuple):
    """Violations that share a box, and the problem whose rows, one per violation, exclude them by staying positive.

    The problem is a batch of one, about the network with the margins of the violations as outputs.
    """

    violations: tuple[Violation, ...]
    problem: Problem

    def only(self, rows: Sequence[int]) -> BoxViolations:
        """Some of the violations."""
        return BoxViolations(tuple(self.violations[row] for row in rows), self.problem.narrow(torch.tensor([rows])))


def boxes_of(network: Network, violations: Sequence[Violation]) -> Iterator[BoxViolations]:
    """Violations box by box: all are excluded where the rows of all problems stay positive."""
    for _, group in groupby(violations, lambda violation: (id(violation.low), id(violation.high))):
        same_box: list[Violation] = []
        for violation in group:
            if sum(max(1, len(other.constraints)) for other in (*same_box, violation)) > MOST_CONSTRAINTS and same_box:
                yield _excluding(network, same_box)
                same_box = []
            same_box.append(violation)
        yield _excluding(network, same_box)


def _excluding(network: Network, violations: Sequence[Violation]) -> BoxViolations:
    boxes = outer_boxes(violations[:1])
    box = Box(boxes.low[0], boxes.high[0])
    centre = box.low + (box.high - box.low) / 2
    radius = float(RIGOROUS.ceil(torch.maximum(box.high - centre, centre - box.low)).max())
    shape = RegionShape(Norm(inf), box)
    margins = _with_margins(network, violations, shape.around(centre[None], radius))
    count = len(violations)
    prop = Property(torch.eye(count, dtype=torch.float64)[None], torch.zeros(1, count, dtype=torch.float64))
    region = shape.around(centre[None], max(radius, LEAST_RADIUS))
    return BoxViolations(tuple(violations), Problem(margins, region, prop))


def outer_boxes(violations: Sequence[Violation]) -> Box:
    """The smallest boxes of float64 numbers that contain those of violations: (violations, inputs)."""
    low = _rounded([violation.low for violation in violations], float_below)
    return Box(low, _rounded([violation.high for violation in violations], float_above))


def _rounded(ends: Sequence[Sequence[Fraction]], rounding: Callable[[Fraction], float]) -> Tensor:
    """Exact numbers in float64. Long files repeat few numbers, which are one object each: every one is rounded once."""
    numbers = list(chain.from_iterable(ends))
    objects = np.fromiter(map(id, numbers), dtype=np.int64, count=len(numbers))
    _, first, places = np.unique(objects, return_index=True, return_inverse=True)
    rounded = torch.tensor([rounding(numbers[index]) for index in first.tolist()], dtype=torch.float64)
    return rounded[torch.from_numpy(places.reshape(-1))].reshape(len(ends), -1)


class _Extension:
    """A network under extension: its nodes so far. What is added belongs to the question: nobody evaluates it."""

    def __init__(self, network: Network) -> None:
        self.network, self.nodes = network, list(network.nodes)

    def append(self, operation: Layer, *inputs: int) -> int:
        self.nodes.append(Node(operation, inputs, roundings=0 if isinstance(operation, Affine) else None))
        return len(self.nodes)

    def linear(self, value: int, weight: Tensor, bias: Tensor | None = None) -> int:
        return self.append(Linear(weight, weight.new_zeros(len(weight)) if bias is None else bias), value)

    def pick(self, value: int, indices: list[int], size: int) -> int:
        """Some coordinates of a value, -1 for zero."""
        return self.append(IndexMap.of(torch.tensor(indices), (size,)), value)

    def finish(self) -> Network:
        network = Network(self.network.input_shape, tuple(self.nodes), self.network.name)
        return replace(network, inference=self.network.inference)


def _with_margins(network: Network, violations: Sequence[Violation], region: Region) -> Network:
    """The network that gives one margin per violation."""
    groups = [violation.constraints or (MET_EVERYWHERE,) for violation in violations]
    constraints = [constraint for group in groups for constraint in group]
    extension = _Extension(network)
    rows, input_rows, bias = _rows(network, constraints, region)
    value = extension.linear(network.output, rows, bias)
    if bool(input_rows.any()):
        shape = network.input_shape
        flat = INPUT if len(shape) == 1 else extension.append(Reshape(shape, (prod(shape),)), INPUT)
        value = extension.append(Add(), value, extension.linear(flat, input_rows))
    counts = [len(group) for group in groups]
    while max(counts) > 1:
        value = _halve(extension, value, counts)
        counts = [(count + 1) // 2 for count in counts]
    return extension.finish()


def _halve(extension: _Extension, value: int, counts: Sequence[int]) -> int:
    """The larger of every two neighbouring numbers of a group; an odd number at its end stays as it is."""
    kept: list[int] = []
    pairs: list[tuple[int, int]] = []
    raised: list[int] = []
    first = 0
    for count in counts:
        for index in range(first, first + count, 2):
            kept.append(index)
            raised.append(len(pairs) if index + 1 < first + count else -1)
            pairs += [(index, index + 1)] if index + 1 < first + count else []
        first += count
    differences = torch.zeros(len(pairs), first, dtype=torch.float64)
    for row, (left, right) in enumerate(pairs):
        differences[row, left], differences[row, right] = -1, 1
    rises = extension.append(Relu(), extension.linear(value, differences))
    base = extension.pick(value, kept, first)
    return extension.append(Add(), base, extension.pick(rises, raised, len(pairs)))


def _rows(network: Network, constraints: Sequence[Constraint], region: Region) -> tuple[Tensor, Tensor, Tensor]:
    """Coefficients on outputs and inputs, (constraints, size) each, and constants, never above the exact margins."""
    rows = torch.zeros(len(constraints), network.classes, dtype=torch.float64)
    input_rows = torch.zeros(len(constraints), network.sizes[INPUT], dtype=torch.float64)
    bias = torch.zeros(len(constraints), dtype=torch.float64)
    for row, constraint in enumerate(constraints):
        scale, slack = constraint.scale, Fraction(0)
        for table, terms, value in ((rows, constraint.outputs, network.output), (input_rows, constraint.inputs, INPUT)):
            for index, number in terms:
                rounded = float(scale * number)
                table[row, index] = rounded
                if (lost := abs(scale * number - Fraction(rounded))) > 0:
                    slack += lost * _largest(network, region, value, index)
        bias[row] = float_below(-scale * constraint.bound - slack)
    if not bool(bias.isfinite().all()):
        raise InputError("a constraint of the property has a bound beyond the numbers of float64")
    return rows, input_rows, bias


def _largest(network: Network, region: Region, value: int, index: int) -> Fraction:
    """The largest absolute value of one coordinate, at most, by interval arithmetic."""
    exact = network.cast(torch.float64)
    interval = interval_bounds(exact, region, RIGOROUS, (value,))[value]
    largest = float(torch.stack(interval).abs().max(0).values[0, index])
    if not isfinite(largest):
        raise InputError("a coefficient of the property has too many digits for outputs without known bounds")
    return Fraction(largest)
