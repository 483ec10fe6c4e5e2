"""Bounds on the part of a ball in a box where some neurons' signs are known, with any slopes and multipliers."""

import math

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.norm import Norm
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.backward import DualVariables, bound_forms
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.layerwise import enclose
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import FAST_LIN
from relucert.network import Network, Relu, Rows
from tests.nets import NETWORKS, NORMS, centres

BOX = (-0.4, 0.5)
RADIUS = 0.6


def _inside(network: Network, centre: Tensor, norm: float, box: tuple[float, float] | None) -> Tensor:
    points = Norm(norm).sample(centre, RADIUS, 4000, torch.Generator().manual_seed(1))
    return points if box is None else points[((points >= box[0]) & (points <= box[1])).all(1)]


@pytest.mark.parametrize("box", [None, BOX])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_bounds_hold_where_the_signs_do(name: str, norm: float, box: tuple[float, float] | None) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    centre = centres(network, 1)[0].clamp(-0.3, 0.4)
    points = torch.cat([centre[None], _inside(network, centre, norm, box)])
    values = network.values(points)
    known, alike = {}, torch.ones(len(points), dtype=torch.bool)
    for value in network.preactivations:
        signs = torch.zeros(network.sizes[value], dtype=torch.float64)
        signs[::2] = values[value][0, ::2].sign()  # every second neuron stays as it is at the centre
        known[value] = Interval(torch.where(signs > 0, 0, -math.inf)[None], torch.where(signs < 0, 0, math.inf)[None])
        alike &= (values[value] * signs >= 0).all(1)
    region = Region.around(centre[None], RADIUS, norm, box)
    bounds: Bounds = {}
    path = ReferencePath(network, region, bounds, FAST_LIN, RIGOROUS)
    for value in network.preactivations:
        bounds[value] = enclose(path, value).meet(known[value])
    for value, (lower, upper) in bounds.items():
        assert ((values[value][alike] >= lower) & (values[value][alike] <= upper)).all()
    generator = torch.Generator().manual_seed(2)
    shapes = {
        value: (1, 3, network.sizes[value]) for value, node in network.steps() if isinstance(node.operation, Relu)
    }
    slopes, multipliers = (
        {value: scale * torch.randn(shape, generator=generator, dtype=torch.float64) for value, shape in shapes.items()}
        for scale in (0.7, 2.0)
    )
    forms = torch.randn(1, 3, network.classes, generator=generator, dtype=torch.float64)
    duals = DualVariables(slopes, multipliers)
    path = ReferencePath(network, region, bounds, FAST_LIN, RIGOROUS, upper=True)
    least = bound_forms(path, network.output, forms, duals=duals).lower
    assert ((values[-1][alike] @ forms[0].T).amin(0) >= least[0]).all()
    whole: Bounds = {}  # the same with bounds of the whole region, and the signs as what the forms rely on
    path = ReferencePath(network, region, whole, FAST_LIN, RIGOROUS)
    for value in network.preactivations:
        whole[value] = enclose(path, value)
    relied = {}
    for value in shapes:
        low, high = known[network.source(value)]
        relied[value] = ((low == 0).double() - (high == 0).double()).expand(1, 3, -1)
    duals = DualVariables(slopes, multipliers, relied)
    path = ReferencePath(network, region, whole, FAST_LIN, RIGOROUS, upper=True)
    looser = bound_forms(path, network.output, forms, duals=duals).lower
    assert ((values[-1][alike] @ forms[0].T).amin(0) >= looser[0]).all()


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("radius", [0.05, 0.7, 3.0])
def test_forms_fall_as_far_as_the_box_lets_them(radius: float, norm: float) -> None:
    generator = torch.Generator().manual_seed(3)
    centre = torch.rand(1, 8, generator=generator, dtype=torch.float64) - 0.5
    centre[0, :2] = torch.tensor([-0.5, 0.5])
    forms = torch.randn(1, 20, 8, generator=generator, dtype=torch.float64)
    region = Region.around(centre, radius, norm, (-0.5, 0.5))
    deviation, reference = region.deviation(Rows(forms, (forms.shape[-1],)), RIGOROUS), region.reference[0]
    for sign, side in ((1, deviation.below[0]), (-1, deviation.above[0])):
        room = torch.where(sign * forms > 0, centre + 0.5, 0.5 - centre)[0]
        pairs = zip(forms[0].abs(), room, strict=True)
        wanted = torch.stack([_farthest(sizes, rooms, radius, norm) for sizes, rooms in pairs])
        moved = side + sign * (forms[0] @ (centre[0] - reference))  # counted from the centre
        assert (moved >= wanted * (1 - 1e-12)).all()
        torch.testing.assert_close(moved, wanted, rtol=1e-6, atol=1e-12)


def _farthest(sizes: Tensor, room: Tensor, radius: float, norm: float) -> Tensor:
    """The largest `sizes @ way` with 0 <= way <= room in the ball: by hand for each norm."""
    if math.isinf(norm):
        return sizes @ room.clamp(max=radius)
    if norm == 1:
        left, total = radius, torch.zeros((), dtype=torch.float64)
        for place in sizes.argsort(descending=True):
            way = min(left, float(room[place]))
            left, total = left - way, total + way * sizes[place]
        return total
    low, high = 1e-9, 1e9  # of the pace at which coordinates move
    for _ in range(200):
        pace = math.sqrt(low * high)
        low, high = (pace, high) if float(torch.minimum(room, pace * sizes).norm()) < radius else (low, pace)
    return sizes @ torch.minimum(room, low * sizes)
