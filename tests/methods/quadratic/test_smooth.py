"""Quadratic certificates of networks with other activations than ReLU."""

import math
import random
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import relucert
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.errors import InputError
from relucert.methods.quadratic.linearised_network import Neurons
from relucert.methods.table import find_method
from relucert.network import Linear, Network
from tests.nets import centres, chain
from tests.smooth import SMOOTH

POSITIVE = {"reciprocal", "square root", "logarithm"}


def intervals(name: str, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Wide and tiny intervals in which a function is defined, and references in them, at their ends and outside."""
    count = 400
    middle = 4 * torch.randn(count, generator=draw, dtype=torch.float64)
    width = 10.0 ** torch.empty(count, dtype=torch.float64).uniform_(-12, 1, generator=draw)
    lower, upper = middle - width, middle + width
    if name in POSITIVE:
        lower, upper = lower.abs() + 1e-3, lower.abs() + 1e-3 + 2 * width
    share = torch.empty(count, dtype=torch.float64).uniform_(-0.2, 1.2, generator=draw)
    share[::5] = share[::5].round()
    centre = lower + share.clamp(0, 1 if name in POSITIVE else 2) * (upper - lower)
    return lower, upper, centre


@pytest.mark.parametrize("name", SMOOTH)
def test_graphs_lie_between_the_lines_of_their_pieces(name: str) -> None:
    activation, draw = SMOOTH[name], torch.Generator().manual_seed(0)
    lower, upper, centre = intervals(name, draw)
    neurons = Neurons.of(activation, centre, activation.apply(centre), lower, upper, True)
    assert len(neurons) == len(lower)
    shares = torch.linspace(0, 1, 301, dtype=torch.float64)[:, None]
    points = torch.minimum(lower + shares * (upper - lower), upper)
    values, reference = activation.apply(points), activation.apply(centre)
    moved, output = points - centre, values - reference
    room = 1e-12 * (1 + points.abs() + values.abs() + reference.abs())
    below, above = torch.full_like(output, math.inf), torch.full_like(output, -math.inf)
    for piece in neurons.pieces:
        inside = (piece.low <= moved) & (moved <= piece.high)
        line = piece.rise * moved + piece.shift
        assert bool((~inside | (line.abs() <= piece.size * (1 + 1e-12) + room)).all())
        below = torch.where(inside, torch.minimum(below, line), below)
        above = torch.where(inside, torch.maximum(above, line), above)
    assert bool((below <= output + room).all())
    assert bool((above >= output - room).all())


def hostile_network(name: str, draw: random.Random) -> Network:
    """Few neurons, layers of very different sizes, neurons that are constant or twice there."""
    torch.manual_seed(draw.randrange(10**6))
    sizes = [draw.randint(2, 4), *(draw.randint(2, 6) for _ in range(draw.randint(1, 3))), 3]
    layers: list[Any] = []
    for before, after in pairwise(sizes):
        weight = torch.randn(after, before, dtype=torch.float64) * draw.choice((0.01, 0.5, 0.5, 3.0))
        bias = torch.randn(after, dtype=torch.float64)
        if draw.random() < 0.3:
            weight[draw.randrange(after)] = 0
        if draw.random() < 0.3:
            weight[0], bias[0] = weight[-1], bias[-1]
        layers += [Linear(weight, bias.abs() + 2 if name in POSITIVE else bias), SMOOTH[name]]
    return chain((sizes[0],), *layers[:-1])


def least_of_samples(network: Network, region: Region, prop: Property, norm: float, draw: torch.Generator) -> float:
    """The least margin at random points of a ball and at those that signed gradient steps lead to."""
    centre, radius = region.centre[0], float(region.radius[0])
    points = centre + radius * _directions(500, len(centre), norm, draw)
    least = float(prop.values(network(points)).min())
    point = centre[None].clone()
    for _ in range(30):
        point = point.detach().requires_grad_()
        (slope,) = torch.autograd.grad(prop.values(network(point)).sum(), point)
        moved = point.detach() - 0.2 * radius * slope / slope.norm().clamp(min=1e-300) - centre
        size = float(moved.norm(p=norm))
        point = centre + moved * min(1.0, radius / max(size, 1e-300)) * (1 - 1e-12)
        least = min(least, float(prop.values(network(point)).detach()))
    return least


def _directions(count: int, size: int, norm: float, draw: torch.Generator) -> Tensor:
    ways = torch.randn(count, size, generator=draw, dtype=torch.float64)
    lengths: Tensor = ways.norm(p=norm, dim=1, keepdim=True)
    return ways / lengths * (1 - 1e-12)


@pytest.mark.parametrize("name", SMOOTH)
def test_no_margin_is_above_what_samples_show(name: str) -> None:
    for seed in range(4):
        draw = random.Random(seed)
        network, norm = hostile_network(name, draw), draw.choice((1.0, 2.0, math.inf))
        centre = centres(network, 1)[0].double() * draw.choice((0.1, 1.0))
        outputs = network(centre[None])[0]
        if not bool(outputs.isfinite().all()):
            continue
        label = int(outputs.argmax())
        prop = Property.margins(torch.tensor([label]), torch.tensor([[(label + 1) % 3]]), 3)
        method = find_method("sdp")
        for radius in (0.01, 0.1, 1.0):
            region = Region.around(centre[None], radius, norm)
            with torch.inference_mode():
                hidden = method.hidden(network, region, RIGOROUS)
                margin = float(method.margins(network, region, prop, hidden, RIGOROUS))
            if margin > 0:
                least = least_of_samples(network, region, prop, norm, torch.Generator().manual_seed(seed))
                assert margin <= least, (seed, radius)


@pytest.mark.parametrize(
    ("layer", "norm"),
    [
        (nn.Sigmoid, "2"),
        (nn.GELU, "inf"),
        pytest.param(nn.Sigmoid, "inf", marks=pytest.mark.slow),
        pytest.param(nn.GELU, "2", marks=pytest.mark.slow),
    ],
)
def test_radii_are_above_those_of_crown_and_below_the_attack(layer: type[nn.Module], norm: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(10, 30), layer(), nn.Linear(30, 30), layer(), nn.Linear(30, 3))
    for parameter in module.parameters():
        parameter.data *= 2.0
    image = torch.randn(1, 10)
    asked: dict[str, Any] = {"norm": norm, "target": "runner-up"}
    (crown,) = relucert.certify(module, image, method="crown", **asked)
    (answer,) = relucert.certify(module, image, method="sdp", tolerance=0.05, **asked)
    (attacked,) = relucert.attack(module, image, **asked)
    assert answer.due_to == "sdp"
    assert crown.radius is not None
    assert answer.radius is not None
    assert attacked.distance is not None
    assert 1.02 * crown.radius < answer.radius <= attacked.distance


def test_regions_in_which_an_activation_is_not_defined_prove_nothing() -> None:
    network = chain((2,), Linear(torch.eye(2), torch.ones(2)), SMOOTH["logarithm"], Linear(torch.eye(2), torch.ones(2)))
    (answer,) = relucert.certify(network, torch.tensor([[2.0, 0.0]]), method="sdp", norm="inf")
    assert answer.radius is not None
    assert answer.radius < 1


def test_two_activations_of_one_value_are_refused_by_name() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            hidden: Tensor = self.first(inputs)
            return hidden.relu() + hidden.tanh()

    with pytest.raises(InputError, match=r"needs one activation of a value, and value \d feeds relu and tanh"):
        relucert.certify(Both(), torch.randn(1, 3), method="sdp")
