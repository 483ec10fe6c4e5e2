"""Exact numbers: decimals as they are written, and floating-point numbers that enclose them."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np

from relucert.common.checks import shown
from relucert.errors import InputError

DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,9})?")
NumberLike = float | str | Fraction
"""A number, a fraction, or a text such as "8/255"."""

Float = np.float64 | np.float32 | np.float16
LONGEST = 400  # digits of a number, and the largest exponent


def parse_decimal(text: str) -> Fraction | None:
    """The number that a text writes in decimals, exactly; None where it is no number.

    Raises InputError for numbers that nobody means: they would take all memory.
    """
    match = DECIMAL.fullmatch(text)
    if match is None:
        return None
    exponent = match[3]
    if len(text) > LONGEST or (exponent is not None and abs(int(exponent[1:])) > LONGEST):
        raise InputError(f"the number {shown(text)} has more than {LONGEST} digits, or an exponent beyond {LONGEST}")
    if exponent is not None:
        return Fraction(text)
    whole, _, decimals = text.partition(".")
    return Fraction(int(whole + decimals), 10 ** len(decimals))  # in a third of the time that Fraction takes for texts


def exactly(number: object, name: str) -> Fraction:
    """A user's number, exactly as it is stored; name: what it is called in errors."""
    if isinstance(number, np.generic) or (hasattr(number, "item") and getattr(number, "ndim", None) == 0):
        number = number.item()
    if isinstance(number, bool) or not isinstance(number, (int, float, Decimal, Fraction)):
        raise InputError(f"{name} is a finite number, not {shown(number)}")
    if isinstance(number, (float, Decimal)) and not math.isfinite(number):
        raise InputError(f"{name} is a finite number, not {shown(number)}")
    if isinstance(number, Decimal) and abs(number.adjusted()) > LONGEST:
        raise InputError(f"{name} is a number with an exponent up to {LONGEST}, not {shown(number)}")
    return Fraction(number)


def number_above(number: NumberLike, name: str) -> float:
    """The least float64 number that is not below a user's number.

    A fraction, or a text such as "8/255", is exactly that one. A text in decimals is the float64 number that Python
    takes it for.
    """
    return float_above(exactly(_read(number, name), name))


def number_below(number: NumberLike, name: str) -> float:
    """The largest float64 number that is not above a user's number."""
    return float_below(exactly(_read(number, name), name))


def stated_fraction(number: NumberLike, name: str) -> Fraction | None:
    """The exact value of a fraction, or of a text such as "8/255"; None for any other number."""
    if isinstance(number, Fraction) or (isinstance(number, str) and "/" in number):
        return exactly(_read(number, name), name)
    return None


def _read(number: NumberLike, name: str) -> object:
    if not isinstance(number, str):
        return number
    terms = [term.strip() for term in number.split("/")]
    numbers = [parse_decimal(term) for term in terms]
    if len(terms) > 2 or None in numbers or not all(numbers[1:]):
        raise InputError(f"{name} is a finite number, or a fraction such as 8/255, not {shown(number)}")
    return float(number) if len(terms) == 1 else numbers[0] / numbers[1]  # type: ignore[operator]


def float_below(number: Fraction, dtype: type[Float] = np.float64) -> float:
    """The largest floating-point number that is not above an exact one; -infinity where there is none."""
    try:
        nearest = float(number)
    except OverflowError:
        nearest = math.inf if number > 0 else -math.inf
    if dtype is not np.float64:
        with np.errstate(over="ignore"):
            nearest = float(dtype(nearest))
    if math.isfinite(nearest):
        numerator, denominator = nearest.as_integer_ratio()
        if numerator * number.denominator <= number.numerator * denominator:
            return nearest
    return float(np.nextafter(dtype(nearest), dtype(-math.inf)))


def float_above(number: Fraction, dtype: type[Float] = np.float64) -> float:
    """The smallest floating-point number that is not below an exact one; infinity where there is none."""
    return 0.0 - float_below(-number, dtype)  # which is no negative zero


def as_decimal(number: Fraction) -> str:
    """A number in decimals, exactly; where these do not end, with 40 digits."""
    denominator = number.denominator
    twos = (denominator & -denominator).bit_length() - 1
    fives, cofactor = 0, denominator >> twos
    while cofactor % 5 == 0:
        fives, cofactor = fives + 1, cofactor // 5
    decimals = max(twos, fives) if cofactor == 1 else 40
    digits = str(abs(number.numerator) * 10**decimals // denominator).rjust(decimals + 1, "0")
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[:-decimals]}.{digits[-decimals:]}" if decimals else f"{sign}{digits}.0"
