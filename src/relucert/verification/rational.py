"""A network's outputs at one point, in rational arithmetic: no rounding at all.

Numbers are Python's own integers, with one denominator for all numbers of a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from relucert.common.deadline import check_time
from relucert.network import (
    Add,
    Convolution,
    IndexMap,
    Linear,
    Network,
    Operation,
    Relu,
    Reshape,
    Scale,
    Shift,
)

Numbers = NDArray[np.object_]
MOST_WORK = 20_000_000  # multiplications of one evaluation
SPEED = 3e6  # of them a second, about


@dataclass(frozen=True)
class Rationals:
    """An array of whole numbers over one denominator."""

    numerators: Numbers
    denominator: int

    @classmethod
    def of(cls, numbers: Sequence[Fraction], shape: Sequence[int]) -> Rationals:
        denominator = math.lcm(*(number.denominator for number in numbers))
        scaled = [number.numerator * (denominator // number.denominator) for number in numbers]
        return cls(np.array(scaled, dtype=object).reshape(tuple(shape)), denominator)

    @classmethod
    def stored(cls, tensor: Tensor) -> Rationals:
        """The numbers of a tensor as they are stored, with its shape."""
        return cls.of([Fraction(number) for number in tensor.double().flatten().tolist()], tensor.shape)

    def map(self, function: Callable[[Numbers], Any]) -> Rationals:
        return Rationals(function(self.numerators), self.denominator)

    def plus(self, other: Rationals) -> Rationals:
        denominator = math.lcm(self.denominator, other.denominator)
        one, two = (number.numerators * (denominator // number.denominator) for number in (self, other))
        return Rationals(one + two, denominator)

    def times(self, other: Rationals) -> Rationals:
        return Rationals(self.numerators * other.numerators, self.denominator * other.denominator)

    def fractions(self) -> list[Fraction]:
        return [Fraction(int(number), self.denominator) for number in self.numerators.flatten()]


def outputs_at(network: Network, point: Sequence[Fraction]) -> list[Fraction] | None:
    """The true outputs at a point, one number per input; None for a network that is too large, or not rational."""
    work = sum(getattr(node.operation, "work", 0) for node in network.nodes)
    if work > MOST_WORK or any(type(node.operation) not in RULES for node in network.nodes):
        return None
    values = [Rationals.of(point, network.input_shape)]
    for node in network.nodes:
        check_time(getattr(node.operation, "work", 0) / SPEED)
        values.append(RULES[type(node.operation)](node.operation, [values[source] for source in node.inputs]))
    return values[-1].fractions()


def _linear(operation: Any, inputs: list[Rationals]) -> Rationals:
    weight = Rationals.stored(operation.weight)
    product = Rationals(weight.numerators @ inputs[0].numerators, weight.denominator * inputs[0].denominator)
    return product.plus(Rationals.stored(operation.bias))


def _convolution(operation: Any, inputs: list[Rationals]) -> Rationals:
    top, left, bottom, right = operation.padding
    weight, (image, denominator) = Rationals.stored(operation.weight), (inputs[0].numerators, inputs[0].denominator)
    _, height, width = image.shape
    padded = np.full((len(image), top + height + bottom, left + width + right), 0, dtype=object)
    padded[:, top : top + height, left : left + width] = image
    (tall, wide), (row_step, column_step) = operation.weight.shape[2:], operation.dilation
    extent = row_step * (tall - 1) + 1, column_step * (wide - 1) + 1
    down, across = operation.stride
    windows = sliding_window_view(padded, extent, axis=(1, 2))[:, ::down, ::across, ::row_step, ::column_step]
    groups = zip(np.split(weight.numerators, operation.groups), np.split(windows, operation.groups), strict=True)
    images = [np.tensordot(kernel, windows, axes=((1, 2, 3), (0, 3, 4))) for kernel, windows in groups]
    sums = Rationals(np.concatenate(images), weight.denominator * denominator)
    return sums.plus(Rationals.stored(operation.bias[:, None, None]))


def _index_map(operation: Any, inputs: list[Rationals]) -> Rationals:
    def pick(array: Numbers) -> Any:
        return np.append(array.flatten(), 0)[list(operation.indices)].reshape(operation.after)

    return inputs[0].map(pick)


def _scale(operation: Any, inputs: list[Rationals]) -> Rationals:
    if not operation.divide:
        return inputs[0].times(Rationals.stored(operation.factor))
    inverse = [1 / Fraction(number) for number in operation.factor.double().flatten().tolist()]
    return inputs[0].times(Rationals.of(inverse, operation.factor.shape))


RULES: dict[type[Operation], Callable[[Any, list[Rationals]], Rationals]] = {
    Linear: _linear,
    Convolution: _convolution,
    IndexMap: _index_map,
    Scale: _scale,
    Shift: lambda operation, inputs: inputs[0].plus(Rationals.stored(operation.offset)),
    Reshape: lambda operation, inputs: inputs[0].map(lambda array: array.reshape(operation.after)),
    Add: lambda operation, inputs: inputs[0].plus(inputs[1]),
    Relu: lambda operation, inputs: inputs[0].map(lambda array: np.maximum(array, 0)),
}
