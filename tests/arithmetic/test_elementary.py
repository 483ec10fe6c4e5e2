"""Elementary functions of our own lie within their proven errors; python-flint's balls are the referee."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import pytest
import torch
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from relucert.arithmetic import elementary
from relucert.arithmetic.elementary import HALF_PI, LARGEST_ANGLE, LN2, PROVEN, TAIL, ElementaryFunctions

UNIT = 2.0**-53


@dataclass(frozen=True)
class Case:
    """A function between two ends, and how many units of what size it may be off."""

    true: Callable[[arb], arb]
    low: float
    high: float
    units: float
    size: Callable[[arb, arb], arb] = lambda point, value: abs(value)


def one(point: arb, value: arb) -> arb:
    return arb(1)


def tail(point: arb, value: arb) -> arb:
    return abs(value) * (1 + point * point)


CASES: dict[str, Case] = {
    "exp": Case(arb.exp, -800, 709, 8),
    "expm1": Case(arb.expm1, -800, 0, 12),
    "log": Case(arb.log, 5e-324, 1.7e308, 12),
    "log1p": Case(arb.log1p, 0, 1, 6),
    "sqrt": Case(arb.sqrt, 0, 1.7e308, 4),
    "erf": Case(arb.erf, -1.7e308, 1.7e308, 64),
    "erfc": Case(arb.erfc, -1.7e308, TAIL, 64, one),
    "erfc of the tail": Case(arb.erfc, TAIL, 1.7e308, 64, tail),
    "sin": Case(arb.sin, -LARGEST_ANGLE, LARGEST_ANGLE, 8, one),
    "cos": Case(arb.cos, -LARGEST_ANGLE, LARGEST_ANGLE, 8, one),
    "tanh": Case(arb.tanh, -1.7e308, 1.7e308, 32),
}


def function(name: str) -> Callable[[Tensor], Tensor]:
    return getattr(PROVEN, name.split()[0])  # type: ignore[no-any-return]


def check(name: str, points: list[float]) -> None:
    case = CASES[name]
    computed = function(name)(torch.tensor(points, dtype=torch.float64)).tolist()
    before, ctx.prec = ctx.prec, 200
    try:
        for point, value in zip(points, computed, strict=True):
            true = case.true(arb(point))
            allowed = case.units * arb(UNIT) * case.size(arb(point), true) + arb(2) ** -1070
            assert abs(arb(value) - true) <= allowed, (name, point, value)
    finally:
        ctx.prec = before


def test_every_function_has_its_case() -> None:
    assert {field.name for field in fields(ElementaryFunctions)} == {name.split()[0] for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_functions_are_within_their_errors_at_all_exponents(name: str) -> None:
    case, draw = CASES[name], torch.Generator().manual_seed(0)
    fractions = (torch.rand(2100, generator=draw, dtype=torch.float64) + 1).tolist()
    sizes = [math.ldexp(fraction, place - 1074) for place, fraction in enumerate(fractions[:2097])]
    near = torch.linspace(0, 1, 500, dtype=torch.float64).square().tolist()
    spread = [min(30.0, high) * share for high in (abs(case.low), case.high) for share in near]
    special = [0.0, -0.0, 0.5, 1.0, math.nextafter(1, 2), math.nextafter(1, 0), TAIL, math.pi, case.low, case.high]
    points = [sign * size for sign in (1, -1) for size in (*sizes, *spread, *special)]
    check(name, [point for point in points if case.low <= point <= case.high])


@pytest.mark.parametrize("name", CASES)
@given(share=st.floats(0, 1), point=st.floats(allow_nan=False, allow_infinity=False))
def test_functions_are_within_their_errors_anywhere(name: str, share: float, point: float) -> None:
    case = CASES[name]
    low, high = max(case.low, -40.0), min(case.high, 40.0)
    check(name, [min(max(point, case.low), case.high), low + share * (high - low)])


@pytest.mark.parametrize("name", CASES)
def test_what_is_no_number_stays_none_and_what_is_too_large_is_not_finite(name: str) -> None:
    nan, infinite = function(name)(torch.tensor([math.nan, math.inf], dtype=torch.float64))
    assert nan.isnan()
    if name in ("exp", "log", "sqrt"):
        assert infinite == math.inf
    assert not function("exp")(torch.tensor([709.9], dtype=torch.float64)).isfinite()


def test_functions_are_not_defined_outside_of_their_domains() -> None:
    below = torch.tensor([-1.0, -5e-324, -math.inf], dtype=torch.float64)
    assert elementary.log(below).isnan().all()
    assert elementary.sqrt(below).isnan().all()
    far = torch.tensor([2 * LARGEST_ANGLE, -math.inf], dtype=torch.float64)
    assert elementary.sin(far).isnan().all()
    assert elementary.cos(far).isnan().all()


def test_constants_are_exact_products_and_their_rest() -> None:
    """Multiples of the first parts by whole numbers in range have at most 53 bits."""
    before, ctx.prec = ctx.prec, 300
    try:
        assert abs(sum(map(arb, LN2), arb(0)) - arb(2).log()) < arb(2) ** -100
        assert abs(sum(map(arb, HALF_PI), arb(0)) - arb.pi() / 2) < arb(2) ** -110
    finally:
        ctx.prec = before
    bits = [part.as_integer_ratio()[0].bit_length() for part in (*HALF_PI[:2], LN2[0])]
    assert max(bits[:2]) + math.log2(LARGEST_ANGLE) <= 53
    assert bits[2] + math.log2(2048) <= 53
