"""Resizing by interpolation: every number is a weighted sum of a few neighbours, axis by axis.

The neighbours of every number are put side by side, weighted, and summed by a convolution whose stride is their count,
so that forms of neurons stay local. Weights are whole numbers over one denominator, which is divided by afterwards: so
the network is exactly the interpolation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor, lcm, prod

import torch

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.local import Axis
from relucert.inputs.loading.operands import Operand, scalar

MOST = 2**24  # the largest numerators and denominators: float32 has all whole numbers up to it
CUBIC = Fraction(-3, 4)  # the coefficient of cubic interpolation that runtimes have by default

ROUNDED = "weights of an interpolation that are no sums of powers of two are rounded by each runtime in its own way"

Weights = list[tuple[int, Fraction]]
"""The neighbours of a coordinate and their weights; those beyond an end are the number at that end."""


def coordinates(old: int, new: int, factor: Fraction, align_corners: bool) -> list[Fraction]:
    """The coordinates on an axis of the old size of the numbers of the new one, whose pixels are wide by 1 / factor.

    align_corners: both ends stay where they are, whatever the factor is.
    """
    if align_corners:
        return [Fraction(index * (old - 1), max(1, new - 1)) for index in range(new)]
    half = Fraction(1, 2)
    return [(index + half) / factor - half for index in range(new)]


def linear_weights(coordinate: Fraction) -> Weights:
    """Between two neighbours."""
    first = floor(coordinate)
    share = coordinate - first
    return [(first, 1 - share), (first + 1, share)]


def cubic_weights(coordinate: Fraction, coefficient: Fraction = CUBIC) -> Weights:
    """Between four neighbours, by Keys' cubic convolution with this coefficient."""
    first = floor(coordinate)
    share = coordinate - first
    distances = [share + 1, share, 1 - share, 2 - share]
    return [(first - 1 + number, _cubic(distance, coefficient)) for number, distance in enumerate(distances)]


def _cubic(distance: Fraction, a: Fraction) -> Fraction:
    """Keys' kernel at a distance up to 2."""
    if distance <= 1:
        return ((a + 2) * distance - (a + 3)) * distance**2 + 1
    return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a


def interpolate(
    assembly: Assembly,
    value: Operand,
    coordinates: Sequence[Sequence[Fraction]],
    weights: Callable[[Fraction], Weights],
) -> int:
    """The value at these coordinates of each of its last axes, in order, without the batch."""
    shape = assembly.shape(value)
    axes = range(len(shape) - len(coordinates), len(shape))
    tables = [[weights(coordinate) for coordinate in along] for along in coordinates]
    moved = [number for number, table in enumerate(tables) if not _stays(table, shape[axes[number]])]
    taps = prod(len(tables[number][0]) for number in moved)
    result = assembly.reshaped(value, shape)
    with assembly.one_sum(taps + 3 * len(moved)):  # products with a weight of each axis, sums, and the divisions
        for number in moved:
            result = _along(assembly, result, axes[number], tables[number])
    return result


def _stays(table: Sequence[Weights], size: int) -> bool:
    """Whether every number of an axis is itself."""
    kept = [[index for index, weight in neighbours if weight] for neighbours in table]
    return kept == [[index] for index in range(size)]


def _along(assembly: Assembly, value: int, axis: int, table: Sequence[Weights]) -> int:
    """The weighted sums along one axis."""
    shape, (count, taps) = assembly.shape(value), (len(table), len(table[0]))
    is_image = len(shape) == 3 and axis > 0
    before = shape if is_image else (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
    along = axis if is_image else 1
    numerators, denominator = _whole(table)
    if denominator & (denominator - 1):
        assembly.real_only.setdefault(ROUNDED)
    picked = torch.tensor([min(max(index, 0), shape[axis] - 1) for neighbours in table for index, _ in neighbours])
    positions = torch.arange(prod(before)).reshape(before).index_select(along, picked)
    precision = torch.promote_types(assembly.precision, torch.float32)  # which has all the numerators
    factors = torch.tensor(numerators, dtype=precision).reshape((-1, 1) if along == 1 else (1, -1))
    weighted = assembly.multiply(assembly.index_map(assembly.reshaped(value, before), positions), factors)
    ones = torch.ones(before[0], 1, *((taps, 1) if along == 1 else (1, taps)), dtype=precision)
    steps = (Axis(stride=taps), Axis()) if along == 1 else (Axis(), Axis(stride=taps))
    summed = assembly.convolution(weighted, ones, None, steps, before[0])
    result = summed if denominator == 1 else assembly.divide(summed, scalar(float(denominator)))
    return assembly.reshaped(result, (*shape[:axis], count, *shape[axis + 1 :]))


def _whole(table: Sequence[Weights]) -> tuple[list[int], int]:
    """The weights as whole numbers over one denominator."""
    weights = [weight for neighbours in table for _, weight in neighbours]
    denominator = lcm(*(weight.denominator for weight in weights))
    numerators = [int(weight * denominator) for weight in weights]
    if max(denominator, *map(abs, numerators)) > MOST:
        raise UnsupportedError("a factor whose weights are no small fractions: resize to a size, or by a whole factor")
    return numerators, denominator
