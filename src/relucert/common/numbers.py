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
    return Fraction(text)


def exactly(given: object, what: str) -> Fraction:
    """A number that a user gives, exactly as it is stored."""
    if isinstance(given, np.generic) or (hasattr(given, "item") and getattr(given, "ndim", None) == 0):
        given = given.item()
    if isinstance(given, bool) or not isinstance(given, (int, float, Decimal, Fraction)):
        raise InputError(f"{what} is a finite number, not {shown(given)}")
    if isinstance(given, (float, Decimal)) and not math.isfinite(given):
        raise InputError(f"{what} is a finite number, not {shown(given)}")
    if isinstance(given, Decimal) and abs(given.adjusted()) > LONGEST:
        raise InputError(f"{what} is a number with an exponent up to {LONGEST}, not {shown(given)}")
    return Fraction(given)


def number_above(given: NumberLike, what: str) -> float:
    """A number that a user gives, as the least float64 that is not below it.

    A fraction, or a text such as "8/255", is exactly that one. A text in decimals is the float64 number that Python
    takes it for.
    """
    return float_above(exactly(_read(given, what), what))


def number_below(given: NumberLike, what: str) -> float:
    """A number that a user gives, as the largest float64 that is not above it."""
    return float_below(exactly(_read(given, what), what))


def stated_fraction(given: NumberLike, what: str) -> Fraction | None:
    """The exact number, where a user gives a fraction, or a text such as "8/255"; None for any other number."""
    if isinstance(given, Fraction) or (isinstance(given, str) and "/" in given):
        return exactly(_read(given, what), what)
    return None


def _read(given: NumberLike, what: str) -> object:
    if not isinstance(given, str):
        return given
    terms = [term.strip() for term in given.split("/")]
    numbers = [parse_decimal(term) for term in terms]
    if len(terms) > 2 or None in numbers or not all(numbers[1:]):
        raise InputError(f"{what} is a finite number, or a fraction such as 8/255, not {shown(given)}")
    return float(given) if len(terms) == 1 else numbers[0] / numbers[1]  # type: ignore[operator]


def float_below(number: Fraction, dtype: type[Float] = np.float64) -> float:
    """The largest floating-point number that is not above an exact one; -infinity where there is none."""
    nearest = _nearest(number, dtype)
    if math.isfinite(nearest) and Fraction(float(nearest)) <= number:
        return float(nearest)
    return float(np.nextafter(nearest, dtype(-math.inf))) if nearest > -math.inf else -math.inf


def float_above(number: Fraction, dtype: type[Float] = np.float64) -> float:
    """The smallest floating-point number that is not below an exact one; infinity where there is none."""
    return 0.0 - float_below(-number, dtype)  # which is no negative zero


def _nearest(number: Fraction, dtype: type[Float]) -> Float:
    """A floating-point number next to an exact one, or infinity."""
    try:
        double = float(number)
    except OverflowError:
        double = math.inf if number > 0 else -math.inf
    with np.errstate(over="ignore"):
        rounded: Float = dtype(double)
    return rounded


def as_decimal(number: Fraction) -> str:
    """A number in decimals, exactly; where these do not end, with 40 digits."""
    denominator = number.denominator
    twos = (denominator & -denominator).bit_length() - 1
    fives, rest = 0, denominator >> twos
    while rest % 5 == 0:
        fives, rest = fives + 1, rest // 5
    places = max(twos, fives) if rest == 1 else 40
    digits = str(abs(number.numerator) * 10**places // denominator).rjust(places + 1, "0")
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}" if places else f"{sign}{digits}.0"
