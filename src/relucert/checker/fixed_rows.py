"""Forms with exact coefficients as an affine operation in fixed point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from relucert.checker.fixed_layers import FixedLinear
from relucert.checker.fixed_point import Fixed, of_fractions


def fixed_rows(
    rows: Sequence[Sequence[tuple[int, Fraction]]], size: int, constants: Sequence[Fraction] | None
) -> FixedLinear:
    """A linear layer whose rows are given by the indices and coefficients of their terms.

    Args:
        rows: The terms of every row.
        size: Of the value that the rows are forms on.
        constants: The bias.
    """
    numbers = [Fraction(0)] * (len(rows) * size)
    for row, terms in enumerate(rows):
        for index, number in terms:
            numbers[row * size + index] += number
    weight = rounded(numbers).reshaped(len(rows), size)
    return FixedLinear(None if constants is None else rounded(constants), weight)


def rounded(numbers: Sequence[Fraction]) -> Fixed:
    """Fractions rounded down, with an error of one unit unless all of them are exact."""
    fixed = of_fractions(numbers)
    unit = Fraction(2) ** -fixed.bits
    exact = all(unit * units == number for units, number in zip(fixed.units.tolist(), numbers, strict=True))
    return fixed if exact else replace(fixed, error=1)
