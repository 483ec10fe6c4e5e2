"""Forward linear bound propagation: every value lies between two linear functions of the input.

This is cheap where inputs are few.

A region that is a box is `x = middle + half * e` with every coordinate of `e` in [-1, 1]. Each neuron has a lower and
an upper linear function of `e`. An affine operation with the matrix W maps their mean by W and half their difference
by |W|; an activation maps the lower one by its lower line, the upper one by its upper line.

The functions have coefficients on inputs that move. What others may add, such as a number that is known up to its
rounding, is part of the slack: a fixed decimal that no float64 is has a box that is a few roundings wide.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import assert_never

from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.interval import Interval, size_within
from relucert.bounding.noise import noise, rounds
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import Relaxation
from relucert.common.deadline import check_time
from relucert.network import INPUT, Activation, Affine, FlatAffine


class Lines(NamedTuple):
    """Linear functions of `e` below and above a value, which may be missed by the slack.

    Attributes:
        lower, upper: Coefficients on the moving inputs and, last, constants: (batch, moving + 1, size).
        slack: (batch, size), none negative.
    """

    lower: Tensor
    upper: Tensor
    slack: Tensor

    @property
    def magnitude(self) -> Tensor:
        """The largest absolute value of both functions, at most, up to rounding: (batch, size)."""
        return torch.maximum(self.lower.abs().sum(1), self.upper.abs().sum(1))

    @property
    def shares(self) -> Tensor:
        """How much of a neuron's range is due to each moving input, the shares of one neuron adding up to 1 or being 0:
        (batch, moving, size)."""
        return shares_of(self.lower[:, :-1].abs() + self.upper[:, :-1].abs())

    def interval(self, arithmetic: Arithmetic) -> Interval:
        """Concretises the two functions: the bounds that follow, (batch, size) each."""
        terms = self.lower.shape[1] + 2
        falls, rises = (
            arithmetic.above(lines[:, :-1].abs().sum(1) + self.slack, terms) for lines in (self.lower, self.upper)
        )
        return Interval(arithmetic.floor(self.lower[:, -1] - falls), arithmetic.ceil(self.upper[:, -1] + rises))


class ForwardLines:
    """The lines of a network's values over regions that are boxes, computed when they are needed.

    The path must have bounds of every pre-activation before a value when its lines are asked for.
    """

    def __init__(self, path: ReferencePath, moving: Tensor | None = None) -> None:
        """moving: the inputs that lines have coefficients on, by default all that move in some box by more than their
        rounding; with a rigorous arithmetic the slack holds what others add."""
        self.path, self.network, self.arithmetic = path, path.network, path.arithmetic
        self.inputs = self.network.sizes[INPUT]
        self._lines: dict[int, Lines] = {}
        self.moving = path.region.moving_inputs if moving is None else moving

    def of(self, value: int) -> Lines:
        if value not in self._lines:
            self._lines[value] = self._compute(value)
        return self._lines[value]

    def shares(self, value: int) -> Tensor:
        """How much of each neuron's range is due to each moving input: (batch, moving, size)."""
        return self.of(value).shares

    def _compute(self, value: int) -> Lines:
        check_time()
        if value == INPUT:
            return self._input()
        node = self.network.node(value)
        sources = [self.of(source) for source in node.inputs]
        if isinstance(node.operation, Affine):
            lines = self._affine(FlatAffine.of(self.network, value), sources)
            if not rounds(self.network, value):
                return lines
            sizes = [self._size(source, operand) for source, operand in zip(node.inputs, sources, strict=True)]
            added = noise(self.network, value, sizes, self.arithmetic)
            return lines._replace(slack=self.arithmetic.above(lines.slack + added, 1))
        if isinstance(node.operation, Activation):
            return self._activation(self.path.lines(value), sources[0])
        assert_never(node.operation)

    def _input(self) -> Lines:
        half, reference = self.path.max_deviation(INPUT), self.path.reference(INPUT)
        middle = half.new_zeros(len(half), len(self.moving) + 1, self.inputs)
        middle[:, torch.arange(len(self.moving)), self.moving] = half[:, self.moving]
        middle[:, -1] = reference
        return Lines(middle, middle, half.index_fill(1, self.moving, 0))

    def _size(self, value: int, lines: Lines) -> Tensor:
        """How large a value may be in absolute value: (batch, size)."""
        size = size_within(self.network, self.path.bounds, value, self.arithmetic)
        return self.arithmetic.above(lines.magnitude + lines.slack, self.inputs + 4) if size is None else size

    def _affine(self, affine: FlatAffine, sources: list[Lines]) -> Lines:
        mean = affine.linear(*((lines.lower + lines.upper) / 2 for lines in sources))
        half = affine.absolute(*((lines.upper - lines.lower) / 2 for lines in sources))
        lower, upper = mean - half, mean + half
        if affine.constant is not None:
            lower[:, -1] += affine.constant
            upper[:, -1] += affine.constant
        if not self.arithmetic.rigorous:
            return Lines(lower, upper, torch.zeros_like(lower[:, 0]))
        terms, inputs = affine.operation.terms, lower.shape[1]
        gamma = self.arithmetic.gamma(terms + 8)
        missed = (self.arithmetic.above(lines.slack + gamma * 2 * lines.magnitude, inputs + 4) for lines in sources)
        slack = affine.plus_constant(affine.magnitude(*missed), gamma)
        slack = self.arithmetic.above(slack, 2 * terms + 14)
        usable = (lower.isfinite() & upper.isfinite()).all(1)
        return Lines(lower, upper, torch.where(usable, slack, torch.inf))

    def _activation(self, relaxation: Relaxation, source: Lines) -> Lines:
        lower = _line(relaxation.slope_below, source.lower, source.upper)
        upper = _line(relaxation.slope_above, source.upper, source.lower)
        if relaxation.low is not None:
            lower[:, -1] += relaxation.low
        upper[:, -1] += relaxation.high
        slope = torch.maximum(relaxation.slope_below.abs(), relaxation.slope_above.abs())
        slack = torch.where(slope == 0, 0, source.slack * slope.clamp(min=1))
        if self.arithmetic.rigorous:
            offsets = relaxation.high.abs() + (0 if relaxation.low is None else relaxation.low.abs())
            sizes = torch.where(slope == 0, 0, source.magnitude * slope.clamp(min=1)) + offsets
            exact = (slope == 0) & (offsets == 0)
            rounded = self.arithmetic.above(slack + self.arithmetic.gamma(4) * sizes, lower.shape[1] + 8)
            slack = torch.where(exact, 0, rounded)
        return Lines(lower, upper, torch.where(slack.isnan(), torch.inf, slack))


def shares_of(slopes: Tensor) -> Tensor:
    """Absolute coefficients on inputs, (batch, inputs, size), as shares of the sum for each neuron."""
    sizes = slopes.abs()
    total = sizes.sum(1, keepdim=True)
    return sizes / torch.where(total > 0, total, 1)


def _line(slope: Tensor, near: Tensor, far: Tensor) -> Tensor:
    """A slope, (batch, size), times `near` where the slope is positive, times `far` where it is negative.

    It is 0 where the slope is 0, even where the functions are not finite.
    """
    met = torch.where((slope < 0)[:, None], far, near) if bool((slope < 0).any()) else near
    return torch.where((slope == 0)[:, None], 0, met * slope[:, None])
