"""`method="sdp"` against exact answers, and what it says where it has nothing to add."""

import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import relucert
from relucert import data
from relucert.api import best
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.methods.quadratic import rows
from relucert.methods.sdp import QuadraticMethod
from relucert.methods.table import find_method
from relucert.network import Linear, Network
from relucert.search import portfolio
from tests.milp import nearest
from tests.nets import NETWORKS, centres, chain, mlp


def hostile(network: Network, centre: Tensor, draw: random.Random) -> Network:
    """The same with layers of other sizes, neurons that are zero, twice there, or at their kink at the centre."""
    layers, point = [], centre
    for node in network.nodes:
        operation = node.operation
        if isinstance(operation, Linear):
            size = draw.choice((0.01, 1.0, 1.0, 20.0))
            weight, bias = operation.weight * size, operation.bias * size
            neuron, other = draw.randrange(len(bias)), draw.randrange(len(bias))
            change = draw.choice(("none", "dead", "twice", "kink", "blind"))
            if change == "dead":
                weight[neuron], bias[neuron] = 0, draw.choice((0.0, -1.0, 1.0))
            elif change == "twice":
                weight[neuron], bias[neuron] = weight[other], bias[other]
            elif change == "kink":
                bias[neuron] = -(weight[neuron] @ point)
            elif change == "blind":
                weight[:, draw.randrange(weight.shape[1])] = 0
            operation = Linear(weight, bias)
            point = weight @ point + bias
        else:
            point = point.clamp(min=0)
        layers.append(operation)
    return chain(network.input_shape, *layers)


def questions_against_programs(seeds: range) -> tuple[int, int]:
    """No margin is proven at a distance at which a rival catches up.

    Returns how many were proven well below it, and how many points disproved margins just above.
    """
    proven = disproved = 0
    for seed in seeds:
        draw = random.Random(seed)
        sizes = [draw.randint(2, 4), *(draw.randint(2, 6) for _ in range(draw.randint(1, 3))), 3]
        network = mlp(*sizes, seed=seed, dtype=torch.float64)
        centre = centres(network, 1)[0].double() * draw.choice((0.1, 1.0, 3.0))
        if seed % 2:
            network = hostile(network, centre, draw)
        label = int(network(centre[None]).argmax())
        rival = draw.choice([place for place in range(3) if place != label])
        norm = draw.choice((1.0, math.inf))
        found = nearest(network, centre, label, rival, norm, 4.0)
        if found is None or found[0] < 1e-6:
            continue
        prop = Property.margins(torch.tensor([label]), torch.tensor([[rival]]), 3)
        beyond = found[0] * (1 + 1.01e-5)
        point = centre + (found[1] - centre) * (1 + 1e-5)
        if not float(prop.values(network(point[None]))) < 0 or not float((point - centre).norm(p=norm)) <= beyond:
            continue  # within the program's tolerance only
        disproved += 1
        method = find_method("sdp")
        for radius in (found[0] * 0.6, beyond):
            region = Region.around(centre[None], radius, norm)
            with torch.inference_mode():
                hidden = method.hidden(network, region, RIGOROUS)
                margin = float(method.margins(network, region, prop, hidden, RIGOROUS))
            if radius > found[0]:
                assert not margin > 0, (seed, norm, found[0])
            else:
                proven += margin > 0
    return proven, disproved


def test_no_margin_is_proven_where_a_program_finds_an_example() -> None:
    proven, disproved = questions_against_programs(range(40))
    assert proven > 5
    assert disproved > 10


@pytest.mark.slow
def test_no_margin_is_proven_where_a_program_finds_an_example_in_500_questions() -> None:
    proven, disproved = questions_against_programs(range(40, 1340))
    assert proven > 250
    assert disproved > 500


@pytest.mark.full_effort
def test_radii_are_far_above_those_of_crown() -> None:
    images = data.bundled().first(1)
    asked: dict[str, Any] = {"target": "runner-up"}
    (crown,) = relucert.certify("mnist-3x20", images.images, images.labels, method="crown", **asked)
    (answer,) = relucert.certify("mnist-3x20", images.images, images.labels, method="sdp", **asked)
    (attacked,) = relucert.attack("mnist-3x20", images.images, images.labels, **asked)
    assert crown.radius is not None
    assert answer.radius is not None
    assert attacked.distance is not None
    assert answer.proven
    assert 1.1 * crown.radius < answer.radius < attacked.distance
    assert answer.reason is None


@pytest.mark.full_effort
def test_wide_networks_have_it_as_a_step_of_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best, "STEPS", portfolio.CHEAP_STEPS)
    asked: dict[str, Any] = {"method": "best", "budget": 60.0, "target": "runner-up", "tolerance": 0.02}
    network, branching = NETWORKS["three layers"](), NETWORKS["residual"]()
    (plain,) = relucert.certify(network, centres(network)[:1], **asked)
    assert plain.due_to != "sdp"
    monkeypatch.setattr(portfolio, "WIDE", 1)
    (answer,) = relucert.certify(network, centres(network)[:1], **asked)
    assert plain.radius is not None
    assert answer.radius is not None
    assert answer.proven
    assert answer.due_to == "sdp"
    assert answer.radius > 1.1 * plain.radius
    (linear,) = relucert.certify(branching, centres(branching)[:1], **(asked | {"method": "crown", "budget": None}))
    (few_inputs,) = relucert.certify(branching, centres(branching)[:1], **asked)
    assert few_inputs.due_to != "sdp"
    monkeypatch.setattr(portfolio, "suits_cuts", lambda network, region: False)
    (other,) = relucert.certify(branching, centres(branching)[:1], **asked)
    assert other.due_to == "sdp"
    assert other.radius is not None
    assert linear.radius is not None
    assert other.radius > linear.radius


@pytest.mark.parametrize("norm", ["2", "inf"])
@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        pytest.param("residual", 0.05, marks=pytest.mark.full_effort),  # which gains nothing with less
        ("image residual", 0.01),
        ("leaky and clipped", 0.01),
    ],
)
@pytest.mark.sampled
def test_every_network_gains(name: str, tolerance: float, norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QuadraticMethod, "resolution", min(QuadraticMethod.resolution, tolerance))
    network = NETWORKS[name]()
    points = centres(network, 1)
    asked: dict[str, Any] = {"norm": norm, "target": "runner-up"}
    (crown,) = relucert.certify(network, points, method="crown", **asked)
    (answer,) = relucert.certify(network, points, method="sdp", tolerance=tolerance, **asked)
    (attacked,) = relucert.attack(network, points, **asked)
    assert crown.radius is not None
    assert answer.radius is not None
    assert attacked.distance is not None
    assert answer.proven
    assert 1.01 * crown.radius < answer.radius < attacked.distance


def test_what_it_does_not_better_has_the_weaker_method_s_radius_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: rows.RegionRows, first: int | None = None) -> int:
        self.solver.bounds.fill_(-1.0)
        return 0

    monkeypatch.setattr(rows.RegionRows, "least", nothing)
    network = NETWORKS["residual"]()
    points = centres(network, 2)
    for one, other in zip(
        relucert.certify(network, points, method="sdp"), relucert.certify(network, points, method="crown"), strict=True
    ):
        assert one.radius == pytest.approx(other.radius, rel=2e-4)
        assert one.reason is not None
        assert "the radius is that of crown" in one.reason


def test_many_unstable_neurons_share_one_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a joint certificate would be too large, the composed one is all there is."""
    network = NETWORKS["five layers"]()
    points = centres(network, 1)
    asked: dict[str, Any] = {"norm": 2, "target": "runner-up"}
    (crown,) = relucert.certify(network, points, method="crown", **asked)
    (joint,) = relucert.certify(network, points, method="sdp", tolerance=0.01, **asked)
    monkeypatch.setattr(rows, "MOST_JOINT", 0)
    (composed,) = relucert.certify(network, points, method="sdp", tolerance=0.01, **asked)
    assert crown.radius is not None
    assert composed.radius is not None
    assert joint.radius is not None
    assert composed.proven
    assert crown.radius < composed.radius <= 1.01 * joint.radius


def test_evaluations_in_floating_point_have_smaller_radii() -> None:
    network = NETWORKS["three layers"]()
    points = centres(network, 1)
    (real,) = relucert.certify(network, points, method="sdp")
    (answer,) = relucert.certify(network, points, method="sdp", inference="float32")
    assert real.radius is not None
    assert answer.radius is not None
    assert answer.proven
    assert 0.9 * real.radius < answer.radius < 1.01 * real.radius


@pytest.mark.parametrize("spoilt", ["weights", "shares", "centre", "nothing"])
def test_spoilt_solutions_leave_the_weaker_method_s_margins(spoilt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finder that fails, or whose numbers are none, costs the gain, never the truth."""

    def faulty(self: rows.RegionRows, first: int | None = None) -> int:
        genuine(self)
        self.solver.bounds.fill_(1.0)
        for row, solution in enumerate(self.solver.solutions):
            assert solution is not None
            if spoilt == "nothing":
                self.solver.solutions[row] = None
                continue
            value = min(solution.point.shares)
            parts = {
                "weights": solution.certificate.weights.deviations[value], "shares": solution.point.shares[value],
                "centre": solution.point.inputs,
            }  # fmt: skip
            parts[spoilt].fill_(torch.nan)
            self.solver.solutions[row] = replace(solution, bound=1.0)
        return 0

    genuine = rows.RegionRows.least
    monkeypatch.setattr(rows.RegionRows, "least", faulty)
    network = mlp(4, 6, 6, 3, seed=3, dtype=torch.float64)
    region = Region.around(centres(network, 1).double(), 0.3, "inf")
    prop = Property.margins(torch.tensor([0]), torch.tensor([[1, 2]]), 3)
    method, weaker = find_method("sdp"), find_method("crown")
    with torch.inference_mode():
        hidden = method.hidden(network, region, RIGOROUS)
        margins = method.margins(network, region, prop, hidden, RIGOROUS)
        torch.testing.assert_close(margins, weaker.margins(network, region, prop, hidden, RIGOROUS), rtol=0, atol=0)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_weights_of_any_size_keep_the_weaker_method_s_radius(scale: float) -> None:
    network = mlp(8, 12, 12, 12, 4, seed=3, dtype=torch.float64)
    layers = {value: node.operation for value, node in network.steps() if isinstance(node.operation, Linear)}
    sized = network.with_operations({
        value: Linear(layer.weight * scale, layer.bias * scale) for value, layer in layers.items()
    })  # fmt: skip
    points = centres(sized, 1)
    asked: list[dict[str, Any]] = [{"norm": "inf"}, {"norm": 2, "box": (-3.0, 3.0)}]
    for options in asked:
        (crown,) = relucert.certify(sized, points, method="crown", **options)
        (answer,) = relucert.certify(sized, points, method="sdp", **options)
        assert crown.radius is not None
        assert answer.radius is not None
        assert answer.radius >= crown.radius * (1 - 1e-3)


@pytest.mark.parametrize("share", [0.4, 0.7, 0.9])
def test_nothing_is_tried_beyond_a_radius_that_failed(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where margins break down at some radius, as those of deep networks do."""
    network, evaluated = mlp(30, 40, 40, 4), []
    radii = [relucert.certify(network, centres(network, 1), method=name)[0].radius for name in ("crown", "sdp")]
    assert radii[0] is not None
    assert radii[1] is not None
    end = (1 - share) * radii[0] + share * radii[1]
    margins = QuadraticMethod.margins

    def breaking_down(method: QuadraticMethod, network: Network, region: Region, *rest: Any) -> Tensor:
        radius = float(region.radius[0])
        bounds = margins(method, network, region, *rest) - (100.0 if radius > end else 0.0)
        evaluated.append((radius, float(bounds.min())))
        return bounds

    monkeypatch.setattr(QuadraticMethod, "margins", breaking_down)
    (answer,) = relucert.certify(network, centres(network, 1), method="sdp")
    assert answer.radius is not None
    assert 0.98 * end < answer.radius <= end
    for place, (radius, _) in enumerate(evaluated):
        assert not any(failed <= radius for failed, margin in evaluated[:place] if not margin > 0)
