"""Products in fixed point, against Python's integers and fractions."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
import torch

from relucert.checker.fixed_point import (
    BITS,
    TERMS,
    Fixed,
    matrix_product,
    multiply,
    of_floats,
    of_fractions,
    of_integers,
    row_sums,
    sums,
)


def integers(rows: int, columns: int, bits: int, seed: int) -> list[list[int]]:
    chance = random.Random(seed)
    return [[chance.randint(-(1 << bits), 1 << bits) for _ in range(columns)] for _ in range(rows)]


def fixed(rows: list[list[int]], bits: int = 0, error: int = 0) -> Fixed:
    return Fixed(torch.tensor(rows), bits, error)


def exact(numbers: Fixed) -> list[list[Fraction]]:
    return [[Fraction(unit) / Fraction(2) ** numbers.bits for unit in row] for row in numbers.units.tolist()]


@pytest.mark.parametrize("bits", [0, 18, 19, 20, 39, 40, BITS - 1, BITS])
def test_digits_are_small_and_add_up(bits: int) -> None:
    rows = fixed([*integers(3, 5, bits, 1), [1 << bits, -(1 << bits), (1 << bits) - 1, 0, 1 - (1 << bits)]])
    assert all(float(digit.abs().max()) <= 2**19 for digit in rows.digits)
    total = sum(digit.to(torch.int64) << (20 * place) for place, digit in enumerate(rows.digits))
    assert isinstance(total, torch.Tensor)
    assert total.tolist() == rows.units.tolist()


@pytest.mark.parametrize("bits", [(5, 5), (30, 44), (BITS, 24), (BITS, BITS)])
@pytest.mark.parametrize("terms", [1, 50, TERMS + 3])
def test_products_of_matrices_are_within_their_error(bits: tuple[int, int], terms: int) -> None:
    left, right = integers(3, terms, bits[0], 2), integers(terms, 2, bits[1], 3)
    product = matrix_product(fixed(left, 7), fixed(right, -3))
    assert int(product.units.abs().max()) <= 1 << BITS
    columns = list(zip(*right, strict=True))
    for row, units in zip(left, exact(product), strict=True):
        for column, unit in zip(columns, units, strict=True):
            truth = Fraction(sum(one * two for one, two in zip(row, column, strict=True)), 1 << 4)
            assert 0 <= truth - unit <= product.error / Fraction(2) ** product.bits
    if max(bits) == 5:
        assert product.error == 0


@pytest.mark.parametrize("terms", [1, 50, 2 * TERMS + 3])
def test_sums_are_exact(terms: int) -> None:
    rows, (vector,) = integers(3, terms, BITS, 4), integers(1, terms, BITS, 5)
    truth = [sum(one * two for one, two in zip(row, vector, strict=True)) for row in rows]
    assert sums(fixed(rows), Fixed(torch.tensor(vector), 0)) == truth
    assert row_sums(fixed(rows), fixed(rows)) == [sum(one * one for one in row) for row in rows]


def test_errors_of_factors_are_carried_on() -> None:
    """Every product of numbers within their errors is within the product's error."""
    chance = random.Random(6)
    left, right = integers(2, 4, 50, 7), integers(4, 3, 30, 8)
    product = matrix_product(fixed(left, 0, 5), fixed(right, 0, 3))
    for _ in range(50):
        moved = [[number + chance.choice((-5, 5)) for number in row] for row in left]
        other = [[number + chance.choice((-3, 3)) for number in row] for row in right]
        for row, units in zip(moved, exact(product), strict=True):
            for column, unit in zip(zip(*other, strict=True), units, strict=True):
                truth = sum(one * two for one, two in zip(row, column, strict=True))
                assert abs(truth - unit) <= product.error / Fraction(2) ** product.bits


def test_too_many_terms_are_refused() -> None:
    with pytest.raises(ValueError, match="not exact"):
        multiply(fixed([[1]]), fixed([[1]]), torch.mul, TERMS + 1)


@pytest.mark.parametrize(
    "numbers",
    [
        [0.0, 0.0], [1.0, -0.75], [1e-3, 3.0, -2.5e-9], [5e-324, -1e-320], [1e308, -1.0, 1e-300, -5e-324],
        [1.0, -1e-30],
    ],
)  # fmt: skip
def test_floats_are_within_their_error(numbers: list[float]) -> None:
    stored = of_floats(torch.tensor([numbers], dtype=torch.float64))
    for number, unit in zip(numbers, exact(stored)[0], strict=True):
        assert abs(Fraction(number) - unit) <= stored.error / Fraction(2) ** stored.bits


def test_exact_floats_have_no_spare_bits() -> None:
    stored = of_floats(torch.tensor([0.5, -3.0, 1.25]))
    assert (stored.units.tolist(), stored.bits, stored.error) == ([2, -12, 5], 2, 0)


def test_fractions_and_integers_are_rounded_to_their_side() -> None:
    numbers = [Fraction(1, 3), Fraction(-5, 7), Fraction(0), Fraction(10**30, 7)]
    low, high = (
        exact(of_fractions(numbers).reshaped(1, -1))[0],
        exact(of_fractions(numbers, up=True).reshaped(1, -1))[0],
    )
    assert all(one <= number <= two for one, number, two in zip(low, numbers, high, strict=True))
    long = [3**80, -(5**60), 7]
    below, above = (exact(of_integers(long, 64, up=up).reshaped(1, -1))[0] for up in (False, True))
    truth = [Fraction(number, 1 << 64) for number in long]
    assert all(one <= number <= two for one, number, two in zip(below, truth, above, strict=True))


def test_sums_of_two_keep_their_precision() -> None:
    """Units are those of 58 bits, however few bits one of them has; zeros do not count."""
    small, odd = fixed([[1, -1]], 0), of_fractions([Fraction(1, 3), Fraction(2, 3)]).reshaped(1, -1)
    total = small.plus(odd)
    truth = (Fraction(4, 3), Fraction(-1, 3))
    assert all(abs(one - two) < Fraction(1, 2**54) for one, two in zip(exact(total)[0], truth, strict=True))
    assert total.error <= 1
    for zeros in (Fixed(torch.zeros(1, 2, dtype=torch.int64), bits, 3) for bits in (-100, 0, 300)):
        for joined in (zeros.plus(odd), odd.plus(zeros)):
            assert exact(joined) == exact(odd)
            assert joined.error / Fraction(2) ** joined.bits >= 3 / Fraction(2) ** zeros.bits


def test_sums_of_two_have_room() -> None:
    one, two = fixed([[(1 << BITS) - 1, -(1 << BITS)]], 10), fixed([[(1 << BITS) - 1, -(1 << BITS)]], 12)
    total = one.plus(two)
    assert int(total.units.abs().max()) <= 1 << BITS
    for first, second, unit in zip(exact(one)[0], exact(two)[0], exact(total)[0], strict=True):
        assert abs(first + second - unit) <= total.error / Fraction(2) ** total.bits
