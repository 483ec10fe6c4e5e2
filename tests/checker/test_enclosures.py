"""The checker's smooth activations: its formulas, pieces and offsets, against others in balls of their own."""

import math
import random

import pytest
import torch
from flint import arb, arb_series, ctx, fmpq
from torch import Tensor

from relucert.arithmetic.rigor import RIGOROUS
from relucert.checker.activations import FUNCTIONS, SmoothFunction, smooth_function
from relucert.checker.enclosures import BOUND_BITS, Enclosed
from relucert.checker.entries import Rejected
from relucert.checker.fixed_point import Fixed
from relucert.checker.lines import on_grid
from relucert.errors import UnsupportedError
from relucert.network import Node, Power, SmoothActivation
from relucert.network import registry as registered
from relucert.network.piecewise_linear import PiecewiseLinear
from tests.network.test_smooth_activations import TRUE
from tests.smooth import SMOOTH

POSITIVE = ("reciprocal", "square root", "logarithm")
SAMPLES = 60


def function_of(name: str) -> SmoothFunction:
    return smooth_function(Node(SMOOTH[name], (0,)))


def hostile_intervals(name: str, count: int) -> tuple[Tensor, Tensor]:
    """Of all widths, around 0, inflection points and far away; where a function is not defined everywhere, inside."""
    draw = random.Random(name)
    activation = SMOOTH[name]
    breakpoints = [0.0, *(float(cut.low) for cut in activation.breakpoints if isinstance(cut.low, float))]
    lower, upper = [], []
    for place in range(count):
        centre = draw.choice([draw.choice(breakpoints), draw.gauss(0, 3), draw.gauss(0, 1), draw.choice([-30.0, 30.0])])
        width = 10.0 ** draw.uniform(-9, 1.2)
        low, high = centre - width * draw.random(), centre + width * draw.random()
        if name in POSITIVE:
            shift = 10.0 ** draw.uniform(-3, 1)
            low, high = shift, shift + width
        low, high = sorted((low, high))
        lower.append(low if place else high)  # the first one is a point
        upper.append(high)
    return torch.tensor(lower, dtype=torch.float64), torch.tensor(upper, dtype=torch.float64)


def enclosed(name: str, lower: Tensor, upper: Tensor) -> tuple[Enclosed, list[fmpq], list[fmpq]]:
    """The function between bounds, and the bounds as they are: integers over 2**64, rounded outwards."""
    low = [math.floor(number * 2**BOUND_BITS) for number in lower.tolist()]
    high = [math.ceil(number * 2**BOUND_BITS) for number in upper.tolist()]
    first, last = ([fmpq(number, 1 << BOUND_BITS) for number in side] for side in (low, high))
    return Enclosed(function_of(name), low, high), first, last


def numbers(fixed: Fixed) -> list[arb]:
    with ctx.workprec(400):
        return [arb(units) * arb(2) ** -fixed.bits for units in fixed.units.tolist()]


def test_every_activation_is_known_or_refused_by_name() -> None:
    smooth = {name for name, kind in registered._REGISTRY.items() if issubclass(kind, SmoothActivation)}
    assert smooth == set(FUNCTIONS) == {activation.name for activation in SMOOTH.values()}
    assert PiecewiseLinear.name not in FUNCTIONS
    broken = Power(2)
    object.__setattr__(broken, "exponent", 1)
    with pytest.raises(UnsupportedError, match="exponents"):
        smooth_function(Node(broken, (0,)))


@pytest.mark.parametrize("name", SMOOTH)
def test_formulas_are_those_of_the_function(name: str) -> None:
    draw, function = random.Random(name), function_of(name)
    with ctx.workprec(200):
        for _ in range(SAMPLES):
            point = draw.gauss(0, 1) * 10.0 ** draw.uniform(-3, 1.3)
            x = arb(abs(point) if name in POSITIVE else point)
            pieces = function.pieces(x, x)
            assert pieces is not None
            met = [piece for piece in pieces if not (_after(piece.start, x) or _after(x, piece.end))]
            assert met
            true = TRUE[name](arb_series([x, 1]))
            for piece in met:
                assert piece.value(x).overlaps(true[0])
                assert piece.slope(x).overlaps(true[1])
                rough = float(function.slope(torch.tensor(float(x.mid()), dtype=torch.float64)))
                assert rough == pytest.approx(float(true[1].mid()), rel=1e-6, abs=1e-9)


def _after(one: arb | None, other: arb | None) -> bool:
    return one is not None and other is not None and one > other


@pytest.mark.parametrize("name", SMOOTH)
def test_pieces_are_those_that_are_proven(name: str) -> None:
    """They end at the activation's breakpoints, where the tests of activations prove that the curvature changes."""
    activation, function = SMOOTH[name], function_of(name)
    with ctx.workprec(200):
        pieces = function.pieces(arb(1), arb(2))
        assert pieces is not None
        if name in ("sine", "cosine"):
            for piece in pieces:
                assert piece.start is not None
                assert piece.end is not None
                middle = (piece.start + piece.end) / 2
                assert piece.curvature * -piece.value(middle) > 0.9
                assert abs(piece.value(piece.start)) < 1e-40
                assert abs(piece.end - piece.start - arb.pi()) < 1e-40
            return
        if name in ("square root", "logarithm"):
            assert [piece.curvature for piece in pieces] == [activation.curvatures[-1]]
            return
        curvatures, breakpoints = list(activation.curvatures), list(activation.breakpoints)
        if name == "elu":  # the checker cuts every ELU at 0
            curvatures, breakpoints = [1, 1], []
        assert [piece.curvature for piece in pieces] == curvatures
        for piece, cut in zip(pieces, breakpoints, strict=False):
            assert piece.end is not None
            assert float(piece.end.rad()) < 1e-14
            assert arb(float(cut.low)) <= piece.end.upper()
            assert arb(float(cut.high)) >= piece.end.lower()


@pytest.mark.parametrize("name", SMOOTH)
def test_offsets_enclose_the_function_and_are_no_looser_than_a_search_has_them(name: str) -> None:
    lower, upper = hostile_intervals(name, 24)
    activation, draw = SMOOTH[name], random.Random(name)
    checked, low, high = enclosed(name, lower, upper)
    middle = activation.derivative((lower + upper) / 2).nan_to_num(0, 0, 0)
    for slopes in (middle, torch.zeros_like(lower), activation.chord(lower, upper).nan_to_num(0, 0, 0), -3 * middle):
        slopes = on_grid(slopes)
        below, above = numbers(checked.offsets(slopes, 1)), numbers(checked.offsets(slopes, -1))
        searched = activation.least(slopes, lower, upper, RIGOROUS), activation.largest(slopes, lower, upper, RIGOROUS)
        largest = max(abs(float(number.mid())) for number in (*below, *above))  # fixed point has 57 bits of it
        room = 2.0**-48 * (1 + largest + float((slopes.abs() * (lower.abs() + upper.abs())).max()))
        with ctx.workprec(200):
            for place, slope in enumerate(slopes.tolist()):
                for share in (0.0, 1.0, draw.random(), draw.random()):
                    z = arb(low[place]) + (arb(high[place]) - arb(low[place])) * arb(share)
                    height = TRUE[name](arb_series([z, 1]))[0] - arb(slope) * z
                    assert below[place] <= height.upper()
                    assert above[place] >= height.lower()
                assert float(below[place].mid()) >= float(searched[0][place]) - room
                assert float(above[place].mid()) <= float(searched[1][place]) + room


@pytest.mark.parametrize("name", POSITIVE)
def test_a_domain_that_is_left_is_refused(name: str) -> None:
    one, unit = 1 << BOUND_BITS, 1
    for low, high in ((-one, one), (-unit, one)):
        with pytest.raises(Rejected, match="domain"):
            Enclosed(function_of(name), [low], [high])
    if name != "square root":
        with pytest.raises(Rejected, match="domain"):
            Enclosed(function_of(name), [0], [one])


def test_numbers_that_are_too_large_are_refused() -> None:
    far = [2000 << BOUND_BITS]
    with pytest.raises(Rejected, match="too large"):
        _ = Enclosed(function_of("exp"), far, far).image


def test_a_wave_over_many_periods_lies_between_its_extremes() -> None:
    one = 1 << BOUND_BITS
    low, high = Enclosed(function_of("sine"), [-1000 * one, 10**15 * one], [1000 * one, (10**15 + 1) * one]).image
    assert [float(number.mid()) for number in numbers(low)] == [-1.0, -1.0]
    assert [float(number.mid()) for number in numbers(high)] == [1.0, 1.0]


def test_offsets_are_kept_by_neuron_slope_and_side() -> None:
    """Tables with a row per form, of which only some numbers are needed."""
    lower, upper = hostile_intervals("silu", 5)
    checked, _, _ = enclosed("silu", lower, upper)
    slopes = on_grid(torch.rand(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    where = slopes > 0.4
    table = checked.offsets(slopes, 1, where)
    for row in range(4):
        alone = checked.offsets(slopes[row], 1)
        wanted = torch.where(where[row], alone.units.double() * 2.0**-alone.bits, 0)
        assert torch.allclose(table.units[row].double() * 2.0**-table.bits, wanted, rtol=0, atol=1e-12)
