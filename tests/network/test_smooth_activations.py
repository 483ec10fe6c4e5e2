"""Activations by a formula: what they say of themselves, their bounds and their slopes, with balls as the referee."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations_with_replacement

import pytest
import torch
from flint import arb, arb_series, ctx
from torch import Tensor

from relucert.arithmetic.elementary import PLAIN, PROVEN
from relucert.arithmetic.rigor import DOUBLE, FLOAT, RIGOROUS
from relucert.errors import NetworkError
from relucert.network import Elu, Exp, Log, Power, Reciprocal, Sigmoid, SmoothActivation, Softplus, Sqrt, Tanh
from tests.smooth import SMOOTH


def gated(gate: Callable[[arb_series], arb_series]) -> Callable[[arb_series], arb_series]:
    return lambda x: x * gate(x)


def sigmoid(x: arb_series) -> arb_series:
    return 1 / (1 + (-x).exp()) if x[0] >= 0 else x.exp() / (1 + x.exp())


def mish(x: arb_series) -> arb_series:
    fall = (-x if x[0] >= 0 else x).exp()
    if x[0] >= 0:
        return x - 2 * x * fall * fall / (1 + 2 * fall + 2 * fall * fall)
    return x * (fall * fall + 2 * fall) / (fall * fall + 2 * fall + 2)


def tanh(x: arb_series) -> arb_series:
    return 1 - 2 / (1 + (2 * x).exp())


def elu(alpha: float) -> Callable[[arb_series], arb_series]:
    return lambda x: x if x[0] >= 0 else alpha * (x.exp() - 1)


def hard_swish(x: arb_series) -> arb_series:
    return x if x[0] >= 3 else x * 0 if x[0] <= -3 else x * (x + 3) / 6


TRUE: dict[str, Callable[[arb_series], arb_series]] = {
    "sigmoid": sigmoid,
    "tanh": tanh,
    "erf": lambda x: x.erf(),
    "softsign": lambda x: x / (1 + x) if x[0] >= 0 else x / (1 - x),
    "softplus": lambda x: (1 + x.exp()).log(),
    "exp": lambda x: x.exp(),
    "elu": elu(1.0),
    "elu with a kink below": elu(0.4),
    "elu with a kink above": elu(1.7),
    "silu": gated(sigmoid),
    "gelu": gated(lambda x: (-x / arb(2).sqrt()).erfc() / 2),
    "gelu by tanh": gated(lambda x: sigmoid(2 * (2 / arb.pi()).sqrt() * (x + arb("0.044715") * x * x * x))),
    "mish": mish,
    "hard swish": hard_swish,
    "square": lambda x: x * x,
    "cube": lambda x: x * x * x,
    "fourth power": lambda x: x * x * x * x,
    "reciprocal": lambda x: 1 / x,
    "square root": lambda x: x.sqrt(),
    "logarithm": lambda x: x.log(),
    "sine": lambda x: x.sin(),
    "cosine": lambda x: x.cos(),
}
POSITIVE = ("reciprocal", "square root", "logarithm")
SIZES = [0.0, 5e-324, 1e-300, 1e-20, 1e-8, 0.1, 0.5, 0.7517, 1.0, 1.2784, math.sqrt(2), math.pi / 2, 2.3993572805154676]
SIZES += [3.0, math.pi, 4.0, 7.0, 13.0, 40.0, 700.0, 1e6]
FAR = {"exp": 600.0, "softplus": 1e5, "mish": 600.0, "gelu by tanh": 40.0}  # beyond, balls themselves overflow


@contextmanager
def precision(bits: int) -> Iterator[None]:
    before = ctx.prec, ctx.cap
    ctx.prec, ctx.cap = bits, 4
    try:
        yield
    finally:
        ctx.prec, ctx.cap = before


def number_tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def ends_of(name: str) -> list[float]:
    activation = SMOOTH[name]
    breakpoints = [
        float(side) for cut in (*activation.breakpoints, *activation.stationary_points) for side in (cut.low, cut.high)
    ]
    ends = [*(-size for size in SIZES), *SIZES, *breakpoints]
    kept = [end for end in ends if abs(end) <= FAR.get(name, math.inf)]
    return sorted({abs(end) for end in kept if end} if name in POSITIVE else set(kept))


def intervals(name: str) -> tuple[Tensor, Tensor]:
    """Wide ones, single points, next to breakpoints, subnormal ones and far ones: (count,) each."""
    pairs = list(combinations_with_replacement(ends_of(name), 2))
    lower, upper = (number_tensor(list(side)) for side in zip(*pairs, strict=True))
    near = upper - lower < 1e5
    return (lower[near], upper[near]) if name != "exp" else (lower, upper)


@pytest.mark.parametrize("name", SMOOTH)
def test_formulas_are_within_their_errors(name: str) -> None:
    spread = [0.37 * place for place in range(1, 80)]
    points = [
        point for size in (*ends_of(name), *spread) for point in (size, -size)
        if (point > 0 or name not in POSITIVE) and abs(point) <= FAR.get(name, 1e6)
    ]  # fmt: skip
    if name in ("hard swish", "elu with a kink below", "elu with a kink above"):
        points = [point for point in points if point not in (0.0, 3.0, -3.0)]
    terms = SMOOTH[name].formula(number_tensor(points), PROVEN)
    columns = zip(
        *(table.tolist() for table in (terms.value, terms.value_error, terms.slope, terms.slope_error)), strict=True
    )
    with precision(3000):
        for point, (value, error, slope, slope_error) in zip(points, columns, strict=True):
            true = TRUE[name](arb_series([arb(point), 1]))
            assert abs(true[0] - arb(value)) <= arb(error), point
            assert abs(true[1] - arb(slope)) <= arb(slope_error), point


@pytest.mark.parametrize("name", SMOOTH)
def test_every_point_lies_between_the_bounds(name: str) -> None:
    activation, (lower, upper) = SMOOTH[name], intervals(name)
    chosen = [activation.chord(lower, upper), *activation.slopes(lower, upper)]
    slopes = torch.stack([*chosen, *(torch.full_like(lower, slope) for slope in (-1.5, -0.1, 0.0, 0.3, 1.0, 2.0))])
    least, largest = (bound(slopes, lower, upper, RIGOROUS) for bound in (activation.least, activation.largest))
    low, high = activation.image(lower, upper, RIGOROUS)
    steep = activation.derivatives(lower, upper)
    for share in (0.0, 1e-9, 0.1, 0.25, 0.5, 0.77, 0.9, 1.0):
        point = torch.minimum(torch.maximum(lower + share * (upper - lower), lower), upper)
        terms = activation.formula(point, PROVEN)
        doubt = terms.value_error
        assert not ((low > terms.value + doubt) | (terms.value - doubt > high)).any()
        rounding = doubt + 1e-15 * (slopes * point).abs()
        height = terms.value - slopes * point
        assert not ((least > height + rounding) | (height - rounding > largest)).any()
        inner = (lower < point) & (point < upper)
        beyond = (steep[0] > terms.slope + terms.slope_error) | (terms.slope - terms.slope_error > steep[1])
        assert not (beyond & inner).any()
    assert (torch.maximum(-steep[0], steep[1]) <= activation.lipschitz + 1e-12).all()
    finite = torch.stack([least.isfinite(), largest.isfinite()]).double().mean()
    assert finite == 1 or (name in ("exp", *POSITIVE) and finite > 0.6)  # the others overflow somewhere


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.sampled
def test_bounds_are_tight(name: str) -> None:
    """Lines are as near to the graph as the graph itself, and the two lines that CROWN chooses as any other."""
    activation, draw = SMOOTH[name], torch.Generator().manual_seed(3)
    middle = 6 * torch.rand(400, generator=draw, dtype=torch.float64) - 3
    half = 3 * torch.rand(400, generator=draw, dtype=torch.float64) ** 3
    lower, upper = middle - half, middle + half
    if name in POSITIVE:
        lower, upper = lower.abs().clamp(min=0.05), lower.abs().clamp(min=0.05) + 2 * half
    points = lower + (upper - lower) * torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None]
    values = activation.formula(points, PLAIN).value
    trials = [activation.formula(points[place], PLAIN).slope for place in range(0, 2001, 100)]
    below, above = activation.slopes(lower, upper)
    chord = activation.chord(lower, upper)
    scale = (upper - lower) * (values.amax(0) - values.amin(0) + (upper - lower))
    heights, rounding = {}, 1e-12 * (1 + values.abs().amax(0))
    for number, slope in enumerate([chord, below, above, *trials]):
        differences = values - slope * points
        least, largest = (bound(slope, lower, upper, RIGOROUS) for bound in (activation.least, activation.largest))
        assert (differences.amin(0) - least <= 2e-3 * scale + rounding).all()
        assert (largest - differences.amax(0) <= 2e-3 * scale + rounding).all()
        centre = slope * (lower + upper) / 2
        heights[number] = (least + centre, largest + centre, largest - least)
    lows, highs, distances = (torch.stack(column) for column in zip(*heights.values(), strict=True))
    s_shaped = len(activation.curvatures) == 2 and activation.smooth_breakpoints
    tolerance = 0.02 * scale + 1e-9 if not s_shaped else 0.5 * scale  # CROWN's tangents go through the ends there
    assert (lows[1] >= lows.amax(0) - tolerance).all()
    assert (highs[2] <= highs.amin(0) + tolerance).all()
    assert (distances[0] <= distances.amin(0) + 0.1 * scale + 1e-9).all()


SCANNED = {"sigmoid": 0, "tanh": 0, "erf": 0, "silu": 1, "gelu": 1, "gelu by tanh": 1, "mish": 1}
"""By name, how many stationary points; for activations whose breakpoints are all zeros of the second derivative."""
EVEN = ("silu", "gelu", "gelu by tanh")  # f(x) = x + f(-x), so the second derivative is even


@pytest.mark.parametrize("name", SCANNED)
def test_cuts_and_turns_are_where_derivatives_change_their_signs_and_nowhere_else(name: str) -> None:
    activation = SMOOTH[name]
    assert len(activation.stationary_points) == SCANNED[name]
    assert name not in EVEN or activation.breakpoints[0].low == -float(activation.breakpoints[1].high)
    for derivative, breakpoints, sign in (
        (2, activation.breakpoints, activation.curvatures[0]),
        (1, activation.stationary_points, 1),
    ):
        sign = -1 if derivative == 1 and breakpoints else sign
        ends = [-20.0, *(float(side) for cut in breakpoints for side in (cut.low, cut.high)), 20.0]
        with precision(200):
            for start, end in zip(ends[::2], ends[1::2], strict=True):
                if derivative == 1 or name not in EVEN or start < 0:
                    assert has_sign(name, derivative, sign, start, min(end, 0.0) if name in EVEN and end < 20 else end)
                sign = -sign


def has_sign(name: str, derivative: int, sign: int, start: float, end: float) -> bool:
    """Whether a derivative has a sign on an interval, by bisection, except next to a zero that is exactly at 0."""
    waiting, budget = [(arb(start), arb(end))], 20_000
    while waiting and budget:
        (low, high), budget = waiting.pop(), budget - 1
        try:
            enclosed = sign * TRUE[name](arb_series([low.union(high), 1]))[derivative]
        except ValueError:  # a denominator that may be zero, for all that is known
            enclosed = arb(0)
        if not (enclosed > 0 or (0 in (low, high) and high - low < 1e-12)):
            middle = (low + high) / 2
            waiting += [(low, middle), (middle, high)]
    return not waiting


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("ends", [(math.nan, 1.0), (0.5, math.nan), (math.nan, math.nan), (-math.inf, math.inf)])
def test_bounds_that_are_no_numbers_say_nothing(name: str, ends: tuple[float, float]) -> None:
    activation, (lower, upper) = SMOOTH[name], (number_tensor([end]) for end in ends)
    for slope in (torch.ones_like(lower), activation.chord(lower, upper)):
        assert not activation.least(slope, lower, upper, RIGOROUS).isfinite()
        assert not activation.largest(slope, lower, upper, RIGOROUS).isfinite()
    if not math.isinf(ends[0]):
        assert not any(side.isfinite() for side in activation.image(lower, upper, RIGOROUS))


@pytest.mark.parametrize("activation", [Log(), Sqrt(), Reciprocal()])
def test_nothing_is_said_where_an_interval_leaves_the_domain(activation: SmoothActivation) -> None:
    lower, upper = number_tensor([-1.0, -1e-300, -2.0]), number_tensor([1.0, 3.0, 5e-324])
    slope = torch.ones_like(lower)
    lines = (bound(slope, lower, upper, RIGOROUS) for bound in (activation.least, activation.largest))
    ranges = *activation.image(lower, upper, RIGOROUS), *activation.derivatives(lower, upper)
    for bound in (*lines, *ranges):
        assert not bound.isfinite().any()


@pytest.mark.parametrize("name", SMOOTH)
def test_plain_bounds_are_the_proven_ones_up_to_rounding(name: str) -> None:
    activation = SMOOTH[name]
    lower = number_tensor([0.1, 0.3, 0.7, 1.1])
    upper = lower + number_tensor([0.5, 1.0, 1.5, 2.0])
    slope = activation.chord(lower, upper)
    for arithmetic, tolerance in ((DOUBLE, 1e-9), (FLOAT, 1e-4)):
        line, start, end = (table.to(arithmetic.dtype) for table in (slope, lower, upper))
        for bound in (activation.least, activation.largest):
            assert torch.allclose(
                bound(line, start, end, arithmetic).double(), bound(slope, lower, upper, RIGOROUS), atol=tolerance
            )


def test_bounds_have_gradients() -> None:
    for activation in (Tanh(), Softplus(), Exp()):
        lower = torch.tensor([-1.0, -0.5, 0.2], requires_grad=True)
        upper = lower + 1.5
        below, above = activation.slopes(lower, upper)
        total = (
            activation.least(below, lower, upper, FLOAT).sum() + activation.largest(above, lower, upper, FLOAT).sum()
        )
        (gradient,) = torch.autograd.grad(total, lower)
        assert gradient.isfinite().all()
        assert gradient.any()


def test_parameters_are_checked() -> None:
    for alpha in (0.0, -1.0, math.inf, math.nan, 1):
        with pytest.raises(NetworkError, match="alpha"):
            Elu(alpha)
    for exponent in (1, 0, -2, 65, 2.0):
        with pytest.raises(NetworkError, match="exponent"):
            Power(exponent)  # type: ignore[arg-type]


@pytest.mark.parametrize("activation", [Tanh(), Sigmoid()])
def test_the_slopes_of_s_shaped_activations_are_those_of_the_paper(activation: SmoothActivation) -> None:
    """CROWN's table: the tangent in the middle, the secant, or the tangent through an end, by bisection."""
    draw = torch.Generator().manual_seed(5)
    ends = (6 * torch.rand(60, 2, generator=draw, dtype=torch.float64) - 3).sort(1).values.tolist()

    def value(z: float) -> float:
        return float(activation.formula(number_tensor([z]), PLAIN).value)

    def slope(z: float) -> float:
        return float(activation.formula(number_tensor([z]), PLAIN).slope)

    def through(end: float, far: float) -> float:
        near, beyond = 0.0, far
        for _ in range(60):
            middle = (near + beyond) / 2
            steeper = slope(middle) * (middle - end) * (1 if far > end else -1)
            rise = (value(middle) - value(end)) * (1 if far > end else -1)
            near, beyond = (middle, beyond) if steeper > rise else (near, middle)
        return (value(near) - value(end)) / (near - end)

    for lower, upper in ends:
        secant = (value(upper) - value(lower)) / (upper - lower)
        middle = slope((lower + upper) / 2)
        if lower >= 0:
            expected = secant, middle
        elif upper <= 0:
            expected = middle, secant
        else:
            expected = through(upper, lower), through(lower, upper)
        found = activation.slopes(number_tensor([lower]), number_tensor([upper]))
        assert [float(side) for side in found] == pytest.approx(expected, abs=1e-9)
