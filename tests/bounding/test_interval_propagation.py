"""Interval bound propagation: the recursion of its paper, few values at once, and nothing pulled back but the rows."""

import math
import weakref
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import relucert
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, RIGOROUS, Arithmetic
from relucert.bounding import interval_propagation, layerwise
from relucert.bounding.interval import Bounds, Centred, affine_image, propagate
from relucert.bounding.interval_propagation import interval_bounds
from relucert.errors import InputError
from relucert.methods.table import find_method
from relucert.network import Linear, Network
from tests.literal import interval_bounds as literal_bounds
from tests.nets import NETWORKS, NORMS, centres, mlp
from tests.rational import exact, intervals

RADIUS = 0.2


def margins(network: Network, region: Region, rows: Tensor, arithmetic: Arithmetic) -> Tensor:
    """By the method, without offsets."""
    method = find_method("interval")
    prop = Property(rows, rows.new_zeros(rows.shape[:2]))
    return method.margins(network, region, prop, method.hidden(network, region, arithmetic), arithmetic)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_bounds_and_margins_are_the_papers(depth: int, norm: float) -> None:
    """A margin is a neuron of a last layer with the rows folded in."""
    network = mlp(9, *[11] * (depth - 1), 6, seed=depth, dtype=torch.float64)
    layers = [node.operation for node in network.nodes if isinstance(node.operation, Linear)]
    weights, biases = [np.asarray(layer.weight) for layer in layers], [np.asarray(layer.bias) for layer in layers]
    points = centres(network, 2, seed=depth)
    region = Region.around(points, RADIUS, norm)
    bounds = relucert.bounds(network, region, method="interval", arithmetic="float")
    rows = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = margins(network, region, rows, DOUBLE)
    for member in range(2):
        wanted = literal_bounds(weights, biases, points[member].numpy(), RADIUS, norm)
        for (low, high), (lower, upper) in zip(wanted, bounds, strict=True):
            np.testing.assert_allclose(lower[member], low, rtol=0, atol=1e-9)
            np.testing.assert_allclose(upper[member], high, rtol=0, atol=1e-9)
        folded = rows[member].numpy()
        merged = [*weights[:-1], folded @ weights[-1]], [*biases[:-1], folded @ biases[-1]]
        least, _ = literal_bounds(*merged, points[member].numpy(), RADIUS, norm)[-1]
        np.testing.assert_allclose(found[member], least, rtol=0, atol=1e-9)
        apart = (folded.clip(min=0) @ wanted[-1][0]) + (folded.clip(max=0) @ wanted[-1][1])
        assert (found[member].numpy() > apart + 1e-3).all()  # than margins of bounds of the scores


@pytest.mark.parametrize("norm", [1.0, math.inf])
@pytest.mark.parametrize("seed", range(3))
def test_rigorous_bounds_contain_those_of_rational_arithmetic_closely(seed: int, norm: float) -> None:
    network = mlp(4, 6, 5, 3, seed=seed)
    point = centres(network, 1, seed)
    bounds = relucert.bounds(network, Region.around(point, 0.3, norm), method="interval")
    for (lower, upper), interval in zip(intervals(network, point[0], 0.3, norm), bounds, strict=True):
        for low, high, below, above in zip(
            lower, upper, *map(exact, (interval.lower[0], interval.upper[0])), strict=True
        ):
            assert 0 <= low - below < Fraction(1, 10**12)
            assert 0 <= above - high < Fraction(1, 10**12)


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_batch_equals_its_members(name: str, norm: float) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    region = Region.around(centres(network, 3), torch.tensor([0.0, 0.05, 0.4]), norm)
    rows = torch.randn(3, 2, network.classes, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    together = margins(network, region, rows, RIGOROUS)
    for member in range(3):
        chosen = torch.tensor([member])
        alone = margins(network, region.select(chosen), rows[chosen], RIGOROUS)
        torch.testing.assert_close(together[member], alone[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", NETWORKS)
def test_rows_in_parts_have_the_same_margins(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    region = Region.around(centres(network, 2), 0.1, "inf")
    rows = torch.randn(2, 5, network.classes, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    whole = margins(network, region, rows, RIGOROUS)
    monkeypatch.setattr(interval_propagation, "ROW_BYTES", 1)
    torch.testing.assert_close(margins(network, region, rows, RIGOROUS), whole, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", NETWORKS)
def test_one_pass_is_propagation_from_value_to_value(name: str) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    region = Region.around(centres(network), 0.3, "inf", box=(-4, 4))
    step: Bounds = {}
    for value in (*network.preactivations, network.output):
        step[value] = propagate(network, region, step, value, DOUBLE)
    for value, interval in interval_bounds(network, region, DOUBLE, tuple(step)).items():
        torch.testing.assert_close(interval.lower, step[value].lower, rtol=0, atol=1e-10)
        torch.testing.assert_close(interval.upper, step[value].upper, rtol=0, atol=1e-10)


def test_a_deep_network_holds_few_values_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    network, made, most = mlp(6, *[8] * 30, 4).cast(torch.float64), list[weakref.ref[Tensor]](), 0
    original = affine_image

    def counted(*asked: Any) -> Centred:
        nonlocal most
        image = original(*asked)
        made.append(weakref.ref(image.centre))
        most = max(most, sum(one() is not None for one in made))
        return image

    monkeypatch.setattr("relucert.bounding.interval.affine_image", counted)
    find_method("interval").hidden(network, Region.around(centres(network), 0.1, "inf"), RIGOROUS)
    assert len(made) == 30
    assert most <= 2


def test_in_a_box_no_hidden_neuron_is_pulled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would take a hundred times as long."""
    network = NETWORKS["image residual"]().cast(torch.float64)

    def refuse(*asked: object, **options: object) -> None:
        raise AssertionError("a neuron is pulled back")

    monkeypatch.setattr(layerwise, "bound_neurons", refuse)
    for box in (None, (-4.0, 4.0)):
        region = Region.around(centres(network), 0.1, "inf", box=box)
        assert find_method("interval").hidden(network, region, RIGOROUS)


def test_intervals_have_no_backward_form() -> None:
    region = Region.around(torch.zeros(1, 6), 0.1, 2)
    with pytest.raises(InputError, match="leave form='backward' out"):
        relucert.bounds(mlp(6, 4), region, method="interval", form="backward")


@pytest.mark.parametrize("box", [None, (-4.0, 4.0)])
@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0])
def test_a_large_convolution_is_bounded_by_its_kernels(
    norm: float, box: tuple[float, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its neurons are not pulled back; where a window lies within the image, bounds are those of its own form."""
    network = NETWORKS["image residual"]().cast(torch.float64)
    first = network.preactivations[0]
    scale = torch.linspace(0.5, 1.0, network.sizes[0])
    for stretch in (None, scale):
        region = Region.around(centres(network), 0.3, norm, box=box, scale=stretch)
        own = interval_bounds(network, region, RIGOROUS, [first])[first]
        with monkeypatch.context() as patched:
            patched.setattr(interval_propagation, "MANY_NEURONS", 0)
            patched.setattr(layerwise, "bound_neurons", None)
            shared = interval_bounds(network, region, RIGOROUS, [first])[first]
        assert (shared.lower <= own.lower + 1e-12).all()
        assert (shared.upper >= own.upper - 1e-12).all()
        if box is None and stretch is None:
            inside = torch.zeros(network.shapes[first], dtype=torch.bool)
            inside[:, 1:-1, 1:-1] = True
            torch.testing.assert_close(shared.lower[:, inside.flatten()], own.lower[:, inside.flatten()])
            torch.testing.assert_close(shared.upper[:, inside.flatten()], own.upper[:, inside.flatten()])
