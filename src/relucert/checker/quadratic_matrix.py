"""A quadratic certificate's inequality, from its multipliers, in integers: every rounding is charged.

With v the inputs y and the sector errors e, `sum pi dz^2 + v' S v <= B` holds in the region for
`S = kappa y^2 + tau (e^2 - w^2 dz^2) - pi dz^2`. The deviations dz are linear in v. They are rounded to matrices of
integers, by which dz is off by little, as v is bounded; what that changes the inequality by is added to B. The matrix
that remains is exact, and has to be positive semidefinite. A Cholesky factor in float64 is only a proposal: rounded to
integers it is L, and what counts is that the remainder `matrix - L L'`, exact, is diagonally dominant with a diagonal
that is not negative, and so semidefinite, as L L' is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from flint import fmpq, fmpz, fmpz_mat

from relucert.checker.ball_region import Numbers, fraction
from relucert.checker.document import Rejected
from relucert.checker.linearised_chain import CheckedChain, CheckedLayer, common
from relucert.checker.quadratic_document import ChainCertificate

MAP_BITS = 64  # behind the point, of the maps from v to deviations
FORM_BITS = 50  # the same of the rows whose squares make the form


@dataclass(frozen=True)
class QuadraticInequality:
    """`sum pi dz^2 + u' matrix u <= right` in the region, with a semidefinite matrix of integers over
    2**(2 * FORM_BITS), and `v = u * 2**power`, power by power: the moving inputs, then loose neurons layer by layer."""

    matrix: fmpz_mat
    powers: list[int]
    right: fmpq


def inequality(linearised: CheckedChain, entry: ChainCertificate) -> QuadraticInequality:
    """The inequality of one certificate; raises Rejected where its matrix is not proven to be semidefinite."""
    check_sizes(linearised, entry)
    ball = [fraction(entry.ball[index]) for index in linearised.moving]
    diagonal = ball + [
        fraction(numbers[index])
        for layer, numbers in zip(linearised.layers, entry.sectors, strict=False)
        for index in layer.loose
    ]
    if not all(number > 0 for number in diagonal):
        raise Rejected("a multiplier is not positive")
    powers = [-(math.frexp(float(number))[1] // 2) for number in diagonal]
    rows, shortfall = _SquareRows(linearised, entry, powers).run()
    form = fmpz_mat(rows) if rows else fmpz_mat(0, len(powers))
    matrix = -(form.transpose() * form)
    for index, (number, power) in enumerate(zip(diagonal, powers, strict=True)):
        matrix[index, index] += int(shifted(number, 2 * power + 2 * FORM_BITS).floor())
    if not is_semidefinite(matrix, FORM_BITS):
        raise Rejected("a certificate's matrix is not proven to be positive semidefinite")
    weights = [
        fraction(number) if radius > 0 else fmpq(0)
        for number, radius in zip(entry.ball, linearised.region.radii, strict=True)
    ]
    return QuadraticInequality(matrix, powers, linearised.region.most_squares(weights) + shortfall)


def check_sizes(linearised: CheckedChain, entry: ChainCertificate) -> None:
    """Whether every list has one number per input or neuron, and no multiplier is negative."""
    inputs, hidden = len(linearised.region.centre), [len(layer.bias) for layer in linearised.layers]
    sizes = {
        "ball": [len(entry.ball)] == [inputs],
        "sectors": [len(numbers) for numbers in entry.sectors] == hidden[:-1],
        "weights": [len(numbers) for numbers in entry.weights] == hidden,
        "links": [len(numbers) for numbers in entry.links] == hidden,
        "tangent": [len(numbers) for numbers in entry.tangent] == [inputs, *hidden[:-1]],
    }
    if wrong := [name for name, fits in sizes.items() if not fits]:
        raise Rejected(f"a certificate has not one number for each input or neuron: {', '.join(wrong)}")
    if any(number < 0 for numbers in (entry.ball, *entry.sectors, *entry.weights) for number in numbers):
        raise Rejected("a multiplier is negative")
    if not entry.rate > 0:
        raise Rejected("the rate of a certificate is not positive")


class _SquareRows:
    """Makes rows whose squares add up to `sum (pi + tau w^2) dz^2`, integers over 2**FORM_BITS, up to a shortfall."""

    def __init__(self, linearised: CheckedChain, entry: ChainCertificate, powers: list[int]) -> None:
        self.linearised, self.entry, self.powers = linearised, entry, powers
        self.sizes = [shifted(fmpq(1), -power) for power in powers[: len(linearised.moving)]]  # of u, at most
        self.rows: list[list[int]] = []
        self.shortfall = fmpq(0)

    def run(self) -> tuple[list[list[int]], fmpq]:
        """The rows, in units of u, and by how much the sum of their squares may fall short of the form."""
        matrix, errors = self._first()
        for number, layer in enumerate(self.linearised.layers):
            if number:
                matrix, errors = self._next(self.linearised.layers[number - 1], layer, matrix, errors)
            self._add(number, layer, matrix, errors)
        return self.rows, self.shortfall

    def _first(self) -> tuple[list[list[int]], Numbers]:
        """The deviations of the first layer as a map, over 2**MAP_BITS, and how far it may be off."""
        layer, moving, radii = self.linearised.layers[0], self.linearised.moving, self.linearised.region.radii
        factors, bits = common(
            [shifted(radii[index], power) for index, power in zip(moving, self.powers, strict=False)]
        )
        shift = layer.weight.bits + bits - MAP_BITS
        matrix = [
            [_down(int(row[coordinate]) * factor, shift) for coordinate, factor in zip(moving, factors, strict=True)]
            for row in layer.weight.rows
        ]
        return matrix, [shifted(sum(self.sizes, fmpq(0)), -MAP_BITS)] * len(matrix)

    def _next(
        self, before: CheckedLayer, layer: CheckedLayer, matrix: list[list[int]], errors: Numbers
    ) -> tuple[list[list[int]], Numbers]:
        """`W (s dz + e)` of the layer before as a map, and how far it may be off."""
        assert before.slope is not None
        assert before.width is not None
        weight, loose, deviation = layer.weight, before.loose, before.max_deviation
        slopes, bits = common(before.slope)
        shift = weight.bits + bits - MAP_BITS
        sloped = [
            [_down(int(entry) * slope, shift) for entry, slope in zip(row, slopes, strict=True)] for row in weight.rows
        ]
        carried = (fmpz_mat(sloped) * fmpz_mat(matrix)).tolist()
        powers = self.powers[len(self.sizes) : len(self.sizes) + len(loose)]
        columns = [(neuron, power - weight.bits + MAP_BITS) for neuron, power in zip(loose, powers, strict=True)]
        joined = [
            [int(number) >> MAP_BITS for number in row] + [_down(int(weights[neuron]), -up) for neuron, up in columns]
            for row, weights in zip(carried, weight.rows, strict=True)
        ]
        self.sizes += [
            shifted(before.width[neuron] * deviation[neuron], -power)
            for neuron, power in zip(loose, powers, strict=True)
        ]
        rounded = sum(self.sizes, fmpq(0)) + sum(
            (amount + error for amount, error in zip(deviation, errors, strict=True)), fmpq(0)
        )
        spread, unit = common([slope * error for slope, error in zip(before.slope, errors, strict=True)])
        moved = (
            fmpz_mat([[abs(entry) for entry in row] for row in weight.rows]) * fmpz_mat([[entry] for entry in spread])
        ).entries()
        return joined, [fmpq(entry, 1 << (weight.bits + unit)) + shifted(rounded, -MAP_BITS) for entry in moved]

    def _add(self, number: int, layer: CheckedLayer, matrix: list[list[int]], errors: Numbers) -> None:
        rounded = shifted(sum(self.sizes, fmpq(0)), -FORM_BITS)
        factors = [fraction(weight) for weight in self.entry.weights[number]]
        if layer.width is not None:
            for neuron in layer.loose:
                factors[neuron] += fraction(self.entry.sectors[number][neuron]) * layer.width[neuron] ** 2
        missing = [0] * (len(self.powers) - len(self.sizes))
        for factor, row, error, deviation in zip(factors, matrix, errors, layer.max_deviation, strict=True):
            if factor == 0:
                continue
            root = _root(factor)
            mantissa, bits = root.p, int(root.q).bit_length() - 1
            shift = MAP_BITS + bits - FORM_BITS
            self.rows.append([_down(coefficient * int(mantissa), shift) for coefficient in row] + missing)
            off = root * error + rounded
            self.shortfall += off * (2 * root * deviation + off)


def _root(number: fmpq) -> fmpq:
    """A float64 number that is at least the root, by little."""
    root = math.sqrt(float(number))
    while fraction(root) ** 2 < number:
        root = math.nextafter(root, math.inf)
    return fraction(root)


def shifted(number: fmpq, power: int) -> fmpq:
    """Times 2**power."""
    return number * (1 << power) if power >= 0 else number / (1 << -power)


def _down(number: int, shift: int) -> int:
    """Times 2**-shift, rounded down."""
    return number >> shift if shift >= 0 else number << -shift


LARGEST = 1 << 900  # entries below it are numbers in float64
SHIFT = 2.0**-28  # share of the diagonal that is left to the remainder


def is_semidefinite(matrix: fmpz_mat, bits: int) -> bool:
    """Whether it is proven for a symmetric matrix of integers over 2**(2 * bits), whose entries should be near 1."""
    rows = matrix.tolist()
    if not all(0 < row[index] < LARGEST for index, row in enumerate(rows)):
        return False
    if any(abs(entry) >= LARGEST for row in rows for entry in row):
        return False
    unit = 2.0 ** (-2 * bits)
    numbers = np.array([[float(int(entry)) for entry in row] for row in rows]) * unit
    try:
        factor = np.linalg.cholesky(numbers - np.diag(SHIFT * np.diag(numbers)))
    except np.linalg.LinAlgError:
        return False
    if not np.isfinite(factor).all():
        return False
    whole = np.rint(factor * 2.0**bits).tolist()
    proposed = fmpz_mat([[fmpz(int(entry)) for entry in row] for row in whole])
    return _is_dominant(matrix - proposed * proposed.transpose())


def _is_dominant(matrix: fmpz_mat) -> bool:
    """Whether every diagonal entry is at least the sum of the absolute values of the others of its row."""
    return all(2 * row[index] >= sum(map(abs, row), fmpz(0)) for index, row in enumerate(matrix.tolist()))
