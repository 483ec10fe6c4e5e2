"""Zonotopes in windows: the forward driver's bounds, whichever way windows go, and chosen where they are cheaper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import FLOAT, RECORDED, RIGOROUS, Arithmetic
from relucert.arithmetic.symbol_windows import SymbolWindows
from relucert.bounding import hidden
from relucert.bounding.forward import forward
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.interval import Bounds, Interval, TracedBounds
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import CROWN, FAST_LIN, RELAXERS, Relaxer
from relucert.bounding.signs import SignedBounds, bound_signs
from relucert.bounding.window_zonotopes import WindowZonotopes
from relucert.common.names import RelaxerName
from relucert.network import (
    Add,
    BatchScale,
    Convolution,
    Exp,
    IndexMap,
    Layer,
    Network,
    Node,
    Relu,
    Reshape,
    Scale,
    Shift,
)
from relucert.network.inference import INFERENCES
from tests.nets import NETWORKS, NORMS, centres, chain, convolution_of, linear_of
from tests.regions import LIMITS, samples

RADII = {1.0: 0.4, 1.5: 0.3, 2.0: 0.2, 3.0: 0.1, float("inf"): 0.05}


def strided() -> Network:
    """Strides, uneven padding, dilation and groups; numbers are scaled once they are flat."""
    generator = torch.Generator().manual_seed(0)
    return chain(
        (2, 12, 11),
        Scale(torch.tensor([[[0.3]], [[0.7]]]), divide=True),
        Shift(torch.tensor([[[0.1]], [[-0.3]]])),
        convolution_of(generator, (4, 2, 3, 2), (12, 11), stride=(2, 1), padding=(1, 0, 0, 1)),
        Relu(),
        convolution_of(
            generator, (4, 2, 2, 2), (6, 11), stride=(1, 2), padding=(1, 1, 0, 1), dilation=(2, 3), groups=2
        ),
        Relu(),
        Reshape((4, 5, 5), (100,)),
        Scale(torch.linspace(-1, 1.5, 100), divide=False),
        linear_of(100, 9, generator, torch.float32),
        Relu(),
        linear_of(9, 4, generator, torch.float32),
    )


def blocks() -> Network:
    """Residual blocks: a skip that leaves out pixels, one that is the value itself, and one from before a ReLU."""
    generator = torch.Generator().manual_seed(1)
    same, half = (1, 1, 1, 1), (2, 2)
    return Network(
        (1, 14, 14),
        (
            Node(convolution_of(generator, (3, 1, 3, 3), (14, 14), padding=same), (0,)),
            Node(BatchScale(torch.tensor([[[0.8]], [[-1.1]], [[1.3]]]), torch.full((3, 1, 1), 0.7), 1e-5), (1,)),
            Node(Relu(), (2,)),
            Node(convolution_of(generator, (4, 3, 3, 3), (14, 14), stride=half, padding=same), (3,)),
            Node(Relu(), (4,)),
            Node(convolution_of(generator, (4, 4, 3, 3), (7, 7), padding=same), (5,)),
            Node(convolution_of(generator, (4, 3, 1, 1), (14, 14), stride=half), (3,)),
            Node(Add(), (6, 7)),
            Node(Relu(), (8,)),
            Node(convolution_of(generator, (4, 4, 1, 3), (7, 7), padding=(0, 1, 0, 1)), (9,)),
            Node(Relu(), (10,)),
            Node(Add(), (11, 8)),
            Node(Reshape((4, 7, 7), (196,)), (12,)),
            Node(linear_of(196, 8, generator, torch.float32), (13,)),
            Node(Relu(), (14,)),
            Node(linear_of(8, 3, generator, torch.float32), (15,)),
        ),
    )


def rearranged() -> Network:
    """Convolutions that follow each other at once, or skip pixels; images reshaped, mirrored, added to themselves."""
    generator = torch.Generator().manual_seed(2)
    mirrored = torch.arange(2 * 5 * 5).reshape(2, 5, 5).flip(-1)
    return Network(
        (1, 15, 15),
        (
            Node(convolution_of(generator, (2, 1, 2, 3), (15, 15), padding=(1, 0, 1, 2)), (0,)),
            Node(convolution_of(generator, (2, 2, 3, 3), (16, 15), padding=(1, 1, 0, 1)), (1,)),
            Node(Relu(), (2,)),
            Node(convolution_of(generator, (2, 2, 2, 1), (15, 15), stride=(3, 3)), (3,)),
            Node(Relu(), (4,)),
            Node(Add(), (5, 5)),
            Node(IndexMap.of(mirrored, (2, 5, 5)), (6,)),
            Node(Add(), (6, 7)),
            Node(Reshape((2, 5, 5), (1, 5, 10)), (8,)),
            Node(convolution_of(generator, (2, 1, 3, 3), (5, 10)), (9,)),
            Node(Relu(), (10,)),
            Node(Reshape((2, 3, 8), (48,)), (11,)),
            Node(linear_of(48, 3, generator, torch.float32), (12,)),
        ),
    )


def flattened() -> Network:
    """Sums of images that only have the same size once they are flat: other channels, or the same ones turned."""
    generator = torch.Generator().manual_seed(4)
    return Network(
        (1, 6, 6),
        (
            Node(convolution_of(generator, (2, 1, 3, 3), (6, 6), padding=(1, 1, 1, 1)), (0,)),
            Node(Reshape((2, 6, 6), (72,)), (1,)),
            Node(convolution_of(generator, (1, 1, 3, 1), (6, 6), padding=(4, 0, 4, 0)), (0,)),
            Node(Reshape((1, 12, 6), (72,)), (3,)),
            Node(Add(), (2, 4)),
            Node(Relu(), (5,)),
            Node(Reshape((72,), (1, 12, 6)), (6,)),
            Node(convolution_of(generator, (1, 1, 3, 3), (12, 6), padding=(1, 1, 1, 1)), (7,)),
            Node(Reshape((1, 12, 6), (1, 6, 12)), (8,)),
            Node(Reshape((72,), (1, 6, 12)), (6,)),
            Node(convolution_of(generator, (1, 1, 1, 3), (6, 12), padding=(0, 1, 0, 1)), (10,)),
            Node(Add(), (9, 11)),
            Node(Relu(), (12,)),
            Node(Reshape((1, 6, 12), (72,)), (13,)),
            Node(linear_of(72, 3, generator, torch.float32), (14,)),
        ),
    )


def apart() -> Network:
    """A sum of convolutions whose strides differ: they see no pixel in common, or rows that only one of them has."""
    generator = torch.Generator().manual_seed(5)
    return Network(
        (1, 1, 4),
        (
            Node(convolution_of(generator, (1, 1, 1, 1), (1, 4), stride=(1, 3), padding=(0, 2, 0, 0)), (0,)),
            Node(convolution_of(generator, (1, 1, 1, 1), (1, 4), stride=(1, 2)), (0,)),
            Node(Add(), (1, 2)),
            Node(convolution_of(generator, (1, 1, 1, 1), (1, 4), stride=(1, 3), padding=(6, 2, 0, 0)), (0,)),
            Node(convolution_of(generator, (1, 1, 3, 1), (1, 4), stride=(4, 2), padding=(8, 0, 18, 0)), (0,)),
            Node(Add(), (4, 5)),
            Node(Relu(), (3,)),
            Node(Relu(), (6,)),
            Node(Reshape((1, 1, 2), (2,)), (7,)),
            Node(linear_of(2, 14, generator, torch.float32), (9,)),
            Node(Reshape((1, 7, 2), (14,)), (8,)),
            Node(Add(), (10, 11)),
            Node(Relu(), (12,)),
            Node(linear_of(14, 3, generator, torch.float32), (13,)),
        ),
    )


IMAGES: dict[str, Callable[[], Network]] = {
    "strided": strided,
    "blocks": blocks,
    "rearranged": rearranged,
    "flattened": flattened,
    "apart": apart,
    **{name: NETWORKS[name] for name in ("convolutional", "image residual", "residual", "skipping", "rectified input")},
}


def by_windows(network: Network, region: Region, arithmetic: Arithmetic = RIGOROUS) -> Bounds:
    """The bounds of all pre-activations by zonotopes in windows alone."""
    zonotopes, bounds = WindowZonotopes(network, region, FAST_LIN, arithmetic), Bounds()
    for value in network.preactivations:
        bounds[value] = zonotopes.interval(value, bounds)
    return bounds


def region_of(network: Network, norm: float, limits: str | None, count: int = 2) -> Region:
    points = centres(network, count)
    given = {} if limits is None else LIMITS[limits].given(points)
    return Region.around(points, torch.tensor([RADII[norm], RADII[norm] / 3])[:count], norm, **given)


def assert_same(one: Bounds, other: Bounds, tolerance: float = 1e-9) -> None:
    assert one.keys() == other.keys()
    for value, interval in one.items():
        for side, wanted in zip(interval, other[value], strict=True):
            torch.testing.assert_close(side, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("limits", [None, "arrays", "arrays and scale"])
@pytest.mark.sampled
def test_windows_have_the_bounds_of_all_coefficients(name: str, norm: float, limits: str | None) -> None:
    network = IMAGES[name]().cast(torch.float64)
    region = region_of(network, norm, limits)
    assert_same(by_windows(network, region), forward(network, region, FAST_LIN, RIGOROUS, network.preactivations))


@pytest.mark.parametrize("name", ["strided", "blocks", "rearranged"])
def test_values_can_be_asked_for_late(name: str) -> None:
    """The zonotope catches up with bounds that were found otherwise."""
    network = IMAGES[name]().cast(torch.float64)
    region = region_of(network, 2.0, None)
    bounds = forward(network, region, FAST_LIN, RIGOROUS, network.preactivations)
    for value, interval in bounds.items():
        alone = WindowZonotopes(network, region, FAST_LIN, RIGOROUS).interval(value, bounds)
        assert_same({value: alone}, {value: interval})


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zonotopes are taken wherever they can be."""
    monkeypatch.setattr(WindowZonotopes, "suit", lambda *_: True)
    monkeypatch.setattr(Network, "suits_forward", False)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("inference", ["real", "float32"])
@pytest.mark.parametrize("relaxer", ["fast-lin", "crown"])
def test_bounds_hold(name: str, norm: float, inference: str, relaxer: RelaxerName) -> None:
    """Wherever zonotopes are taken, they and the intervals before them enclose what the network computes."""
    network = IMAGES[name]().cast(torch.float64).evaluated_in(INFERENCES[inference])
    region = region_of(network, norm, "numbers")
    bounds = hidden_bounds(network, region, RELAXERS[relaxer], RIGOROUS)
    for member in range(2):
        points = samples(region, member, 100, torch.Generator().manual_seed(0))
        values = network.values(points.unflatten(1, network.input_shape))
        for value, (lower, upper) in bounds.items():
            assert bool((lower[member] <= values[value].flatten(1)).all())
            assert bool((values[value].flatten(1) <= upper[member]).all())


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("inference", ["real", "float32"])
@pytest.mark.parametrize("relaxer", ["fast-lin", "crown"])
@pytest.mark.sampled
def test_a_batch_equals_its_members(name: str, norm: float, inference: str, relaxer: RelaxerName) -> None:
    network = IMAGES[name]().cast(torch.float64).evaluated_in(INFERENCES[inference])
    region = region_of(network, norm, "numbers")
    together = hidden_bounds(network, region, RELAXERS[relaxer], RIGOROUS)
    for member in range(2):
        alone = hidden_bounds(network, region.select(torch.tensor([member])), RELAXERS[relaxer], RIGOROUS)
        assert_same({value: interval.select(torch.tensor([member])) for value, interval in together.items()}, alone)


@pytest.mark.parametrize("name", ["strided", "blocks", "rearranged"])
@pytest.mark.parametrize("factors", [(1e200, 1e-200), (1e308, 1e-308), (1e-310, 1e300), (1e160, 1e160)])
def test_hostile_weights(name: str, factors: tuple[float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients that overflow or underflow: bounds may say nothing, but not what is wrong."""
    monkeypatch.setattr(WindowZonotopes, "suit", lambda *_: True)
    network = IMAGES[name]().cast(torch.float64)
    changed: dict[int, Layer] = {}
    for value, node in network.steps():
        if isinstance(node.operation, Convolution) and len(changed) < len(factors):
            changed[value] = replace(node.operation, weight=node.operation.weight * factors[len(changed)])
    network = network.with_operations(changed)
    region = region_of(network, float("inf"), None, 1)
    bounds = hidden_bounds(network, region, FAST_LIN, RIGOROUS)
    points = samples(region, 0, 50, torch.Generator().manual_seed(0))
    values = network.values(points.unflatten(1, network.input_shape))
    for value, (lower, upper) in bounds.items():
        reached = values[value].flatten(1)
        finite = reached.isfinite()
        assert not bool((lower > reached)[finite].any())
        assert not bool((upper < reached)[finite].any())


@pytest.mark.parametrize("radius", [1e20, 1e25, 1e40])
def test_coefficients_that_underflow_where_an_activation_is_flat(radius: float) -> None:
    """An input that moves far, by weights as small as it is large, and then hardly anything: the ends are reached."""
    layers: tuple[Layer, ...] = (
        Scale(torch.tensor([1 / radius], dtype=torch.float64), divide=False),
        Shift(torch.tensor([-690.0], dtype=torch.float64)),
        Exp(),
        Scale(torch.tensor([1e300], dtype=torch.float64), divide=False),
        Relu(),
    )
    network, region = chain((1,), *layers), Region.around(torch.zeros(1, 1), radius, "inf")
    reached = network.values(torch.tensor([[-radius], [radius]], dtype=torch.float64))[4]
    for bounds in (by_windows(network, region), forward(network, region, FAST_LIN, RIGOROUS, network.preactivations)):
        lower, upper = bounds[4]
        assert bool((lower <= reached.min()).all())
        assert bool((reached.max() <= upper).all())


def test_symbols_are_added_only_where_they_are_the_same() -> None:
    """Groups that share some of their symbols are not taken for groups of others."""
    shape = (1, 4, 4)
    whole = SymbolWindows.units(None, None, shape, torch.float64)
    twice = whole.plus(whole)
    assert twice is not None
    assert torch.equal(twice.rows(), 2 * whole.rows())
    group = whole.groups[0]
    first, second, third = (
        SymbolWindows((group.pick(part),), (part,), whole.count, shape, whole.field)
        for part in (torch.tensor([0, 3]), torch.tensor([1, 3]), torch.tensor([1, 2]))
    )
    assert first.plus(second) is None
    joined = first.plus(third)
    assert joined is not None
    assert torch.equal(joined.rows(), first.rows() + third.rows())


def deep() -> Network:
    """Convolutions so deep that intervals leave nearly all neurons open, though few of them are unstable."""
    generator = torch.Generator().manual_seed(3)
    layers: list[Layer] = []
    for channels, before in [(16, 3), (16, 16), (16, 16), (16, 16)]:
        layers += [convolution_of(generator, (channels, before, 3, 3), (16, 16), padding=(1, 1, 1, 1)), Relu()]
    return chain((3, 16, 16), *layers, Reshape((16, 16, 16), (4096,)), linear_of(4096, 3, generator, torch.float32))


def pulled_back(
    network: Network, region: Region, arithmetic: Arithmetic, monkeypatch: pytest.MonkeyPatch,
    relaxer: Relaxer = FAST_LIN,
) -> tuple[Bounds, dict[int, int]]:  # fmt: skip
    """The bounds, and by pre-activation the neurons that were left to back-substitution."""
    pulled: dict[int, int] = {}

    def spy(path: ReferencePath, value: int, prior: Interval, *, numbers: int | None = None) -> SignedBounds:
        pulled[value] = int(prior.unstable.sum())
        return bound_signs(path, value, prior, numbers=numbers)

    with monkeypatch.context() as patched:
        patched.setattr(hidden, "bound_signs", spy)
        return hidden_bounds(network, region, relaxer, arithmetic), pulled


def test_zonotopes_are_taken_where_few_neurons_are_unstable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where all are, nor for proof files, whose rule says that forms stop once their signs are known."""
    network = deep().cast(torch.float64)
    point = centres(network, 1)
    few, many = (Region.around(point, radius, "inf") for radius in (1e-3, 0.5))
    bounds, pulled = pulled_back(network, few, RIGOROUS, monkeypatch)
    assert pulled
    assert network.preactivations[-1] not in pulled
    assert isinstance(bounds, TracedBounds)
    recorded, all_pulled = pulled_back(network, few, RECORDED, monkeypatch)
    assert list(all_pulled) == list(network.preactivations[1:])
    for value in network.preactivations[1:]:
        unstable = recorded[value].unstable
        assert bool((bounds.tight[value].all(1) | ~bounds[value].unstable).all())
        for side, wanted in zip(bounds[value], recorded[value], strict=True):
            torch.testing.assert_close(side[unstable], wanted[unstable], rtol=1e-9, atol=1e-9)
    assert list(pulled_back(network, many, RIGOROUS, monkeypatch)[1]) == list(network.preactivations[1:])
    in_float32 = pulled_back(network.cast(torch.float32), few.cast(torch.float32), FLOAT, monkeypatch)[1]
    assert in_float32.keys() == pulled.keys()


def test_zonotopes_tell_signs_for_crown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer neurons are pulled back then, and those that stay unstable have the bounds of CROWN's lines."""
    network = deep().cast(torch.float64)
    region = Region.around(centres(network, 1), 1e-3, "inf")
    bounds, pulled = pulled_back(network, region, RIGOROUS, monkeypatch, CROWN)
    recorded, all_pulled = pulled_back(network, region, RECORDED, monkeypatch, CROWN)
    last = network.preactivations[-1]
    assert pulled.keys() == all_pulled.keys()
    assert pulled[last] < all_pulled[last] / 2
    for value in network.preactivations:
        unstable = bounds[value].unstable
        assert bool((recorded[value].unstable | ~unstable).all())
        for side, wanted in zip(bounds[value], recorded[value], strict=True):
            torch.testing.assert_close(side[unstable], wanted[unstable], rtol=1e-6, atol=1e-6)
