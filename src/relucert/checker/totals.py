"""Totals of linear forms during back-substitution: the constants so far, from below and above, rounded outwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TypeVar

from relucert.checker.lines import BOUND_BITS

TOTAL_BITS = 192  # behind the point of every total
Number = TypeVar("Number", int, Fraction)


@dataclass
class Totals:
    """One lower and one upper total per form, integers over 2**TOTAL_BITS.

    Attributes:
        both: Whether the upper totals are kept up to date; otherwise they mean nothing.
    """

    below: list[int]
    above: list[int]
    both: bool

    @classmethod
    def zero(cls, forms: int, both: bool) -> Totals:
        return cls([0] * forms, [0] * forms, both)

    def add(self, below: Sequence[Fraction], above: Sequence[Fraction]) -> None:
        """Adds exact numbers to the lower and to the upper totals."""
        self._add(below, above, lambda number: (number.numerator << TOTAL_BITS) // number.denominator)

    def add_units(self, below: Sequence[int], above: Sequence[int], bits: int) -> None:
        """Adds integers over 2**bits."""
        shift = bits - TOTAL_BITS
        self._add(below, above, lambda number: number >> shift if shift > 0 else number << -shift)

    def _add(self, below: Sequence[Number], above: Sequence[Number], down: Callable[[Number], int]) -> None:
        """down: Gives a number over 2**TOTAL_BITS, rounded down."""
        self.below = [total + down(number) for total, number in zip(self.below, below, strict=True)]
        if self.both:
            self.above = [total - down(-number) for total, number in zip(self.above, above, strict=True)]

    def charge(self, amount: Fraction) -> None:
        """Moves all totals outwards by an amount that is not negative."""
        if amount:
            units = ceil(amount * (1 << TOTAL_BITS))
            self.below = [total - units for total in self.below]
            self.above = [total + units for total in self.above]

    def copy(self) -> Totals:
        return Totals(self.below, self.above, self.both)

    def select(self, forms: Sequence[int]) -> Totals:
        """The totals of some forms."""
        return Totals([self.below[form] for form in forms], [self.above[form] for form in forms], self.both)

    def tells_sign(self, form: int) -> bool:
        """Whether the totals of a form tell its sign."""
        return self.below[form] >= 0 or (self.both and self.above[form] <= 0)

    def bounds(self, form: int) -> tuple[int, int]:
        """The totals of a form, rounded outwards to integers over 2**BOUND_BITS."""
        shift = TOTAL_BITS - BOUND_BITS
        return self.below[form] >> shift, -(-self.above[form] >> shift)
