"""Bounds in fixed point: against the same lines in fractions, and against points of the region."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from math import prod

import pytest
import torch
from torch import Tensor

import relucert
from relucert.arithmetic.forms import Shape
from relucert.checker.fixed_layers import LAYERS, fixed_layers
from relucert.checker.fixed_point import Fixed
from relucert.checker.fixed_region import FixedRegion
from relucert.checker.lines import BOUND_BITS, SLOPE_BITS, ChosenLines, IntegerInterval, adaptive
from relucert.checker.relaxation import FixedRelaxation
from relucert.network import Affine, Convolution, Layer, Network, Node, Reshape
from tests.nets import NETWORKS, centres, mlp
from tests.network.test_convolution import CHANNELS, GEOMETRIES, SIZE, convolution
from tests.network.test_operations import CASES

UNIT = 1 << BOUND_BITS
Numbers = list[Fraction]
REGIONS: dict[str, tuple[float, float, bool, bool]] = {
    "inf": (math.inf, 0.1, False, False),
    "inf in a box": (math.inf, 0.4, True, True),
    "2": (2.0, 0.3, False, False),
    "2 scaled": (2.0, 0.3, False, True),
    "2 in a box": (2.0, 0.8, True, False),
    "2 in a box, scaled": (2.0, 0.8, True, True),
    "1": (1.0, 0.5, False, True),
    "1 in a box": (1.0, 1.2, True, False),
    "1 in a box, scaled": (1.0, 1.2, True, True),
}


def scale_of(size: int) -> list[float]:
    return [(0.5, 1.0, 0.0, 2.0)[place % 4] for place in range(size)]


def region_of(name: str, centre: Tensor) -> FixedRegion:
    norm, radius, boxed, scaled = REGIONS[name]
    box = ((centre - 0.25).tolist(), (centre + 0.125).tolist()) if boxed else None
    return FixedRegion.ball(centre.tolist(), norm, radius, box, scale_of(len(centre)) if scaled else None)


def points_of(name: str, centre: Tensor, count: int) -> Tensor:
    """Points of the region, most of them on its surface."""
    norm, radius, boxed, scaled = REGIONS[name]
    chance = torch.Generator().manual_seed(5)
    steps = torch.randn(count, len(centre), generator=chance, dtype=torch.float64)
    steps *= torch.rand(count, len(centre), generator=chance, dtype=torch.float64) < 0.5
    steps = steps.sign() if norm == math.inf else steps
    length = steps.norm(p=norm, dim=1, keepdim=True).clamp(min=1e-9)
    steps = steps / length * radius * (1 - 1e-12)
    steps *= torch.tensor(scale_of(len(centre)), dtype=torch.float64) if scaled else 1.0
    points: Tensor = centre + (steps.clamp(-0.25, 0.125) if boxed else steps)
    return points


def bounds_of(relaxation: FixedRelaxation, crown: bool = False) -> dict[int, IntegerInterval]:
    bounds: dict[int, IntegerInterval] = {}
    slopes: dict[int, Tensor] = {}
    for value in relaxation.network.preactivations:
        bounds[value] = relaxation.enclose(value, bounds, ChosenLines(dict(slopes)))
        for relu, node in relaxation.network.steps():
            if crown and node.operation.name == "relu" and node.inputs[0] == value:
                slopes[relu] = adaptive(bounds[value])
    return bounds


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("name", NETWORKS)
def test_points_are_within_the_bounds(name: str, region: str) -> None:
    network = NETWORKS[name]()
    centre = centres(network, 1)[0]
    relaxation = FixedRelaxation.of(network, region_of(region, centre))
    values = network.cast(torch.float64).values(points_of(region, centre, 300))
    for crown in (False, True):
        for value, interval in bounds_of(relaxation, crown).items():
            lower, upper = (torch.tensor([end / UNIT for end in side]) for side in (interval.lower, interval.upper))
            assert bool((values[value] >= lower - 1e-6).all())
            assert bool((values[value] <= upper + 1e-6).all())


@pytest.mark.parametrize("crown", [False, True])
@pytest.mark.parametrize("name", [*NETWORKS, "a maximum"])
def test_bounds_are_those_of_the_methods(name: str, crown: bool) -> None:
    """Up to the rounding of chords: whatever units the numbers of joined branches have."""
    network = pooled() if name == "a maximum" else NETWORKS[name]()
    centre = centres(network, 1)[0]
    found = bounds_of(FixedRelaxation.of(network, FixedRegion.ball(centre.tolist(), 2.0, 0.3)), crown)
    region = relucert.Region.around(centre[None], 0.3, norm="2")
    intervals = relucert.bounds(network, region, method="crown" if crown else "fast-lin", form="backward")
    for interval, other in zip(found.values(), intervals, strict=False):
        for side, expected in ((interval.lower, other.lower), (interval.upper, other.upper)):
            numbers = torch.tensor([end / UNIT for end in side], dtype=torch.float64)
            torch.testing.assert_close(numbers, expected[0], rtol=1e-7, atol=1e-7)


def pooled() -> Network:
    """A maximum over windows, as selections, sums and ReLUs of whole numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [torch.nn.Conv2d(1, 3, 3), torch.nn.MaxPool2d(2), torch.nn.ReLU6(), torch.nn.Flatten()]
        return relucert.load(torch.nn.Sequential(*layers, torch.nn.Linear(12, 3)).eval(), input_shape=(1, 6, 6))


@pytest.mark.parametrize("region", ["inf", "2 in a box", "1 in a box, scaled"])
@pytest.mark.parametrize("name", ["three layers", "residual", "convolutional", "image residual"])
def test_free_choices_are_sound(name: str, region: str) -> None:
    """With any slopes, signs and multipliers, of all forms or of each of them, where the signs hold."""
    network = NETWORKS[name]()
    centre, chance = centres(network, 1)[0], torch.Generator().manual_seed(7)
    relaxation = FixedRelaxation.of(network, region_of(region, centre))
    bounds = bounds_of(relaxation)
    values = network.cast(torch.float64).values(points_of(region, centre, 300))
    forms = torch.randn(40, network.classes, generator=chance, dtype=torch.float64)
    for own in (False, True):
        slopes, signs, multipliers = {}, {}, {}
        for value, node in network.steps():
            if node.operation.name == "relu":
                shape = (40, network.sizes[value]) if own else (network.sizes[value],)
                slopes[value] = torch.randint(-9, (1 << SLOPE_BITS) + 9, shape, generator=chance)
                multipliers[value] = torch.randn(shape, generator=chance, dtype=torch.float64)
                split = torch.rand(shape, generator=chance) < 0.03
                side = torch.randint(0, 2, shape, generator=chance) * 2 - 1
                signs[node.inputs[0]] = torch.where(split, side, 0)
        least = relaxation.least(network.output, forms, bounds, ChosenLines(slopes, signs, multipliers))
        met = 0
        for place, (form, bound) in enumerate(zip(forms, least, strict=True)):
            holds = torch.ones(300, dtype=torch.bool)
            for source, table in signs.items():
                holds &= ((values[source] * (table[place] if own else table)) >= 0).all(1)
            met += int(holds.sum())
            assert bool((values[-1][holds] @ form >= bound / UNIT - 1e-6).all())
        assert met > 0


def test_signs_are_not_worth_less_than_bounds_that_tell_them() -> None:
    network = mlp(6, 10, 8, 4, seed=1)
    centre = centres(network, 1)[0]
    relaxation = FixedRelaxation.of(network, region_of("inf", centre))
    bounds = bounds_of(relaxation)
    first = network.preactivations[0]
    neuron = bounds[first].unstable.nonzero().flatten()[0]
    forms = torch.eye(4, dtype=torch.float64)
    for sign in (1, -1):
        signs = torch.zeros(10, dtype=torch.int64)
        signs[neuron] = sign
        lower, upper = list(bounds[first].lower), list(bounds[first].upper)
        (lower if sign > 0 else upper)[int(neuron)] = 0
        split = {**bounds, first: IntegerInterval(lower, upper)}
        by_signs = relaxation.least(network.output, forms, bounds, ChosenLines(signs={first: signs}))
        by_bounds = relaxation.least(network.output, forms, split)
        assert max(abs(one - two) for one, two in zip(by_signs, by_bounds, strict=True)) < UNIT * 1e-12


def exact_lines(
    network: Network, bounds: Mapping[int, IntegerInterval], slopes: Mapping[int, Tensor], form: Numbers
) -> Numbers:
    """A form on the outputs of a chain, pulled back in fractions: its coefficients, and last its constant."""
    constant, current = Fraction(0), form
    for value in range(network.output, 0, -1):
        node = network.node(value)
        if node.operation.name == "linear":
            weight, bias = (
                [[Fraction(number) for number in row] for row in tensor.double().reshape(len(current), -1).tolist()]
                for tensor in node.operation.tensors().values()
            )
            constant += sum(one * two[0] for one, two in zip(current, bias, strict=True))
            current = [sum((one * row[place] for one, row in zip(current, weight, strict=True)), Fraction(0))
                       for place in range(len(weight[0]))]  # fmt: skip
            continue
        pulled = []
        interval = bounds[node.inputs[0]]
        given = slopes[value].tolist()
        for number, low, high, slope in zip(current, interval.lower, interval.upper, given, strict=True):
            if high <= 0:
                pulled.append(Fraction(0))
            elif low >= 0 and (number <= 0 or slope < 0):
                pulled.append(number)
            elif number > 0:
                pulled.append(number * Fraction(max(0, slope), 1 << SLOPE_BITS))
            else:
                chord = Fraction(high, high - low)
                constant += number * -chord * Fraction(low, UNIT)
                pulled.append(number * chord)
        current = pulled
    return [*current, constant]


@pytest.mark.parametrize("seed", range(4))
def test_bounds_are_those_of_the_lines_in_fractions(seed: int) -> None:
    """Apart from the chord's slope, which is rounded to 30 bits, and from coefficients, which have 58.

    Some neurons that are on have slopes of their own, others, with the number -1, have none.
    """
    network = mlp(3, 5, 4, 2, seed=seed)
    centre, chance = centres(network, 1, seed)[0], torch.Generator().manual_seed(seed)
    low, high = ([Fraction(number) + step for number in centre.tolist()] for step in (Fraction(-1, 7), Fraction(1, 3)))
    relaxation = FixedRelaxation.of(network, FixedRegion.between(low, high))
    bounds = bounds_of(relaxation)
    slopes = {}
    for value in (2, 4):
        given = torch.randint(-(1 << SLOPE_BITS), 1 << SLOPE_BITS, (network.sizes[value],), generator=chance)
        slopes[value] = given.clamp(min=-1)
    for form in ([1.0, -1.0], [-0.3, 0.7]):
        (least,) = relaxation.least(5, torch.tensor([form], dtype=torch.float64), bounds, ChosenLines(slopes))
        *coefficients, constant = exact_lines(network, bounds, slopes, [Fraction(number) for number in form])
        truth = constant + sum(
            number * (one if number > 0 else two) for number, one, two in zip(coefficients, low, high, strict=True)
        )
        assert 0 <= truth - Fraction(least, UNIT) < Fraction(1, 10**8)


@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_a_ball_in_a_box_is_as_small_as_it_can_be(norm: float) -> None:
    """A form's least value there, by hand: for p = 1 the largest coefficients spend the radius first."""
    region = FixedRegion.ball([0.0, 0.0, 0.0], norm, 1.0, ([-0.25, -2.0, -2.0], [2.0, 2.0, 2.0]))
    (least,) = region.least(Fixed(torch.tensor([[4, 3, 0]]), 0))
    truth = -(4 * 0.25 + 3 * (0.75 if norm == 1 else math.sqrt(1 - 0.0625)))
    assert truth - 1e-12 < float(least) <= truth + 1e-15


def operation_alone(operation: Layer, shapes: tuple[Shape, ...]) -> Network:
    after = operation.shape(*shapes)
    return Network(shapes[0], (Node(operation, (0,) * len(shapes)), Node(Reshape(after, (prod(after),)), (1,))))


def assert_same(operation: Affine, shapes: tuple[Shape, ...]) -> None:
    after = operation.shape(*shapes)
    layer = fixed_layers(operation_alone(operation, shapes))[1]
    chance = torch.Generator().manual_seed(3)
    forms = torch.randint(-(2**20), 2**20, (3, prod(after)), generator=chance)
    forms[:, ::3] = 0
    pulled = layer.transpose(Fixed(forms, 20))
    found = pulled.units.double() * 2.0**-pulled.bits
    rows = (forms.double() * 2.0**-20)[None]
    for part in operation.cast(torch.float64).transpose(rows.unflatten(-1, after)):
        torch.testing.assert_close(found, part[0].flatten(1), rtol=1e-12, atol=1e-12)
    inputs = [torch.randint(-(2**20), 2**20, (2, prod(shape)), generator=chance) for shape in shapes]
    images = [
        (part.double() * 2.0**-20).unflatten(1, shape) for part, shape in zip(inputs, shapes, strict=True)
    ]  # fmt: skip
    exact = operation.cast(torch.float64)
    for one, other in ((layer, exact), (layer.absolute, exact.absolute)):
        image = one.linear([Fixed(part, 20) for part in inputs])
        made = image.units.double() * 2.0**-image.bits
        torch.testing.assert_close(made, other.linear(*images).flatten(1), rtol=1e-12, atol=1e-12)
    assert (operation.constant is None) == (layer.constant is None)
    if operation.constant is not None and layer.constant is not None:
        constant = layer.constant.units.double() * 2.0**-layer.constant.bits
        torch.testing.assert_close(constant, operation.constant.double().expand(after).flatten())


@pytest.mark.parametrize("name", CASES)
def test_linear_maps_are_those_of_the_operations(name: str) -> None:
    operation, shapes = CASES[name]()
    assert isinstance(operation, Affine)
    assert_same(operation, shapes)


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("geometry", GEOMETRIES[::4])
def test_convolutions_of_all_shapes(channels: tuple[int, int, int], geometry: tuple[tuple[int, ...], ...]) -> None:
    operation: Convolution = convolution(channels, *geometry)  # type: ignore[arg-type]
    assert_same(operation, ((channels[0], *SIZE),))


def test_all_operations_are_compared() -> None:
    assert {CASES[name]()[0].name for name in CASES} == set(LAYERS)
