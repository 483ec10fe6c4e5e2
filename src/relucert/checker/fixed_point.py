"""Integers over powers of two, and products of matrices of them that are exact.

Numbers are at most 2**58. For a product they are taken apart into digits of 20 bits: sums of few thousand products
of two digits stay below 2**53, so that float64 computes them exactly, in any order and at the speed of its libraries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce

import numpy as np
import torch
from torch import Tensor

BITS = 58  # no number exceeds 2**58 in absolute value
DIGIT = 20  # bits, balanced: from -2**19 to 2**19
MASK = (1 << DIGIT) - 1
HALF = 1 << (DIGIT - 1)
DIGITS = 3  # of a number, at most
TERMS = 2**53 // (DIGITS * HALF * HALF)  # products that one sum may have
Product = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Fixed:
    """Numbers within `error` units of `units`, which are integers over 2**bits.

    Attributes:
        units: int64, at most 2**BITS in absolute value.
    """

    units: Tensor
    bits: int
    error: int = 0

    @cached_property
    def digits(self) -> list[Tensor]:
        """The units in base 2**20: float64 tensors, of which tensor i counts 2**(20 i) times."""
        remainder, digits = self.units, []
        size = _largest(remainder)
        if size > 1 << (BITS + 1):
            raise OverflowError("a number in fixed point is too long")
        for _ in range(DIGITS - 1):
            if size <= HALF:
                break
            digit = ((remainder + HALF) & MASK) - HALF
            digits.append(digit.double())
            remainder = (remainder - digit) >> DIGIT
            size = (size >> DIGIT) + 1
        return [*digits, remainder.double()]

    @property
    def largest(self) -> int:
        """An upper bound of the absolute values, in units."""
        return _largest(self.units) + self.error

    def floats(self) -> Tensor:
        """About the numbers, in float64."""
        return self.units.double() * 2.0**-self.bits

    def coarser(self, shift: int) -> Fixed:
        """The numbers in units that are 2**shift times larger, rounded down."""
        if shift <= 0:
            return self
        return Fixed(self.units >> min(shift, 63), self.bits - shift, _shifted(self.error, shift) + 1)

    def filled(self) -> Fixed:
        """The numbers in units so small that the largest one has nearly all bits."""
        size = _largest(self.units)
        room = BITS - 1 - size.bit_length()
        return self if room <= 0 or not size else self._finer(room)

    def plus(self, addend: Fixed) -> Fixed:
        """The sums, in units as small as the larger one of the two allows."""
        first, second = aligned(self, addend)
        if _largest(first.units) + _largest(second.units) >= 1 << BITS:
            first, second = first.coarser(1), second.coarser(1)
        return Fixed(first.units + second.units, first.bits, first.error + second.error)

    def _in_units(self, bits: int) -> Fixed:
        """The numbers over 2**bits."""
        return self.coarser(self.bits - bits) if bits <= self.bits else self._finer(bits - self.bits)

    def _finer(self, shift: int) -> Fixed:
        return Fixed(self.units << min(shift, 63), self.bits + shift, self.error << shift)

    @property
    def absolute(self) -> Fixed:
        return replace(self, units=self.units.abs())

    def negated(self) -> Fixed:
        return replace(self, units=-self.units)

    def at(self, columns: Tensor | None) -> Fixed:
        """The columns at these positions, (count,); None: all of them."""
        return self if columns is None else replace(self, units=self.units[..., columns])

    def spread(self, columns: Tensor | None, size: int) -> Fixed:
        """A table of `size` columns with these columns at the given positions, None for all, and zeros elsewhere."""
        if columns is None:
            return self
        return replace(self, units=self.units.new_zeros(len(self.units), size).index_copy_(1, columns, self.units))

    @property
    def support(self) -> Tensor | None:
        """The columns that have other units than zero, (count,); None where these are more than half."""
        columns = (self.units != 0).any(0).nonzero().flatten()
        return columns if 2 * len(columns) <= self.units.shape[-1] else None

    def reshaped(self, *shape: int) -> Fixed:
        return replace(self, units=self.units.reshape(shape))


def aligned(first: Fixed, second: Fixed) -> tuple[Fixed, Fixed]:
    """Two tables in the same units, as small as the larger one of the two allows."""
    first, second = first.filled(), second.filled()
    nonzero = [numbers.bits for numbers in (first, second) if _largest(numbers.units)]
    bits = min(nonzero, default=max(first.bits, second.bits))
    return first._in_units(bits), second._in_units(bits)


def of_floats(numbers: Tensor) -> Fixed:
    """Floating-point numbers, exactly where they have no more than 58 bits from the largest to the smallest."""
    wide = numbers.double()
    largest = float(wide.abs().max()) if wide.numel() else 0.0
    if not largest:
        return Fixed(torch.zeros(wide.shape, dtype=torch.int64), 0)
    bits = BITS - 1 - int(torch.frexp(torch.tensor(largest, dtype=torch.float64)).exponent)
    scaled = wide * 2.0 ** (bits // 2) * 2.0 ** (bits - bits // 2)
    units = scaled.floor().to(torch.int64)
    exact = bool((units.double() == scaled).all()) and bits >= 0  # powers below 1 may underflow
    spare = _trailing_zeros(units) if exact else 0
    return Fixed(units >> spare, bits - spare, 0 if exact else 1)


def of_fractions(numbers: Sequence[Fraction], up: bool = False) -> Fixed:
    """Fractions rounded down, or up; the error of one unit that this makes is not counted."""
    largest = max((abs(number) for number in numbers), default=Fraction(0))
    bits = BITS - 2 - (largest.numerator.bit_length() - largest.denominator.bit_length()) if largest else 0
    scale = Fraction(2) ** bits
    units = [math.ceil(number * scale) if up else math.floor(number * scale) for number in numbers]
    return Fixed(torch.tensor(units, dtype=torch.int64), bits)


def rounded(numbers: Sequence[Fraction]) -> Fixed:
    """Fractions rounded down, with an error of one unit unless all of them are exact."""
    fixed = of_fractions(numbers)
    unit = Fraction(2) ** -fixed.bits
    exact = all(unit * units == number for units, number in zip(fixed.units.tolist(), numbers, strict=True))
    return fixed if exact else replace(fixed, error=1)


def of_integers(numbers: Sequence[int], bits: int, up: bool = False) -> Fixed:
    """Integers over 2**bits rounded down, or up, where they are too long; that error is not counted."""
    length = max((abs(number).bit_length() for number in numbers), default=0)
    shift = max(0, length - (BITS - 1))
    units = [-(-number >> shift) if up else number >> shift for number in numbers]
    return Fixed(torch.tensor(units, dtype=torch.int64), bits - shift)


def multiply(left: Fixed, right: Fixed, product: Product, terms: int) -> Fixed:
    """A bilinear product of two tensors, rounded down to units that hold it.

    Args:
        product: The product of float64 tensors, which takes nothing but sums of products of two numbers.
        terms: How many products one sum has, at most.
    """
    bits = left.bits + right.bits
    error = terms * (left.error * right.largest + right.error * left.largest)
    return _rounded(_levels(left, right, product, terms), bits, error)


def matrix_product(left: Fixed, right: Fixed) -> Fixed:
    """`left @ right`, rounded down to units that hold it."""
    error = left.units.shape[-1] * (left.error * right.largest + right.error * left.largest)
    return _rounded(_block_levels(left, right, 0, torch.matmul), left.bits + right.bits, error)


def sums(left: Fixed, right: Fixed) -> list[int]:
    """`left @ right` of rows and one vector, exactly, over 2**(left.bits + right.bits); errors do not count."""
    return whole(_block_levels(left, right, 0, torch.matmul))


def row_sums(left: Fixed, right: Fixed) -> list[int]:
    """The sums of products of two tables, row by row, exactly, over 2**(left.bits + right.bits), without errors."""

    def product(first: Tensor, second: Tensor) -> Tensor:
        return (first * second).sum(-1)

    return whole(_block_levels(left, right, -1, product))


def whole(levels: list[Tensor]) -> list[int]:
    """The sums over the levels, of which level m counts 2**(20 m) times."""
    totals = [0] * len(levels[0])
    for level in reversed(levels):
        totals = [(total << DIGIT) + int(number) for total, number in zip(totals, level.tolist(), strict=True)]
    return totals


def _levels(left: Fixed, right: Fixed, product: Product, terms: int) -> list[Tensor]:
    """By level m, the sum of the products of digits whose positions add up to m: exact in float64."""
    if terms > TERMS:
        raise ValueError(f"a sum of {terms} products is not exact")
    levels: list[Tensor | None] = [None] * (len(left.digits) + len(right.digits) - 1)
    for left_position, left_digit in enumerate(left.digits):
        for right_position, right_digit in enumerate(right.digits):
            term, before = product(left_digit, right_digit), levels[left_position + right_position]
            levels[left_position + right_position] = term if before is None else before.add_(term)
    return [level.to(torch.int64) for level in levels if level is not None]


def _block_levels(left: Fixed, right: Fixed, axis: int, product: Product) -> list[Tensor]:
    """The levels of a product whose sums are computed in blocks of so many terms that float64 is exact.

    axis: That of the second factor along which the sums go; that of the first one is its last.
    """
    blocks = [
        _levels(_block(left, -1, begin), _block(right, axis, begin), product, TERMS)
        for begin in range(0, max(1, left.units.shape[-1]), TERMS)
    ]
    length = max(map(len, blocks))
    return [reduce(torch.add, [levels[level] for levels in blocks if level < len(levels)]) for level in range(length)]


def _rounded(levels: list[Tensor], bits: int, error: int) -> Fixed:
    """The sum of levels over 2**bits, rounded down to units in which it has at most BITS bits."""
    digits: list[Tensor] = []
    top = levels[0]
    for level in levels[1:]:
        digits.append(top & MASK)
        top = level + (top >> DIGIT)
    size = _largest(top)
    while digits and size < 1 << (BITS - DIGIT - 1):
        top = (top << DIGIT) + digits.pop()
        size = _largest(top)
    room = BITS - 1 - size.bit_length()
    if room < 0:
        top, shift = top >> -room, DIGIT * len(digits) - room
        return Fixed(top, bits - shift, _shifted(error, shift) + 1)
    if not digits:
        return Fixed(top, bits, error)
    room = min(DIGIT, room)
    top = (top << room) + (digits[-1] >> (DIGIT - room))
    shift = DIGIT * len(digits) - room
    return Fixed(top, bits - shift, _shifted(error, shift) + 1)


def _block(numbers: Fixed, axis: int, begin: int) -> Fixed:
    """TERMS positions of an axis, or as many as there are."""
    size = numbers.units.shape[axis]
    if size <= TERMS:
        return numbers
    return replace(numbers, units=numbers.units.narrow(axis, begin, min(TERMS, size - begin)))


def _largest(units: Tensor) -> int:
    if not units.numel():
        return 0
    least, largest = units.aminmax()
    return max(-int(least), int(largest))


def _trailing_zeros(units: Tensor) -> int:
    ones = int(np.bitwise_or.reduce(units.numpy(), axis=None))
    return (ones & -ones).bit_length() - 1 if ones else 0


def _shifted(error: int, shift: int) -> int:
    """An error in units that are 2**shift times larger, rounded up."""
    return -(-error >> shift)
