"""One to four operations whose numbers cancel, against exact rational values at the corners of the region.

On networks this small nothing hides a rounding error that was forgotten: where the network is affine, a corner
attains the bound.
"""

import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import Tensor

import relucert
from relucert.bounding.backward import DualVariables, bound_forms
from relucert.methods.table import METHODS, find_method
from relucert.network import Add, Linear, Network, Node, Operation, Relu, Scale, Shift
from relucert.norm import Norm
from relucert.query.property import Property
from relucert.region import Region
from relucert.rigor import RIGOROUS
from tests.nets import chain
from tests.rational import evaluate_graph, exact

SIZE = 3
AWKWARD = (1.0, -1.0, 1 / 3, -1 / 3, 0.1, 1 + 2.0**-30, -1 + 2.0**-40, 1 - 2.0**-52, 3.7, 2.0**30, -(2.0**30), 1e16)


def numbers(draw: random.Random, *shape: int) -> Tensor:
    drawn = [draw.choice(AWKWARD) * draw.choice((1, 1, 1 + 2.0**-26)) for _ in range(math.prod(shape))]
    return torch.tensor(drawn, dtype=torch.float64).reshape(shape)


def graph(*steps: tuple[Operation, tuple[int, ...]]) -> Network:
    return Network((SIZE,), tuple(Node(operation, inputs) for operation, inputs in steps))


def linear(draw: random.Random, outputs: int = SIZE) -> Linear:
    return Linear(numbers(draw, outputs, SIZE), numbers(draw, outputs))


def scale(draw: random.Random) -> Scale:
    return Scale(numbers(draw, SIZE), divide=draw.random() < 0.5)


GRAPHS: dict[str, Callable[[random.Random], Network]] = {
    "linear": lambda draw: graph((linear(draw, 2), (0,))),
    "shifts": lambda draw: graph((Shift(numbers(draw, SIZE)), (0,)), (Shift(numbers(draw, SIZE)), (1,))),
    "scale and skip": lambda draw: graph((scale(draw), (0,)), (Add(), (0, 1))),
    "two branches": lambda draw: graph((scale(draw), (0,)), (scale(draw), (0,)), (Add(), (1, 2)), (Add(), (3, 0))),
    "rectified input": lambda draw: graph((Relu(), (0,)), (scale(draw), (1,)), (Add(), (2, 0))),
    "relu less itself": lambda draw: graph(
        (linear(draw), (0,)), (Relu(), (1,)), (Scale(-torch.ones(SIZE).double(), False), (1,)), (Add(), (2, 3))
    ),
    "scaled chain": lambda draw: graph((linear(draw), (0,)), (scale(draw), (1,)), (linear(draw, 2), (2,))),
    "layers": lambda draw: graph((linear(draw), (0,)), (Relu(), (1,)), (linear(draw, 2), (2,))),
}


def corners(centre: Tensor, radius: float, norm: float) -> list[list[Fraction]]:
    middle, reach = exact(centre), Fraction(radius)
    if math.isinf(norm):
        signs = itertools.product((-1, 0, 1), repeat=SIZE)
        return [[x + sign * reach for x, sign in zip(middle, chosen, strict=True)] for chosen in signs]
    moved = [
        [x + (place == at) * sign * reach for place, x in enumerate(middle)] for at in range(SIZE) for sign in (-1, 1)
    ]
    return [middle, *moved]


@pytest.mark.parametrize("form", ["forward", "backward"])
@pytest.mark.parametrize("norm", [1.0, math.inf])
@pytest.mark.parametrize("name", GRAPHS)
def test_no_corner_of_the_ball_lies_outside_the_bounds(name: str, norm: float, form: str) -> None:
    for seed in range(25):
        draw = random.Random(seed)
        network = GRAPHS[name](draw)
        centre, radius = numbers(draw, SIZE), abs(draw.choice(AWKWARD)) * draw.choice((0, 2.0**-20, 1))
        bounds = relucert.bounds(network, Region.around(centre[None], radius, norm), form=form)
        places = sorted({*network.rectified, network.output})
        for point in corners(centre, radius, norm):
            values = evaluate_graph(network, point)
            for place, (lower, upper) in zip(places, bounds, strict=True):
                for value, low, high in zip(values[place], exact(lower[0]), exact(upper[0]), strict=True):
                    assert low <= value <= high


@pytest.mark.parametrize("norm", [1.0, math.inf])
@pytest.mark.parametrize("method", [*METHODS, "any slopes"])
@pytest.mark.parametrize("name", GRAPHS)
def test_no_corner_has_less_than_the_proven_margin(name: str, method: str, norm: float) -> None:
    for seed in range(25):
        draw = random.Random(1000 + seed)
        network = GRAPHS[name](draw)
        centre, radius = numbers(draw, SIZE), abs(draw.choice(AWKWARD)) * draw.choice((0, 2.0**-20, 1))
        region = Region(centre[None], torch.tensor([radius], dtype=torch.float64), Norm(norm))
        prop = Property.margins(torch.tensor([0]), torch.tensor([[1]]), network.classes)
        chosen = find_method("fast-lin" if method == "any slopes" else method)
        hidden = chosen.hidden(network, region, RIGOROUS)
        if method == "any slopes":
            duals = DualVariables({value: numbers(draw, 1, 1, network.sizes[value]) for value, _ in network.steps()})
            margin = bound_forms(network, region, prop.rows, network.output, hidden, RIGOROUS, duals=duals).lower
        else:
            margin = chosen.margins(network, region, prop, hidden, RIGOROUS)
        for point in corners(centre, radius, norm):
            scores = evaluate_graph(network, point)[-1]
            assert Fraction(float(margin)) <= scores[0] - scores[1]


def diagonal(*layers: tuple[float, str]) -> list[Operation]:
    """Operations on two numbers alike: a factor each, or a ReLU."""
    operations: list[Operation] = []
    for number, layer in layers:
        factor = torch.full((2,), number, dtype=torch.float64)
        operations += [
            Scale(factor, divide=False) if layer == "scale" else Linear(torch.diag(factor), torch.zeros(2).double())
        ]
        operations += [Relu()] if layer == "linear, relu" else []
    return operations


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.parametrize(
    ("operations", "offset", "image", "true"),
    [
        (diagonal((1e300, "scale"), (1e-162, "scale"), (1e-162, "scale")), 1e-25, [0.0, 0.0], 0.05),
        (
            diagonal((1e150, "linear, relu"), (1e-100, "linear"), (1e-100, "linear"), (1e-130, "linear")),
            1e-181,
            [1.0, 1.0],
            0.1,
        ),
    ],
)
def test_coefficients_that_underflow_prove_nothing(
    operations: list[Operation], offset: float, image: list[float], true: float, norm: str
) -> None:
    network = chain((2,), *operations, Shift(torch.tensor([offset, 0.0], dtype=torch.float64)))
    (answer,) = relucert.certify(network, torch.tensor([image]).double(), [0], norm=norm, tolerance=1e-5)
    assert answer.radius is None or answer.radius <= 2 * true


@pytest.mark.parametrize("form", ["forward", "backward"])
def test_bounds_hold_where_coefficients_underflow_or_centres_overflow(form: str) -> None:
    factors = (1e-200, 1e-200, 1e200, 1e200)
    network = chain((1,), *(Scale(torch.tensor([factor], dtype=torch.float64), divide=False) for factor in factors))
    (both,) = relucert.bounds(network, Region.around(torch.zeros(1, 1), 1e150, "inf"), form=form)
    assert not bool(both.upper < 1e150)
    weight = 1e148 * torch.tensor([[0, 0, 1.5, -1, 0, -1, 1.5, -1]]).double()
    network = chain((8,), Linear(weight, torch.zeros(1).double()))
    centre = torch.full((1, 8), 1e160, dtype=torch.float64)
    (both,) = relucert.bounds(network, Region.around(centre, 0.0, "inf"), form=form)
    assert not bool(both.upper < 0)


def test_nothing_is_proven_while_subnormal_numbers_are_flushed() -> None:
    network = chain(
        (2,), *diagonal((1e300, "scale"), (1e-310, "scale")), Shift(torch.tensor([1e-11, 0], dtype=torch.float64))
    )
    images = torch.zeros(1, 2).double()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor can't flush subnormal numbers")
    try:
        (answer,) = relucert.certify(network, images, [0])
        with pytest.raises(ArithmeticError, match="flush"):
            relucert.bounds(network, Region.around(images, 0.1, 2))
    finally:
        torch.set_flush_denormal(False)
    assert answer.radius is None
    assert "flush" in str(answer.reason)


def _overflowing_row() -> Tensor:
    """Weights whose products with 1e160 sum to 8e307, but by way of -inf in this machine's order of summation."""
    for apart in (1, 2, 4, 8, 16):
        for order in sorted(set(itertools.permutations([-1e148, -1e148, 1.4e148, 1.4e148]))):
            row = torch.zeros(1, 4 * apart, dtype=torch.float64)
            row[0, ::apart] = torch.tensor(order, dtype=torch.float64)
            if float(torch.nn.functional.linear(torch.full_like(row, 1e160), row)) == -math.inf:
                return row
    pytest.skip("no order of these numbers overflows to -inf on this machine")


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.parametrize("method", METHODS)
def test_a_sum_that_overflows_on_its_way_certifies_nothing(method: str, norm: str) -> None:
    """In float64 the neuron is -inf and its ReLU 0, so class 0 seems to win; truly class 1 does, by far."""
    row = _overflowing_row()
    last = torch.tensor([[0.0], [1.0]], dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)
    network = chain(
        (row.shape[1],),
        Linear(row, torch.zeros(1, dtype=torch.float64)),
        Relu(),
        Scale(torch.tensor([1e-300], dtype=torch.float64), False),
        Linear(*last),
    )
    (answer,) = relucert.certify(network, torch.full_like(row, 1e160), [0], norm=norm, method=method)
    assert answer.radius is None


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("form", ["forward", "backward"])
@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, math.inf])
@pytest.mark.parametrize(("weight", "scale", "radius"), [(1e-24, 1e-300, 1e300), (0.3, 5e-324, 1e308)])
def test_what_underflows_when_it_is_scaled_is_charged(
    weight: float, scale: float, radius: float, norm: float, form: str, boxed: bool
) -> None:
    layer = Linear(torch.tensor([[weight], [0.0]], dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
    network = Network((1,), (Node(layer, (0,)),))
    reach = Fraction(scale) * Fraction(radius)
    box = (-2 * float(reach) - 1, 2 * float(reach) + 1) if boxed else None
    region = Region.around(torch.zeros(1, 1, dtype=torch.float64), radius, norm, box, [scale])
    lower = relucert.bounds(network, region, form=form)[-1].lower[0, 0]
    assert Fraction(float(lower)) <= -Fraction(weight) * reach
