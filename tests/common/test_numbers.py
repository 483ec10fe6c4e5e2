"""Exact numbers, and floating-point numbers that enclose them."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relucert.common.numbers import as_decimal, exactly, float_above, float_below, parse_decimal
from relucert.errors import InputError

DTYPES = (np.float64, np.float32)


@given(st.fractions())
@pytest.mark.parametrize("dtype", DTYPES)
def test_floats_enclose_tightly(dtype: type[np.float64] | type[np.float32], number: Fraction) -> None:
    below, above = float_below(number, dtype), float_above(number, dtype)
    assert Fraction(below) <= number <= Fraction(above)
    assert above == below or above == float(np.nextafter(dtype(below), dtype(np.inf)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_beyond_all_floats(dtype: type[np.float64] | type[np.float32]) -> None:
    largest = float(np.finfo(dtype).max)
    huge = Fraction(10) ** 400
    assert (float_below(huge, dtype), float_above(huge, dtype)) == (largest, np.inf)
    assert (float_below(-huge, dtype), float_above(-huge, dtype)) == (-np.inf, -largest)
    tiny = Fraction(1, 10**399)
    assert float_below(tiny, dtype) == 0
    assert 0 < float_above(tiny, dtype) == float(np.nextafter(dtype(0), dtype(1)))


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("-1.50", Fraction(-3, 2)), (".5", Fraction(1, 2)), ("2.", 2), ("+3e-2", Fraction(3, 100)),
     ("1E3", 1000), ("0.1", Fraction(1, 10)), ("abc", None), ("1e", None), ("0x10", None), ("1_000", None),
     ("nan", None), ("inf", None), ("--1", None), ("1/2", None)],
)  # fmt: skip
def test_decimals_are_exact(text: str, number: Fraction | int | None) -> None:
    assert parse_decimal(text) == number


@pytest.mark.parametrize("text", ["1e999999999", "-1e-500", "1" * 500])
def test_numbers_that_would_take_all_memory_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="exponent"):
        parse_decimal(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_decimals_of_floats_end(number: float) -> None:
    assert Fraction(as_decimal(Fraction(number))) == Fraction(number)


@pytest.mark.parametrize(("number", "text"), [(Fraction(5), "5.0"), (Fraction(-1, 8), "-0.125"), (Fraction(0), "0.0")])
def test_decimals(number: Fraction, text: str) -> None:
    assert as_decimal(number) == text


@pytest.mark.parametrize("given", [True, "1", None, float("nan"), float("inf"), 1j, Decimal("NaN"), Decimal("1e999")])
def test_what_is_no_number(given: object) -> None:
    with pytest.raises(InputError, match="this is a"):
        exactly(given, "this")


def test_numbers_count_as_they_are_stored() -> None:
    assert exactly(0.1, "this") == Fraction(0.1) != Fraction(1, 10)
    assert exactly(np.float32(0.1), "this") == Fraction(float(np.float32(0.1)))
    assert exactly(Decimal("0.1"), "this") == Fraction(1, 10)


def test_no_bound_is_a_negative_zero() -> None:
    assert str(float_above(Fraction(0))) == str(float_below(Fraction(0))) == "0.0"
