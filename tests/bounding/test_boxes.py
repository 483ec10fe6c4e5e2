"""Bounds over many boxes at once: they enclose what networks compute, and a path's picks are the path's."""

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, RIGOROUS
from relucert.bounding.backward import bound_forms
from relucert.bounding.boxes import LINE_BYTES, MOST_BOXES, box_bounds, boxes_at_once, line_bounds, zonotope_bounds
from relucert.bounding.forward import PlainDriver, forward, propagate_zonotope
from relucert.bounding.lines import ForwardLines
from relucert.bounding.reference import PickedPath, ReferencePath
from relucert.bounding.relaxers import CROWN, FAST_LIN, Relaxer
from relucert.common.deadline import TimeUp, until
from relucert.network import Network, Sigmoid
from tests.nets import NETWORKS, centres, mlp
from tests.smooth import smooth_network

WIDE = {name: make() for name, make in NETWORKS.items()}
CURVED = {"sigmoid": smooth_network(activation=Sigmoid())}


def ends(network: Network, count: int = 3) -> tuple[Tensor, Tensor]:
    """Boxes of different widths, (count, size) each; one side of each has none."""
    middle = centres(network, count).double()
    generator = torch.Generator().manual_seed(1)
    half = 0.3 * torch.rand(middle.shape, generator=generator, dtype=torch.float64)
    half[:, 0] = 0
    return middle - half, middle + half


def inside(low: Tensor, high: Tensor, count: int = 200) -> Tensor:
    """Points of each box, corners among them: (boxes, count, size)."""
    generator = torch.Generator().manual_seed(2)
    shares = torch.rand(len(low), count, low.shape[1], generator=generator, dtype=torch.float64)
    shares[:, : count // 2] = shares[:, : count // 2].round()
    return torch.clamp(low[:, None] + (high - low)[:, None] * shares, low[:, None], high[:, None])


@pytest.mark.parametrize("name", WIDE)
def test_pre_activations_are_within_their_bounds(name: str) -> None:
    network = WIDE[name].cast(torch.float64)
    low, high = ends(network)
    bounds = box_bounds(network, Region.boxes(low, high), RIGOROUS).path.bounds
    for box, points in enumerate(inside(low, high)):
        values = network.values(points)
        for value, interval in bounds.items():
            assert bool((values[value] >= interval.lower[box] - 1e-12).all())
            assert bool((values[value] <= interval.upper[box] + 1e-12).all())


@pytest.mark.parametrize("symbols", [0, 9, 1000])
@pytest.mark.parametrize("name", [*WIDE, *CURVED])
def test_zonotopes_of_few_symbols_enclose(name: str, symbols: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relaxations that get no symbol of their own count as errors, in rigorous and in plain arithmetic."""
    if symbols == 1000:  # every relaxation gets one, so that nothing is lost
        monkeypatch.setattr("relucert.bounding.zonotope.NARROW", 0.0)
    network = (CURVED if name in CURVED else WIDE)[name].cast(torch.float64)
    low, high = ends(network)
    region, output = Region.boxes(low, high), (network.output,)
    for arithmetic in (RIGOROUS, DOUBLE):
        driver = PlainDriver(network, FAST_LIN, arithmetic)
        bounds = propagate_zonotope(network, region, arithmetic, output, driver, most_symbols=symbols)
        for box, points in enumerate(inside(low, high)):
            values = network.values(points)
            for value, interval in bounds.items():
                assert bool((values[value] >= interval.lower[box] - 1e-12).all())
                assert bool((values[value] <= interval.upper[box] + 1e-12).all())
        if symbols == 1000:
            for value, interval in forward(network, region, FAST_LIN, arithmetic, output).items():
                for side, other in zip(interval, bounds[value], strict=True):
                    torch.testing.assert_close(side, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", WIDE)
def test_zonotopes_tell_shares_of_inputs(name: str) -> None:
    network = WIDE[name].cast(torch.float64)
    bounds = zonotope_bounds(network, Region.boxes(*ends(network)), RIGOROUS)
    for value in network.preactivations:
        shares = bounds.shares(value)
        assert shares.shape == (3, len(bounds.moving), network.sizes[value])
        assert bool(((shares.sum(1) - 1).abs() < 1e-9).logical_or(shares.sum(1) == 0).all())


@pytest.mark.parametrize("relaxer", [CROWN, FAST_LIN], ids=["crown", "fast-lin"])
@pytest.mark.parametrize("name", WIDE)
def test_values_are_between_their_lines(name: str, relaxer: Relaxer) -> None:
    network = WIDE[name].cast(torch.float64)
    low, high = ends(network)
    region = Region.boxes(low, high)
    path = ReferencePath(network, region, {}, relaxer, RIGOROUS)
    lines = ForwardLines(path)
    for value in network.preactivations:
        path.bounds[value] = lines.of(value).interval(RIGOROUS)
    last, points = lines.of(network.output), inside(low, high)
    half = region.spans(RIGOROUS).largest
    for box in range(len(low)):
        steps = (points[box] - region.reference[box]) / torch.where(half[box] > 0, half[box], 1)
        outputs = network(points[box])
        lower, upper = (steps[:, lines.moving] @ side[box, :-1] + side[box, -1] for side in (last.lower, last.upper))
        assert bool((outputs >= lower - 1e-9).all())
        assert bool((outputs <= upper + 1e-9).all())
        shares = last.shares[box].sum(0)
        assert bool(((shares - 1).abs() < 1e-9).logical_or(shares == 0).all())


@pytest.mark.parametrize("name", WIDE)
def test_rounding_moves_no_input(name: str) -> None:
    """Fixed decimals have boxes a few roundings wide: bounds hold there, without coefficients on them."""
    network = WIDE[name].cast(torch.float64)
    low, high = ends(network)
    low[:, 2] = high[:, 2] = 0
    high[:, 1:] = torch.where(low == 0, 0, torch.nextafter(low, low.new_tensor(torch.inf)))[:, 1:]
    high[:, 0] += 0.2
    for bounds in (line_bounds(network, Region.boxes(low, high), RIGOROUS),
                   zonotope_bounds(network, Region.boxes(low, high), RIGOROUS)):  # fmt: skip
        assert bounds.moving.tolist() == [0]
        for box, points in enumerate(inside(low, high)):
            values = network.values(points)
            for value, interval in bounds.path.bounds.items():
                assert bool((values[value] >= interval.lower[box] - 1e-12).all())
                assert bool((values[value] <= interval.upper[box] + 1e-12).all())


def test_lines_of_a_batch_fit_their_budget() -> None:
    assert boxes_at_once(mlp(5, 50, 50, 5, seed=0), 5) == MOST_BOXES
    network = mlp(784, 2000, 1000, 10, seed=0)
    assert boxes_at_once(network, 12) * 2 * 8 * 13 * sum(network.sizes) <= LINE_BYTES
    assert boxes_at_once(network, 12) < boxes_at_once(network, 1)


def test_lines_look_at_the_clock() -> None:
    network = WIDE["residual"].cast(torch.float64)
    with until(0.0), pytest.raises(TimeUp):
        line_bounds(network, Region.boxes(*ends(network)), RIGOROUS, pulled=False)


@pytest.mark.parametrize("name", ["residual", "normalised"])
def test_a_box_of_its_own_is_what_one_region_alone_gives(name: str) -> None:
    network = WIDE[name].cast(torch.float64)
    low, high = ends(network)
    together = box_bounds(network, Region.boxes(low, high), RIGOROUS).path.bounds
    for box in range(len(low)):
        alone = box_bounds(network, Region.boxes(low[[box]], high[[box]]), RIGOROUS).path.bounds
        for value, interval in alone.items():
            for side, other in zip(interval, together[value], strict=True):
                torch.testing.assert_close(side[0], other[box], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("relaxer", [CROWN, FAST_LIN], ids=["crown", "fast-lin"])
@pytest.mark.parametrize("name", WIDE)
def test_picked_members_of_a_path_are_bounded_as_they_are(name: str, relaxer: Relaxer) -> None:
    network = WIDE[name].cast(torch.float64)
    low, high = ends(network)
    region = Region.boxes(low, high)
    bounds = box_bounds(network, region, RIGOROUS).path.bounds
    forms = torch.eye(network.classes, dtype=torch.float64)[None]
    path = ReferencePath(network, region, bounds, relaxer, RIGOROUS)
    whole = bound_forms(path, network.output, forms)
    some = bound_forms(PickedPath(path, torch.tensor([2, 0, 2])), network.output, forms)
    torch.testing.assert_close(some.lower, whole.lower[[2, 0, 2]], rtol=1e-9, atol=1e-11)
    points = inside(low, high)
    for place, box in enumerate([2, 0, 2]):
        assert bool((network(points[box]) >= some.lower[place] - 1e-12).all())


@pytest.mark.parametrize("name", ["three layers", "convolutional"])
def test_small_networks_are_pulled_back_however_the_counts_compare(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few ReLUs behind a network, which choose among its outputs, turn the comparison, and zonotopes are wider."""
    bounds = []
    for forward_is_cheaper in (True, False):
        monkeypatch.setattr(Network, "suits_forward", forward_is_cheaper)
        network = NETWORKS[name]().cast(torch.float64)
        bounds.append(box_bounds(network, Region.boxes(*ends(network)), RIGOROUS).path.bounds)
    for value, interval in bounds[0].items():
        assert torch.equal(interval.lower, bounds[1][value].lower)
        assert torch.equal(interval.upper, bounds[1][value].upper)
