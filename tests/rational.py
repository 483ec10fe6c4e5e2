"""Fast-Lin and CROWN, with the slopes that are handed in, and intervals in exact rational arithmetic, for a chain of
linear layers.

Slow, and free of rounding: what the rigorous bounds are compared with. p is 1 or infinity, whose dual norms are
rational.
"""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.interval import Interval
from relucert.bounding.relaxers import CROWN, FAST_LIN
from relucert.network import (
    Add,
    BatchScale,
    Convolution,
    IndexMap,
    Linear,
    Network,
    Operation,
    Relu,
    Reshape,
    Scale,
    Shape,
    Shift,
)
from relucert.network.piecewise_linear import PiecewiseLinear

Rows = list[list[Fraction]]


def exact(numbers: Tensor) -> list[Fraction]:
    return [Fraction(number) for number in numbers.double().tolist()]


def evaluate(network: Network, point: list[Fraction]) -> list[Fraction]:
    """The network's true outputs at a rational point."""
    value = point
    for node in network.nodes:
        if isinstance(node.operation, Linear):
            value = _affine(node.operation, value)
        else:
            value = [max(number, Fraction(0)) for number in value]
    return value


def fast_lin(
    network: Network, centre: Tensor, radius: float, p: float, proven: list[Interval]
) -> list[tuple[list[Fraction], list[Fraction]]]:
    """Bounds of every layer as the zonotope has them, without rounding, for the slopes taken at `proven` bounds."""
    size = len(centre)
    middle = exact(centre)
    inputs: Rows = [[Fraction(int(row == column)) for column in range(size)] for row in range(size)]
    symbols: Rows = [[] for _ in range(size)]
    bounds = []
    layers = [node.operation for node in network.nodes if isinstance(node.operation, Linear)]
    for place, layer in enumerate(layers):
        weight = [exact(row) for row in layer.weight]
        middle = _affine(layer, middle)
        inputs, symbols = _product(weight, inputs), _product(weight, symbols)
        lower, upper = [], []
        for at, row, others in zip(middle, inputs, symbols, strict=True):
            dual = sum(map(abs, row)) if math.isinf(p) else max(map(abs, row))
            reach = Fraction(radius) * dual + sum(map(abs, others))
            lower.append(at - reach)
            upper.append(at + reach)
        bounds.append((lower, upper))
        if place + 1 < len(layers):
            slopes = exact(
                FAST_LIN(Relu(), Interval(proven[place].lower[0], proven[place].upper[0]), RIGOROUS).slope_below
            )
            offsets = [
                max(-s * low, (1 - s) * high, Fraction(0)) / 2
                for s, low, high in zip(slopes, lower, upper, strict=True)
            ]
            middle = [s * at + offset for s, at, offset in zip(slopes, middle, offsets, strict=True)]
            inputs = [[s * entry for entry in row] for s, row in zip(slopes, inputs, strict=True)]
            symbols = [
                [s * entry for entry in row]
                + [offset if column == number else Fraction(0) for column in range(len(slopes))]
                for number, (s, row, offset) in enumerate(zip(slopes, symbols, offsets, strict=True))
            ]
    return bounds


def crown(
    network: Network, centre: Tensor, radius: float, p: float, proven: list[Interval]
) -> list[tuple[list[Fraction], list[Fraction]]]:
    """Bounds of every layer as CROWN has them, without rounding, for the slopes taken at `proven` bounds."""
    layers = [node.operation for node in network.nodes if isinstance(node.operation, Linear)]
    bounds: list[tuple[list[Fraction], list[Fraction]]] = []
    slopes: list[tuple[list[Fraction], list[Fraction]]] = []
    for place, layer in enumerate(layers):
        before = list(zip(layers[:place], slopes, bounds, strict=True))
        sides = [
            [_pulled_back([sign * w for w in exact(row)], sign * bias, centre, radius, p, before) for sign in (1, -1)]
            for row, bias in zip(layer.weight, exact(layer.bias), strict=True)
        ]
        bounds.append(([lower for lower, _ in sides], [-negative for _, negative in sides]))
        lines = CROWN(Relu(), Interval(proven[place].lower[0], proven[place].upper[0]), RIGOROUS)
        slopes.append((exact(lines.slope_below), exact(lines.slope_above)))
    return bounds


def intervals(network: Network, centre: Tensor, radius: float, p: float) -> list[tuple[list[Fraction], list[Fraction]]]:
    """Bounds of every layer by interval arithmetic, the first one's by dual norms, without rounding."""
    layers = [node.operation for node in network.nodes if isinstance(node.operation, Linear)]
    bounds: list[tuple[list[Fraction], list[Fraction]]] = []
    for layer in layers:
        rows = [exact(row) for row in layer.weight]
        if bounds:
            below, above = ([max(end, Fraction(0)) for end in side] for side in bounds[-1])
            middle = [(low + high) / 2 for low, high in zip(below, above, strict=True)]
            half = [(high - low) / 2 for low, high in zip(below, above, strict=True)]
            reaches = [sum((abs(w) * h for w, h in zip(row, half, strict=True)), start=Fraction(0)) for row in rows]
        else:
            middle = exact(centre)
            duals = [sum(map(abs, row)) if math.isinf(p) else max(map(abs, row)) for row in rows]
            reaches = [Fraction(radius) * dual for dual in duals]
        ends = list(zip(_affine(layer, middle), reaches, strict=True))
        bounds.append(([at - reach for at, reach in ends], [at + reach for at, reach in ends]))
    return bounds


def _pulled_back(
    form: list[Fraction], constant: Fraction, centre: Tensor, radius: float, p: float,
    before: list[tuple[Linear, tuple[list[Fraction], list[Fraction]], tuple[list[Fraction], list[Fraction]]]],
) -> Fraction:  # fmt: skip
    """The least value of a form on the last of these layers' ReLUs, between lines of these slopes."""
    for layer, (below, above), (lower, upper) in reversed(before):
        on_source = []
        for a, s, t, low, high in zip(form, below, above, lower, upper, strict=True):
            if a > 0:
                on_source.append(a * s)
            else:
                on_source.append(a * t)
                constant += a * max(-t * low, (1 - t) * high, Fraction(0))
        constant += sum((a * b for a, b in zip(on_source, exact(layer.bias), strict=True)), start=Fraction(0))
        form = _product([on_source], [exact(row) for row in layer.weight])[0]
    dual = sum(map(abs, form)) if math.isinf(p) else max(map(abs, form))
    at_centre = sum((a * x for a, x in zip(form, exact(centre), strict=True)), start=constant)
    return at_centre - Fraction(radius) * dual


def _affine(layer: Linear, value: list[Fraction]) -> list[Fraction]:
    bias = exact(layer.bias)
    return [
        sum((w * x for w, x in zip(exact(row), value, strict=True)), start=b)
        for row, b in zip(layer.weight, bias, strict=True)
    ]


def _product(weight: Rows, rows: Rows) -> Rows:
    columns = list(zip(*rows, strict=True))
    return [
        [sum((w * x for w, x in zip(row, column, strict=True)), start=Fraction(0)) for column in columns]
        for row in weight
    ]


def as_floats(numbers: list[Fraction]) -> Tensor:
    return torch.tensor([float(number) for number in numbers], dtype=torch.float64)


def evaluate_graph(network: Network, point: list[Fraction]) -> list[list[Fraction]]:
    """Every value of any network, flat, at a rational point: exactly, but for roots, which have 600 bits."""
    values = [point]
    for value, node in network.steps():
        operands = [values[source] for source in node.inputs]
        values.append(_apply(node.operation, operands, network.shapes[value]))
    return values


def _apply(operation: Operation, operands: list[list[Fraction]], shape: Shape) -> list[Fraction]:
    (first, *others) = operands
    if isinstance(operation, Linear):
        return _affine(operation, first)
    if isinstance(operation, Convolution):
        return _convolved(operation, first, shape)
    if isinstance(operation, IndexMap):
        padded = [*first, Fraction(0)]
        return [padded[place] for place in operation.indices]
    if isinstance(operation, Reshape):
        return first
    if isinstance(operation, Relu):
        return [max(number, Fraction(0)) for number in first]
    if isinstance(operation, PiecewiseLinear):
        return [_on_piece(operation, place, number) for place, number in enumerate(first)]
    if isinstance(operation, Add):
        return [one + other for one, other in zip(first, others[0], strict=True)]
    if isinstance(operation, Shift):
        return [number + offset for number, offset in zip(first, _spread(operation.offset, shape), strict=True)]
    return [number * factor for number, factor in zip(first, _factors(operation, shape), strict=True)]


def _on_piece(operation: PiecewiseLinear, place: int, number: Fraction) -> Fraction:
    """An activation of straight pieces at one coordinate, by its definition."""
    tables = operation.breaks, operation.factors, operation.offsets
    breaks, factors, offsets = (table[:, place % table.shape[1]].tolist() for table in tables)
    piece = sum(Fraction(end) <= number for end in breaks)
    return Fraction(factors[piece]) * number + Fraction(offsets[piece])


def _factors(operation: Operation, shape: Shape) -> list[Fraction]:
    if isinstance(operation, BatchScale):
        gains, variances = _spread(operation.gain, shape), _spread(operation.variance, shape)
        epsilon = Fraction(operation.epsilon)
        return [gain / root(variance + epsilon) for gain, variance in zip(gains, variances, strict=True)]
    assert isinstance(operation, Scale)
    factors = _spread(operation.factor, shape)
    return [1 / factor for factor in factors] if operation.divide else factors


def _spread(constant: Tensor, shape: Shape) -> list[Fraction]:
    return exact(constant.expand(shape).flatten())


def root(number: Fraction) -> Fraction:
    """The square root, to 600 bits."""
    shift = 2 * max(0, 600 + number.denominator.bit_length() - number.numerator.bit_length())
    return Fraction(math.isqrt((number.numerator << shift) // number.denominator), 1 << (shift // 2))


def _convolved(operation: Convolution, image: list[Fraction], shape: Shape) -> list[Fraction]:
    _, channels, tall, wide = operation.weight.shape
    weights, (height, width) = exact(operation.weight.flatten()), operation.size
    sums = []
    for output, y, x in itertools.product(*map(range, shape)):
        total = Fraction(float(operation.bias[output]))
        group = output // (shape[0] // operation.groups)
        for channel, i, j in itertools.product(range(channels), range(tall), range(wide)):
            row = y * operation.stride[0] + i * operation.dilation[0] - operation.padding[0]
            column = x * operation.stride[1] + j * operation.dilation[1] - operation.padding[1]
            if 0 <= row < height and 0 <= column < width:
                weight = weights[((output * channels + channel) * tall + i) * wide + j]
                total += weight * image[((group * channels + channel) * height + row) * width + column]
        sums.append(total)
    return sums


def truly_semidefinite(matrix: Sequence[Sequence[Fraction]]) -> bool:
    """Whether a symmetric matrix is positive semidefinite, by elimination."""
    rows = list(matrix)
    while rows:
        pivot = rows[0]
        if pivot[0] < 0 or (pivot[0] == 0 and any(pivot)):
            return False
        rows = [
            [
                entry - (row[0] * other / pivot[0] if pivot[0] else 0)
                for entry, other in zip(row[1:], pivot[1:], strict=True)
            ]
            for row in rows[1:]
        ]
    return True
