"""One to four operations whose numbers cancel, against exact rational values at the corners of the region.

On networks this small nothing hides a rounding error that was forgotten: where the network is affine, a corner
attains the bound.
"""

import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import pytest
import torch
from torch import Tensor

import relucert
from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.backward import DualVariables, bound_forms
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import FAST_LIN
from relucert.common.names import FormName, MethodName, RelaxerName
from relucert.errors import RelucertError
from relucert.methods.table import METHODS, find_method, suited_network
from relucert.network import (
    Add,
    BatchScale,
    Convolution,
    IndexMap,
    Layer,
    Linear,
    Network,
    Node,
    Relu,
    Reshape,
    Scale,
    Shift,
)
from tests.method_tables import FORMS
from tests.nets import chain, mlp
from tests.rational import evaluate_graph, exact

SIZE = 3
AWKWARD = (1.0, -1.0, 1 / 3, -1 / 3, 0.1, 1 + 2.0**-30, -1 + 2.0**-40, 1 - 2.0**-52, 3.7, 2.0**30, -(2.0**30), 1e16)


def numbers(draw: random.Random, *shape: int) -> Tensor:
    drawn = [draw.choice(AWKWARD) * draw.choice((1, 1, 1 + 2.0**-26)) for _ in range(math.prod(shape))]
    return torch.tensor(drawn, dtype=torch.float64).reshape(shape)


def graph(*steps: tuple[Layer, tuple[int, ...]]) -> Network:
    return Network((SIZE,), tuple(Node(operation, inputs) for operation, inputs in steps))


def linear(draw: random.Random, outputs: int = SIZE) -> Linear:
    return Linear(numbers(draw, outputs, SIZE), numbers(draw, outputs))


def scale(draw: random.Random) -> Scale:
    return Scale(numbers(draw, SIZE), divide=draw.random() < 0.5)


def convolution(draw: random.Random, outputs: int = 2, channels: int = 1) -> Convolution:
    """On (channels, 1, 3), with padding: rows of one and of two or three products."""
    weight = numbers(draw, outputs, channels, 1, 2)
    return Convolution(weight, numbers(draw, outputs), (1, SIZE), (1, 2), (0, 1, 0, 1), (1, 1), 1)


def batch_scale(draw: random.Random, *shape: int) -> BatchScale:
    """Variances whose sum with epsilon rounds, roots that round, and quotients that do."""
    epsilon = draw.choice((1e-5, 2.0**-60, 1 / 3))
    return BatchScale(numbers(draw, *shape), numbers(draw, *shape).abs(), epsilon)


def images(*steps: tuple[Layer, tuple[int, ...]]) -> Network:
    """Of operations on (1, 1, 3), then flat; value 1 is the image itself."""
    return graph((Reshape((SIZE,), (1, 1, SIZE)), (0,)), *steps)


def picked(draw: random.Random, size: int) -> IndexMap:
    places = [draw.choice((-1, *range(size))) for _ in range(4)]
    return IndexMap.of(torch.tensor(places).reshape(2, 1, 2), (size // 2, 1, 2))


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
    "convolution": lambda draw: images((convolution(draw), (1,)), (Reshape((2, 1, 2), (4,)), (2,))),
    "batch scale": lambda draw: images(
        (batch_scale(draw, SIZE), (1,)), (batch_scale(draw, 1, 1, 1), (2,)), (Reshape((1, 1, SIZE), (SIZE,)), (3,))
    ),
    "index map": lambda draw: images(
        (convolution(draw), (1,)), (picked(draw, 4), (2,)), (Add(), (2, 3)), (Reshape((2, 1, 2), (4,)), (4,))
    ),
    "batch normalisation": lambda draw: images(
        (convolution(draw), (1,)),
        (Shift(numbers(draw, 2, 1, 1)), (2,)),
        (batch_scale(draw, 2, 1, 1), (3,)),
        (Shift(numbers(draw, 2, 1, 1)), (4,)),
        (Relu(), (5,)),
        (picked(draw, 4), (6,)),
        (Reshape((2, 1, 2), (4,)), (7,)),
    ),
    "convolutions": lambda draw: images(
        (convolution(draw, 1), (1,)),
        (Relu(), (2,)),
        (Convolution(numbers(draw, 2, 1, 1, 2), numbers(draw, 2), (1, 2), (1, 1), (0, 1, 0, 1), (1, 2), 1), (3,)),
        (Reshape((2, 1, 2), (4,)), (4,)),
    ),
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


def ball(name: str, draw: random.Random) -> tuple[Network, Tensor, float]:
    """A network, a centre and a radius."""
    network = GRAPHS[name](draw)
    return network, numbers(draw, SIZE), abs(draw.choice(AWKWARD)) * draw.choice((0, 2.0**-20, 1))


@cache
def values_at_corners(name: str, seed: int, norm: float) -> list[list[list[Fraction]]]:
    """Every value of the network of a seed at each corner of its ball, exactly."""
    network, centre, radius = ball(name, random.Random(seed))
    return [evaluate_graph(network, point) for point in corners(centre, radius, norm)]


@cache
def least_margin_at_corners(name: str, seed: int, norm: float) -> Fraction:
    """By how much the first output is ahead of the second at the worst corner."""
    return min(values[-1][0] - values[-1][1] for values in values_at_corners(name, seed, norm))


@cache
def extremes_at_corners(name: str, seed: int, norm: float) -> list[list[tuple[Fraction, Fraction]]]:
    """The least and the largest number at any corner, for every value of the network and each of its coordinates."""
    by_value = zip(*values_at_corners(name, seed, norm), strict=True)
    return [[(min(numbers), max(numbers)) for numbers in zip(*corner, strict=True)] for corner in by_value]


@pytest.mark.parametrize(("method", "form"), FORMS)
@pytest.mark.parametrize("norm", [1.0, math.inf])
@pytest.mark.parametrize("name", GRAPHS)
def test_no_corner_of_the_ball_lies_outside_the_bounds(
    name: str, norm: float, method: RelaxerName, form: FormName
) -> None:
    for seed in range(25):
        network, centre, radius = ball(name, random.Random(seed))
        bounds = relucert.bounds(network, Region.around(centre[None], radius, norm), method=method, form=form)
        neurons = sorted({*network.preactivations, network.output})
        for value, (lower, upper) in zip(neurons, bounds, strict=True):
            extremes = extremes_at_corners(name, seed, norm)[value]
            for (least, largest), low, high in zip(extremes, exact(lower[0]), exact(upper[0]), strict=True):
                assert low <= least
                assert largest <= high


@pytest.mark.parametrize("norm", [1.0, math.inf])
@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", [*METHODS, "any slopes", "any signs"])
@pytest.mark.parametrize("name", GRAPHS)
def test_no_corner_has_less_than_the_proven_margin(name: str, method: str, norm: float) -> None:
    for seed in range(1000, 1025):
        draw = random.Random(seed)
        network, centre, radius = ball(name, draw)
        region = Region(centre[None], torch.tensor([radius], dtype=torch.float64), Norm(norm))
        prop = Property.margins(torch.tensor([0]), torch.tensor([[1]]), network.classes)
        chosen = find_method("fast-lin" if method.startswith("any") else method)
        hidden = chosen.hidden(network, region, RIGOROUS)
        if method.startswith("any"):
            duals = DualVariables({value: numbers(draw, 1, 1, network.sizes[value]) for value, _ in network.steps()})
            if method == "any signs":
                duals.multipliers.update(
                    {value: numbers(draw, 1, 1, network.sizes[value]) for value, _ in network.steps()}
                )
                duals.signs.update(signs := _signs(draw, network))
            path = ReferencePath(network, region, hidden, FAST_LIN, RIGOROUS, upper=True)
            margin = bound_forms(path, network.output, prop.rows, duals=duals).lower
        else:
            margin = chosen.margins(network, region, prop, hidden, RIGOROUS)
        if method == "sdp" and not float(margin) > 0:
            continue  # as computed: it claims nothing
        if method != "any signs":
            assert Fraction(float(margin)) <= least_margin_at_corners(name, seed, norm)
            continue
        for values in values_at_corners(name, seed, norm):
            if _has_signs(network, values, signs):
                assert Fraction(float(margin)) <= values[-1][0] - values[-1][1]


def _signs(draw: random.Random, network: Network) -> dict[int, torch.Tensor]:
    return {
        value: torch.tensor([[[draw.choice((-1.0, 0.0, 0.0, 1.0)) for _ in range(network.sizes[value])]]]).double()
        for value, node in network.steps()
        if isinstance(node.operation, Relu)
    }


def _has_signs(network: Network, values: list[list[Fraction]], signs: dict[int, torch.Tensor]) -> bool:
    return all(
        sign * number >= 0
        for value, table in signs.items()
        for sign, number in zip(table.flatten().tolist(), values[network.source(value)], strict=True)
    )


def diagonal(*layers: tuple[float, str], size: int = 2) -> list[Layer]:
    """Operations on flat numbers alike: a factor each, as a layer of some sort, or with a ReLU after it."""
    operations: list[Layer] = []
    for number, layer in layers:
        factor = torch.full((size,), number, dtype=torch.float64)
        if layer == "scale":
            operations.append(Scale(factor, divide=False))
        elif layer == "batch scale":
            operations.append(BatchScale(factor, torch.ones(size, dtype=torch.float64), 0.0))
        elif layer == "convolution":
            kernel = torch.full((1, 1, 1, 1), number, dtype=torch.float64)
            zero = torch.zeros(1, dtype=torch.float64)
            operations += [
                Reshape((size,), (1, 1, size)),
                Convolution(kernel, zero, (1, size), (1, 1), (0, 0, 0, 0), (1, 1), 1),
                IndexMap.of(torch.arange(size), (1, 1, size)),
            ]
        else:
            operations.append(Linear(torch.diag(factor), torch.zeros(size).double()))
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
        (
            diagonal((1e300, "convolution"), (1e-162, "convolution"), (1e-162, "convolution")),
            1e-25,
            [0.0, 0.0],
            0.05,
        ),
        (
            diagonal((1e300, "batch scale"), (1e-162, "convolution"), (1e-162, "batch scale")),
            1e-25,
            [0.0, 0.0],
            0.05,
        ),
    ],
)
def test_coefficients_that_underflow_prove_nothing(
    operations: list[Layer], offset: float, image: list[float], true: float, norm: str
) -> None:
    network = chain((2,), *operations, Shift(torch.tensor([offset, 0.0], dtype=torch.float64)))
    (answer,) = relucert.certify(network, torch.tensor([image]).double(), [0], norm=norm, tolerance=1e-5)
    assert answer.radius is None or answer.radius <= 2 * true


@pytest.mark.parametrize("form", ["forward", "backward"])
@pytest.mark.parametrize("layer", ["scale", "linear", "convolution", "batch scale"])
@pytest.mark.parametrize("factors", [(1e-200, 1e-200, 1e200, 1e200), (5e-310, 1e-14, 1e200, 1e124)])
def test_bounds_hold_where_coefficients_underflow(factors: tuple[float, ...], layer: str, form: FormName) -> None:
    if layer == "batch scale" and factors[0] < 1e-300:
        pytest.skip("batch scales of subnormal factors are refused")
    network = chain((1,), *diagonal(*((factor, layer) for factor in factors), size=1))
    (both,) = relucert.bounds(network, Region.around(torch.zeros(1, 1), 1e150, "inf"), form=form)
    assert not bool(both.upper < 1e150)


def sum_of_all(row: Tensor, convolve: bool) -> list[Layer]:
    """One weighted sum of all flat inputs, as a layer of one neuron; row: (1, inputs)."""
    zero, width = torch.zeros(1, dtype=torch.float64), row.shape[1]
    if not convolve:
        return [Linear(row, zero)]
    layer = Convolution(row[None, None], zero, (1, width), (1, 1), (0, 0, 0, 0), (1, 1), 1)
    return [Reshape((width,), (1, 1, width)), layer, Reshape((1, 1, 1), (1,))]


@pytest.mark.parametrize("convolve", [False, True])
@pytest.mark.parametrize("form", ["forward", "backward"])
def test_bounds_hold_where_centres_overflow(form: FormName, convolve: bool) -> None:
    weight = 1e148 * torch.tensor([[0, 0, 1.5, -1, 0, -1, 1.5, -1]]).double()
    network = chain((8,), *sum_of_all(weight, convolve))
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
        for ask in (
            lambda: relucert.bounds(network, Region.around(images, 0.1, 2)),
            lambda: relucert.certify(network, images, [0], method="best", budget=1),
            lambda: relucert.exact(network, images, [0]),
            lambda: relucert.verify(network, relucert.Query.within([0, 0], [1, 1], [([[1, 0]], [0])])),
            lambda: relucert.robust_at(network, images, [0], radius=0.1),
        ):
            with pytest.raises(RelucertError, match="flush"):
                ask()
    finally:
        torch.set_flush_denormal(False)
    assert answer.radius is None
    assert "flush" in str(answer.reason)


@cache
def _overflowing_row(convolve: bool) -> Tensor:
    """Weights whose products with 1e160 sum to 8e307, but by way of -inf in this machine's order of summation."""
    for apart in (1, 2, 4, 8, 16):
        for order in sorted(set(itertools.permutations([-1e148, -1e148, 1.4e148, 1.4e148]))):
            row = torch.zeros(1, 4 * apart, dtype=torch.float64)
            row[0, ::apart] = torch.tensor(order, dtype=torch.float64)
            layer = chain((row.shape[1],), *sum_of_all(row, convolve))
            if float(layer(torch.full_like(row, 1e160))) == -math.inf:
                return row
    pytest.skip("no order of these numbers overflows to -inf on this machine")


@cache
def overflowing(convolve: bool) -> tuple[Network, Tensor]:
    """In float64 the neuron is -inf and its ReLU 0, so class 0 seems to win; truly class 1 does, by far."""
    row = _overflowing_row(convolve)
    last = torch.tensor([[0.0], [1.0]], dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)
    network = chain(
        (row.shape[1],),
        *sum_of_all(row, convolve),
        Relu(),
        Scale(torch.tensor([1e-300], dtype=torch.float64), False),
        Linear(*last),
    )
    return network, torch.full_like(row, 1e160)


@pytest.mark.parametrize(("norm", "convolve"), [("inf", False), ("2", False), ("1", False), ("inf", True)])
@pytest.mark.parametrize("method", METHODS)
def test_a_sum_that_overflows_on_its_way_proves_nothing(method: MethodName, norm: str, convolve: bool) -> None:
    """In no ball, nor at the point itself."""
    network, centre = overflowing(convolve)
    prover, prop = find_method(method), Property.margins(torch.tensor([0]), torch.tensor([[1]]), 2)
    suited = suited_network(prover, network, RIGOROUS).cast(torch.float64)
    for radius in (0.0, 1e-9, 1.0, 1e30, 1e140):
        region = Region.around(centre, radius, norm)
        with torch.inference_mode():
            margin = prover.margins(suited, region, prop, prover.hidden(suited, region, RIGOROUS), RIGOROUS)
        assert not bool(margin > 0), radius


@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", METHODS)
def test_a_sum_that_overflows_on_its_way_certifies_nothing(method: MethodName) -> None:
    network, centre = overflowing(convolve=False)
    (answer,) = relucert.certify(network, centre, [0], method=method)
    assert answer.radius is None


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("form", ["forward", "backward"])
@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, math.inf])
@pytest.mark.parametrize(("weight", "scale", "radius"), [(1e-24, 1e-300, 1e300), (0.3, 5e-324, 1e308)])
def test_what_underflows_when_it_is_scaled_is_charged(
    weight: float, scale: float, radius: float, norm: float, form: FormName, boxed: bool
) -> None:
    layer = Linear(torch.tensor([[weight], [0.0]], dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
    network = Network((1,), (Node(layer, (0,)),))
    reach = Fraction(scale) * Fraction(radius)
    box = (-2 * float(reach) - 1, 2 * float(reach) + 1) if boxed else None
    region = Region.around(torch.zeros(1, 1, dtype=torch.float64), radius, norm, box, [scale])
    lower = relucert.bounds(network, region, form=form)[-1].lower[0, 0]
    assert Fraction(float(lower)) <= -Fraction(weight) * reach


def test_no_verdict_is_proven_by_a_process_that_flushes_subnormal_numbers() -> None:
    """Also where it was asked by one that does not, as by workers of a cluster."""
    network = mlp(2, 4, 2)
    verdicts = relucert.robust_at_each(network, torch.zeros(1, 2), radius=1e-9)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor can't flush subnormal numbers")
    try:
        (verdict,) = verdicts
    finally:
        torch.set_flush_denormal(False)
    assert verdict.status == "unknown"
    assert verdict.failed
    assert "flush" in str(verdict.reason)
