"""Networks with smooth activations: every method's radius lies below what an attack finds, or the method refuses."""

import math

import pytest
import torch
from torch import Tensor

import relucert
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.backward import bound_forms
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.interval import Bounds
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import CROWN
from relucert.common.names import MethodName
from relucert.methods.table import METHODS
from relucert.network import Linear, Network, Tanh
from tests.smooth import SMOOTH, smooth_network

ANY: list[MethodName] = [name for name in METHODS if not METHODS[name]().needs_rectifiers]
NORMS = ("inf", "2", "1", "3")
UNBOUNDED = {"exp", "square", "cube", "fourth power", "reciprocal", "square root", "logarithm"}
"""Activations without a Lipschitz constant: methods that need one for the whole space prove nothing."""


@pytest.mark.parametrize("name", SMOOTH)
def test_no_radius_is_beyond_an_attack(name: str) -> None:
    """Every method in one norm, and in the others for other activations; with a box for every other activation."""
    network, number = smooth_network(activation=SMOOTH[name]), list(SMOOTH).index(name)
    images = 0.3 * torch.randn(1, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    box = (-1, 1) if number % 2 else None
    distances = {}
    for place, method in enumerate(ANY):
        norm = NORMS[(place + number) % len(NORMS)]
        if norm not in distances:
            found = relucert.attack(network, images, norm=norm, box=box, steps=20)
            distances[norm] = [answer.distance for answer in found]
        answers = relucert.certify(network, images, norm=norm, method=method, box=box, tolerance=0.05)
        assert any(answer.radius for answer in answers) or (method == "op-norm" and name in UNBOUNDED)
        for answer, distance in zip(answers, distances[norm], strict=True):
            assert distance is None or answer.radius is None or answer.radius < distance


def test_crown_is_the_recursion_of_its_paper() -> None:
    """At given bounds of the hidden layers, with the slopes of the paper's table and exact values of tanh at the ends,
    or at the point that a line touches."""
    network = smooth_network(activation=Tanh()).cast(torch.float64)
    region = relucert.Region.around(torch.full((1, 5), 0.1, dtype=torch.float64), 0.2, torch.inf)
    hidden = hidden_bounds(network, region, CROWN, RIGOROUS)
    path = ReferencePath(network, region, hidden, CROWN, RIGOROUS)
    form = torch.tensor([[1.0, -1.0, 0.0]], dtype=torch.float64)
    (proven,) = bound_forms(path, network.output, form[None]).lower[0].tolist()
    assert proven == pytest.approx(literal(network, hidden, form[0], 0.1, 0.2), abs=1e-9)


def literal(network: Network, hidden: Bounds, form: Tensor, centre: float, radius: float) -> float:
    """The recursion, neuron by neuron: coefficients and constants from the last layer to the first."""
    coefficients, constant = form, 0.0
    for value in range(network.output, 0, -1):
        operation = network.node(value).operation
        if isinstance(operation, Linear):
            constant += float(coefficients @ operation.bias)
            coefficients = coefficients @ operation.weight
            continue
        lower, upper = (side[0].tolist() for side in hidden[value - 1])
        below, above = Tanh().slopes(*(side[:1] for side in hidden[value - 1]))
        pulled = torch.zeros_like(coefficients)
        for place, coefficient in enumerate(coefficients.tolist()):
            slope = float((below if coefficient > 0 else above)[0, place])
            ends = [math.tanh(end) - slope * end for end in (lower[place], upper[place])]
            touching = math.atanh(math.sqrt(max(0.0, 1 - slope)))
            ends += [math.tanh(z) - slope * z for z in (touching, -touching) if lower[place] <= z <= upper[place]]
            constant += coefficient * (min(ends) if coefficient > 0 else max(ends))
            pulled[place] = coefficient * slope
        coefficients = pulled
    return constant + float(coefficients.sum() * centre - coefficients.abs().sum() * radius)
