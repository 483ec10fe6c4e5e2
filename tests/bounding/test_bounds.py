"""Bounds of neurons: network x norm x relaxer x form x arithmetic, against properties that could fail."""

import numpy as np
import pytest
import torch

import relucert
from relucert.arithmetic.norm import Norm
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, RIGOROUS, Arithmetic
from relucert.bounding.interval import Interval
from relucert.bounding.relaxers import CROWN, FAST_LIN, FLAT, RELAXERS
from relucert.common.names import ArithmeticName, FormName, RelaxerName
from relucert.errors import InputError
from relucert.network import Linear, Network, Relu
from tests.literal import crown_bounds, two_side_bounds
from tests.method_tables import FORMS, PARALLEL
from tests.nets import NETWORKS, NORMS, centres, mlp

RADIUS = 0.3


def neurons(network: Network) -> list[int]:
    """The values that `relucert.bounds` speaks of, in order."""
    return sorted({*network.preactivations, network.output})


@pytest.mark.parametrize("arithmetic", ["rigorous", "float"])
@pytest.mark.parametrize(("method", "form"), FORMS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_bounds_enclose_samples(
    name: str, norm: float, method: RelaxerName, form: FormName, arithmetic: ArithmeticName
) -> None:
    network = NETWORKS[name]()
    points = centres(network)
    bounds = relucert.bounds(
        network, Region.around(points, RADIUS, norm), method=method, form=form, arithmetic=arithmetic
    )
    generator = torch.Generator().manual_seed(7)
    double = network.cast(torch.float64)
    tolerance = 1e-12 if arithmetic == "float" else 0.0
    for row, centre in enumerate(points):
        samples = torch.cat([centre[None], Norm(norm).sample(centre, RADIUS, 400, generator)])
        values = double.values(samples)
        for value, (lower, upper) in zip(neurons(network), bounds, strict=True):
            assert (values[value] >= lower[row] - tolerance).all()
            assert (values[value] <= upper[row] + tolerance).all()


@pytest.mark.parametrize("method", PARALLEL)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_forward_and_backward_agree(name: str, norm: float, method: RelaxerName) -> None:
    network = NETWORKS[name]()
    ball = Region.around(centres(network), RADIUS, norm)
    ahead, back = (
        relucert.bounds(network, ball, method=method, form=form, arithmetic="float") for form in ("forward", "backward")
    )
    for one, other in zip(ahead, back, strict=True):
        torch.testing.assert_close(one.lower, other.lower, rtol=0, atol=1e-12)
        torch.testing.assert_close(one.upper, other.upper, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", ["forward", "backward"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("depth", [2, 3, 4, 5])
def test_fast_lin_is_the_papers_algorithm(depth: int, norm: float, form: FormName) -> None:
    network = mlp(9, *[11] * (depth - 1), 6, seed=depth, dtype=torch.float64)
    layers = [node.operation for node in network.nodes if isinstance(node.operation, Linear)]
    points = centres(network, 2, seed=depth)
    bounds = relucert.bounds(network, Region.around(points, 0.2, norm), form=form, arithmetic="float")
    weights, biases = (
        [np.asarray(part) for part in parts] for parts in zip(*[(o.weight, o.bias) for o in layers], strict=True)
    )
    unstable = 0
    for row in range(2):
        wanted = two_side_bounds(weights, biases, points[row].numpy(), 0.2, norm)
        for (low, high), (lower, upper) in zip(wanted, bounds, strict=True):
            np.testing.assert_allclose(lower[row], low, rtol=0, atol=1e-9)
            np.testing.assert_allclose(upper[row], high, rtol=0, atol=1e-9)
            unstable += int(((low < 0) & (high > 0)).sum())
    assert unstable >= 3  # otherwise no relaxation was compared


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("depth", [2, 3, 4, 5])
def test_crown_is_its_papers_recursion(depth: int, norm: float) -> None:
    """Layer after layer, at the bounds of the layers before."""
    network = mlp(9, *[11] * (depth - 1), 6, seed=depth, dtype=torch.float64)
    layers = [node.operation for node in network.nodes if isinstance(node.operation, Linear)]
    weights, biases = [np.asarray(layer.weight) for layer in layers], [np.asarray(layer.bias) for layer in layers]
    points = centres(network, 2, seed=depth)
    region = Region.around(points, 0.2, norm)
    bounds = relucert.bounds(network, region, method="crown", form="backward", arithmetic="float")
    assert sum(int(interval.unstable.sum()) for interval in bounds[:-1]) >= 3  # otherwise no relaxation was compared
    for row in range(2):
        known = [(lower[row].numpy(), upper[row].numpy()) for lower, upper in bounds]
        for place in range(depth):
            before, after = known[:place], slice(None, place + 1)
            low, high = crown_bounds(weights[after], biases[after], points[row].numpy(), 0.2, norm, before)
            np.testing.assert_allclose(known[place][0], low, rtol=0, atol=1e-9)
            np.testing.assert_allclose(known[place][1], high, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("method", "form"), FORMS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_rigorous_bounds_contain_the_plain_ones_closely(
    name: str, norm: float, method: RelaxerName, form: FormName
) -> None:
    network = NETWORKS[name]()
    ball = Region.around(centres(network), RADIUS, norm)
    plain = relucert.bounds(network, ball, method=method, form=form, arithmetic="float")
    proven = relucert.bounds(network, ball, method=method, form=form, arithmetic="rigorous")
    for one, other in zip(plain, proven, strict=True):
        for gap in (one.lower - other.lower, other.upper - one.upper):
            assert (gap > 0).all()
            assert (gap < 1e-10).all()


@pytest.mark.parametrize("form", ["forward", "backward"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_batch_equals_its_members(name: str, form: FormName) -> None:
    network = NETWORKS[name]()
    points = centres(network, 4)
    radii = torch.tensor([0.0, 0.05, 0.4, 1.5], dtype=torch.float64)
    together = relucert.bounds(network, Region.around(points, radii, 2), form=form)
    for row in range(4):
        alone = relucert.bounds(network, Region.around(points[row : row + 1], radii[row], 2), form=form)
        for one, other in zip(together, alone, strict=True):
            torch.testing.assert_close(one.lower[row], other.lower[0], rtol=0, atol=1e-10)
            torch.testing.assert_close(one.upper[row], other.upper[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", [*PARALLEL, "interval"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_smaller_ball_has_tighter_bounds(name: str, method: RelaxerName) -> None:
    network = NETWORKS[name]()
    points = centres(network)
    small, large = (relucert.bounds(network, Region.around(points, radius, 2), method=method) for radius in (0.1, 0.3))
    for inner, outer in zip(small, large, strict=True):
        assert (inner.lower >= outer.lower).all()
        assert (inner.upper <= outer.upper).all()


def test_bounds_at_radius_zero_are_the_values() -> None:
    network = mlp(6, 10, 8, 4)
    points = centres(network)
    bounds = relucert.bounds(network, Region.around(points, 0.0, "inf"))
    values = network.cast(torch.float64).values(points)
    for value, interval in zip(neurons(network), bounds, strict=True):
        torch.testing.assert_close(interval.lower, values[value], rtol=0, atol=1e-10)
        torch.testing.assert_close(interval.upper, values[value], rtol=0, atol=1e-10)


@pytest.mark.parametrize("arithmetic", [RIGOROUS, DOUBLE], ids=["rigorous", "plain"])
@pytest.mark.parametrize("name", [*RELAXERS, "flat"])
def test_a_relaxation_encloses_relu(name: str, arithmetic: Arithmetic) -> None:
    ends = torch.tensor(
        [
            [-1, 2],
            [-3, 1e-9],
            [-1e-9, 3],
            [0, 1],
            [-1, 0],
            [0, 0],
            [1, 2],
            [-2, -1],
            [-1e300, 1e300],
            [-5e-324, 5e-324],
        ],
        dtype=torch.float64,
    )
    lines = {**RELAXERS, "flat": FLAT}[name](Relu(), Interval(ends[:, 0], ends[:, 1]), arithmetic)
    for share in torch.linspace(0, 1, 41, dtype=torch.float64):
        z = ends[:, 0] * (1 - share) + ends[:, 1] * share
        slack = 1e-15 * z.abs().clamp(min=1)
        low = 0 if lines.low is None else lines.low
        assert (lines.slope_below * z + low <= z.clamp(min=0) + slack).all()
        assert (lines.slope_above * z + lines.high >= z.clamp(min=0) - slack).all()


def test_fast_lin_lines_by_hand() -> None:
    lines = FAST_LIN(Relu(), Interval(torch.tensor([-1.0, 2.0, -3.0]), torch.tensor([3.0, 4.0, -1.0])), DOUBLE)
    assert lines.slope_below.tolist() == lines.slope_above.tolist() == [0.75, 1.0, 0.0]
    assert lines.low is None
    assert lines.high.tolist() == [0.75, 0.0, 0.0]


def test_crown_lines_by_hand() -> None:
    bounds = Interval(torch.tensor([-1.0, -3.0, -2.0, 2.0, -3.0]), torch.tensor([3.0, 1.0, 2.0, 4.0, -1.0]))
    lines = CROWN(Relu(), bounds, DOUBLE)
    assert lines.slope_below.tolist() == [1.0, 0.0, 0.0, 1.0, 0.0]
    assert lines.slope_above.tolist() == [0.75, 0.25, 0.5, 1.0, 0.0]
    assert lines.low is None
    assert lines.high.tolist() == [0.75, 0.75, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"form": "sideways"}, "unknown form"),
        ({"method": "magic"}, "'magic'"),
        ({"arithmetic": "exact"}, "unknown arithmetic"),
        ({"region": Region.around(torch.zeros(1, 3), 0.1, 2)}, "3 coordinates"),
        ({"region": None}, "give images and their radius"),
        ({"region": Region(torch.zeros(1, 6), torch.tensor([-1.0]), Norm(2))}, ">= 0"),
    ],
)
def test_bad_questions_are_refused(change: dict[str, object], message: str) -> None:
    question = {"region": Region.around(torch.zeros(1, 6), 0.1, 2), **change}
    with pytest.raises(InputError, match=message):
        relucert.bounds(mlp(6, 4), **question)  # type: ignore[arg-type]
