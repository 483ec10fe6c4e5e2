"""Networks with smooth activations: every method's radius lies below what an attack finds, or the method refuses."""

import math
from functools import cache

import pytest
import torch
from torch import Tensor, nn

import relucert
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.backward import bound_forms
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.interval import Bounds
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import CROWN
from relucert.common.names import MethodName
from relucert.methods.table import METHODS
from relucert.network import Activation, Linear, Network, Node, Tanh
from tests.inputs.loading.image_models import Function
from tests.smooth import SMOOTH, smooth_network

ANY: list[MethodName] = [name for name in METHODS if not METHODS[name]().needs_rectifiers]
NORMS = ("inf", "2", "1", "3")
UNBOUNDED = {name for name, activation in SMOOTH.items() if math.isinf(activation.lipschitz)}
"""Activations without a Lipschitz constant: methods that need one for the whole space prove nothing."""


@cache
def attacked_distance(name: str, norm: str, box: tuple[float, float] | None) -> float | None:
    (answer,) = relucert.attack(smooth_network(activation=SMOOTH[name]), image_of_five(), norm=norm, box=box, steps=20)
    return answer.distance


def image_of_five() -> Tensor:
    return 0.3 * torch.randn(1, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", ANY)
@pytest.mark.parametrize("name", SMOOTH)
def test_no_radius_is_beyond_an_attack(name: str, method: MethodName) -> None:
    """Every method in one norm, and in the others for other activations; with a box for every other activation."""
    network, number = smooth_network(activation=SMOOTH[name]), list(SMOOTH).index(name)
    norm, box = NORMS[(ANY.index(method) + number) % len(NORMS)], (-1, 1) if number % 2 else None
    distance = attacked_distance(name, norm, box)
    (answer,) = relucert.certify(network, image_of_five(), norm=norm, method=method, box=box, tolerance=0.05)
    assert answer.radius or (method == "op-norm" and name in UNBOUNDED)
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


def undecided_network(activation: Activation) -> Network:
    """Three classes of three inputs; the first one leads by a little at 0.1."""
    draw = torch.Generator().manual_seed(4)
    first = Linear(torch.randn(12, 3, generator=draw).double(), torch.randn(12, generator=draw).double())
    last = Linear(torch.randn(3, 12, generator=draw).double(), torch.zeros(3).double())
    nodes = Node(first, (0,)), Node(activation, (1,)), Node(last, (2,))
    scores = Network((3,), nodes)(torch.full((1, 3), 0.1).double())[0]
    shifted = Linear(last.weight, torch.tensor([0.3, 0.0, 0.0]).double() - scores)
    return Network((3,), (*nodes[:2], Node(shifted, (2,))))


@pytest.mark.parametrize("name", ["sigmoid", "gelu", "sine", "square", "elu with a kink above"])
def test_verdicts_are_true(name: str) -> None:
    """Small radii hold, large ones are violated; what is in between may stay unknown, but no answer is wrong."""
    network, box = undecided_network(SMOOTH[name]), (-3, 3)
    image = torch.full((1, 3), 0.1, dtype=torch.float64)
    distance = relucert.attack(network, image, box=box, steps=40)[0].distance
    certified = relucert.certify(network, image, method="crown", box=box)[0].radius
    assert distance is not None
    assert certified is not None
    wanted = {0.5 * certified: "holds", 0.9 * distance: "holds", 1.01 * distance: "violated"}
    for radius, expected in wanted.items():
        (verdict,) = relucert.robust_at(network, image, radius=radius, box=box, time_limit=20)
        rivals = [([[float(one == 0) - float(one == rival) for one in range(3)]], [0.0]) for rival in (1, 2)]
        query = relucert.Query.within([0.1 - radius] * 3, [0.1 + radius] * 3, rivals)
        asked = relucert.verify(network, query, time_limit=20)
        assert verdict.status == asked.status == expected


def test_cuts_decide_what_bounds_leave_open() -> None:
    """Regions between what CROWN proves and an attack's distance are decided by cuts at the inputs."""
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(2, 10), nn.Tanh(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 8), nn.SiLU())
    network = relucert.load(nn.Sequential(module, nn.Linear(8, 2)).double())
    image = torch.tensor([[0.3, -0.2]], dtype=torch.float64)
    distance = relucert.attack(network, image, box=(-4, 4), steps=80)[0].distance
    certified = relucert.certify(network, image, method="crown", box=(-4, 4))[0].radius
    assert distance is not None
    assert certified is not None
    radius = 0.9 * distance
    assert certified < radius
    (verdict,) = relucert.robust_at(network, image, radius=radius, box=(-4, 4), time_limit=60)
    assert verdict.status == "holds"
    assert verdict.nodes > 0


def test_a_domain_that_is_left_is_a_region_that_is_not_certified() -> None:
    """A logarithm of x + 1: within 0.5 of 0 it is bounded, within 2 it is not defined."""
    first, last = nn.Linear(2, 2, bias=False), nn.Linear(2, 2)
    with torch.no_grad():
        first.weight.copy_(torch.eye(2))
        last.weight.copy_(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))
        last.bias.copy_(torch.tensor([10.0, 0.0]))
    network = relucert.load(nn.Sequential(first, Function(lambda x: torch.log(x + 1)), last))
    held, left = (
        relucert.robust_at(network, torch.zeros(1, 2), torch.tensor([0]), radius=radius, time_limit=5)[0]
        for radius in (0.5, 2.0)
    )
    assert held.status == "holds"
    assert left.status == "unknown"
    assert left.reason
    radius = relucert.certify(network, torch.zeros(1, 2), torch.tensor([0]), method="crown")[0].radius
    assert radius is not None
    assert 0.5 < radius < 1


def images_network(activation: nn.Module) -> Network:
    torch.manual_seed(5)
    layers = [nn.Conv2d(1, 3, 3, stride=2, padding=1), activation, nn.Conv2d(3, 4, 2), nn.Tanh(), nn.Flatten()]
    return relucert.load(nn.Sequential(*layers, nn.Linear(16, 3)), input_shape=(1, 6, 6))


@pytest.mark.parametrize("activation", [nn.GELU(), nn.Softplus(), nn.ReLU()])
@pytest.mark.parametrize("method", ANY)
def test_margins_of_images_are_bounded_everywhere(method: MethodName, activation: nn.Module) -> None:
    """In windows, at a point, in a small region and in a large one; a point's bounds are its margins up to rounding."""
    network = images_network(activation).cast(torch.float64)
    draw = torch.Generator().manual_seed(1)
    centre = torch.rand(1, 36, generator=draw, dtype=torch.float64)
    rows = torch.tensor([[[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]], dtype=torch.float64)
    prop = relucert.Property(rows, torch.zeros(1, 2, dtype=torch.float64))
    for radius in (0.0, 1e-9, 0.02, 0.3):
        region = relucert.Region.around(centre, radius, torch.inf)
        moved = radius * (2 * torch.rand(300, 36, generator=draw, dtype=torch.float64) - 1)
        ends = radius * (2 * torch.randint(0, 2, (300, 36), generator=draw) - 1)
        margins = prop.values(network(torch.cat([centre, centre + moved, centre + ends])))
        tested = METHODS[method]()
        with torch.inference_mode():
            lower = tested.margins(network, region, prop, tested.hidden(network, region, RIGOROUS), RIGOROUS)
        assert (lower <= margins + 1e-14).all()
        assert (margins[0] - lower < 1e-6).all() or radius > 1e-9
