"""Rounding: why it must be bounded, and that it is."""

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import relucert
from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, FLOAT, RIGOROUS, Arithmetic
from relucert.bounding.interval import Interval
from relucert.common.names import FormName, RelaxerName
from relucert.methods.table import find_method
from relucert.network import Linear, Network, Relu
from tests.nets import centres, chain, mlp
from tests.rational import crown, evaluate, exact, fast_lin


def cancelling(bits: int) -> Network:
    """f0 - f1 = 1/2 - a a x + c y with a = 1 + 2**-bits and c = 1 + 2**(1 - bits), so that a a = c + 2**(-2 bits).

    At x = y = 2**(2 bits) the margin is -1/2. In a precision too short for a a, which rounds to c, it is +1/2.
    """
    a, c = 1 + 2.0**-bits, 1 + 2.0 ** (1 - bits)
    zero = torch.zeros(2, dtype=torch.float64)

    def diagonal(*entries: float) -> Linear:
        return Linear(torch.diag(torch.tensor(entries, dtype=torch.float64)), zero)

    last = Linear(torch.tensor([[-1.0, 1.0], [0.0, 0.0]]).double(), torch.tensor([0.5, 0.0]).double())
    return chain((2,), diagonal(a, 1), Relu(), diagonal(a, c), Relu(), last)


@pytest.mark.parametrize(("bits", "plain"), [(13, FLOAT), (27, DOUBLE)], ids=["float32", "float64"])
def test_plain_bounds_claim_what_rational_arithmetic_refutes(bits: int, plain: Arithmetic) -> None:
    network, method = cancelling(bits), find_method("fast-lin")
    centre = torch.full((1, 2), 4.0**bits, dtype=torch.float64)
    prop = Property.margins(torch.tensor([0]), torch.tensor([[1]]), network.classes)
    radius = 2.0**-8

    def margin(arithmetic: Arithmetic) -> float:
        cast = network.cast(arithmetic.dtype)
        region = Region.around(centre, radius, "inf").cast(arithmetic.dtype)
        hidden = method.hidden(cast, region, arithmetic)
        return float(method.margins(cast, region, prop.cast(arithmetic.dtype), hidden, arithmetic))

    first, second = evaluate(network, exact(centre[0]))
    assert first - second == Fraction(-1, 2)
    assert margin(plain) > 0
    assert margin(RIGOROUS) < 0


def test_certify_gives_no_radius_where_only_rounding_makes_a_margin() -> None:
    network = cancelling(27)
    image = torch.full((1, 2), 4.0**27, dtype=torch.float64)
    (answer,) = relucert.certify(network, image, [0])
    assert answer.radius is None
    assert not answer.proven
    assert "no radius could be proven" in str(answer.reason)
    (unproven,) = relucert.certify(network, image, [0], arithmetic="float")
    assert not unproven.proven


@pytest.mark.parametrize("p", [1.0, math.inf])
@pytest.mark.parametrize("sizes", [(3, 4, 2), (4, 6, 5, 3), (3, 5, 5, 4, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_rigorous_bounds_contain_the_exact_rational_ones(sizes: tuple[int, ...], p: float, seed: int) -> None:
    network = mlp(*sizes, seed=seed)
    point = centres(network, 1, seed)
    _compare(network, point, 0.3, p, closeness=1e-12)


numbers = st.floats(-1e6, 1e6, allow_subnormal=True) | st.floats(-1e-6, 1e-6) | st.sampled_from([0.0, 1e-300, 2.0**52])


@settings(max_examples=60)
@given(st.lists(numbers, min_size=31, max_size=31), st.floats(0, 1e3), st.sampled_from([1.0, math.inf]))
def test_rigorous_bounds_hold_for_hostile_weights(values: list[float], radius: float, p: float) -> None:
    given_numbers = torch.tensor(values, dtype=torch.float64)
    first = Linear(given_numbers[:6].view(3, 2), given_numbers[6:9])
    second = Linear(given_numbers[9:18].view(3, 3), given_numbers[18:21])
    third = Linear(given_numbers[21:27].view(2, 3), given_numbers[27:29])
    network = chain((2,), first, Relu(), second, Relu(), third)
    _compare(network, given_numbers[None, 29:31], radius, p, closeness=None)


def _compare(network: Network, point: torch.Tensor, radius: float, p: float, closeness: float | None) -> None:
    region = Region.around(point, radius, p)
    ways: list[tuple[RelaxerName, FormName, Any]] = [
        ("fast-lin", "forward", fast_lin),
        ("fast-lin", "backward", fast_lin),
        ("crown", "backward", crown),
    ]
    for method, form, rational in ways:
        checked = relucert.bounds(network, region, method=method, form=form)
        true = rational(network, point[0], radius, p, checked)
        for (lower, upper), interval in zip(true, checked, strict=True):
            _contained(lower, upper, interval, closeness)


def _contained(lower: list[Fraction], upper: list[Fraction], interval: Interval, closeness: float | None) -> None:
    for low, high, proven_low, proven_high in zip(
        lower, upper, exact(interval.lower[0]), exact(interval.upper[0]), strict=True
    ):
        assert proven_low <= low
        assert proven_high >= high
        if closeness is not None:
            assert low - proven_low < closeness
            assert proven_high - high < closeness


@pytest.mark.parametrize("p", [1.0, 1.0001, 1.5, 2.0, 3.0, 50.0, math.inf])
def test_dual_lengths_are_upper_bounds(p: float) -> None:
    """Against Hoelder: no point of the unit region gains more, and one gains almost as much."""
    generator = torch.Generator().manual_seed(0)
    forms = torch.randn(20, 30, generator=generator, dtype=torch.float64)
    length = Norm(p).above_length(Norm(p).dual_length(forms, 1), 30, RIGOROUS)
    q = Norm(p).dual
    if math.isinf(q):
        best = torch.nn.functional.one_hot(forms.abs().argmax(1), 30) * forms.sign()
    else:
        largest = forms.abs().amax(1, keepdim=True)
        best = forms.sign() * (forms.abs() / largest) ** (q - 1)
        best = best / Norm(p).distance(best, torch.zeros(30)).unsqueeze(1)
    gained = (forms * best).sum(1)
    assert (length >= gained * (1 - 1e-14)).all()
    assert (length <= gained * (1 + 1e-9)).all()


def test_gamma_refuses_sums_without_a_bound() -> None:
    with pytest.raises(ArithmeticError, match="too long"):
        RIGOROUS.gamma(2**52)
    assert RIGOROUS.gamma(1000) >= 1000 * 2.0**-53
    assert FLOAT.gamma(1000) == 0
