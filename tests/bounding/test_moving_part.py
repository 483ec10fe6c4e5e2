"""The part of a network that moves is the network, wherever boxes fix the other inputs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.box import Box
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.fixed_factors import with_factors
from relucert.bounding.interval_propagation import interval_bounds
from relucert.bounding.moving_part import MovingPart, moving_part
from relucert.inputs.loading import load
from relucert.network import Linear, Network, Node, Power, Scale
from tests.nets import NETWORKS, centres

COUNT = 5
REFUSED = "image residual"  # its batch normalisation takes the root of a stored number


class Masked(torch.nn.Module):
    """A mean over two rows, each with a mask, as in nets of sets: products with inputs, and a division by their sum."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.last = torch.nn.Linear(3, 6), torch.nn.Linear(6, 2)

    def forward(self, rows: Tensor) -> Tensor:
        masks = rows[:, :, 3:]
        hidden = torch.relu(self.first(rows[:, :, :3])) * masks
        return torch.sigmoid(self.last(hidden.sum(1) / masks.sum(1)))


class Divided(torch.nn.Module):
    """Two products with other inputs, and the inverses of these."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[:, :1] * inputs[:, 1:2] / inputs[:, 2:] * inputs[:, 1:2]


def boxes_of(network: Network, moving: list[int], masks: bool = False) -> Box:
    """Boxes around random points that let some inputs move, and others by their rounding at most."""
    low, high = centres(network, COUNT), centres(network, COUNT)
    if masks:
        for ends in (low, high):
            ends[:, 3], ends[:, 7] = 1, torch.arange(COUNT) % 2
    high[:, moving] += 0.5
    fixed = [index for index in range(network.sizes[0]) if index not in moving]
    high[:, fixed[0]] = torch.nextafter(high[:, fixed[0]], torch.tensor(torch.inf, dtype=torch.float64))
    return Box(low, high)


def check(network: Network, part: MovingPart, boxes: Box) -> None:
    """At points of the boxes, the part gives what the network does, and its intervals hold that."""
    generator = torch.Generator().manual_seed(1)
    ends = [
        torch.cat([sides[:, part.inputs], fixed], 1) for sides, fixed in zip(boxes, part.fixed, strict=True)
    ]  # fmt: skip
    output = part.network.output
    bounds = interval_bounds(part.network, Region.boxes(*ends), RIGOROUS, (output,))[output]
    for _ in range(20):
        points = boxes.low + (boxes.high - boxes.low) * torch.rand(boxes.low.shape, generator=generator).double()
        outputs = network(points)
        middles = (part.fixed.lower + part.fixed.upper) / 2
        torch.testing.assert_close(
            part.network(torch.cat([points[:, part.inputs], middles], 1)), outputs, rtol=1e-9, atol=1e-9
        )
        assert bool((bounds.lower <= outputs + 1e-12).all() and (outputs <= bounds.upper + 1e-12).all())
    assert bool((part.fixed.upper - part.fixed.lower < 1e-9).all())


@pytest.mark.parametrize("moving", [[0], [1, 4]])
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != REFUSED])
def test_what_moves_is_the_network(name: str, moving: list[int]) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    boxes = boxes_of(network, moving)
    part = moving_part(network, boxes, boxes.moving[0])
    assert part is not None
    assert part.inputs.tolist() == moving
    check(network, part, boxes)


def test_outputs_that_do_not_move_and_divisors() -> None:
    """Divisors stay divisors, also where some of the outputs that are divided are fixed."""
    weight = torch.tensor([[1.0, 0, 0], [0, 2, -1], [0, 0, 0]], dtype=torch.float64)
    nodes = (
        Node(Linear(weight, torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)), (0,)),
        Node(Scale(torch.tensor([3.0, 7, 10], dtype=torch.float64), divide=True), (1,)),
    )
    network = Network((3,), nodes)
    boxes = boxes_of(network, [0])
    part = moving_part(network, boxes, boxes.moving[0])
    assert part is not None
    assert any(isinstance(node.operation, Scale) and node.operation.divide for node in part.network.nodes)
    check(network, part, boxes)


def test_what_is_computed_from_stored_numbers_is_refused() -> None:
    network = NETWORKS[REFUSED]().cast(torch.float64)
    boxes = boxes_of(network, [0])
    assert moving_part(network, boxes, boxes.moving[0]) is None


@pytest.mark.parametrize("moving", [[1], [0, 5]])
def test_products_with_fixed_numbers_are_factors(moving: list[int]) -> None:
    network = load(Masked(), input_shape=(2, 4)).cast(torch.float64)
    boxes = boxes_of(network, moving, masks=True)
    whole = moving_part(network, boxes, boxes.moving[0])
    assert whole is not None
    assert any(isinstance(node.operation, Power) for node in whole.network.nodes)
    check(network, whole, boxes)
    parts = list(with_factors(whole, boxes))
    assert sorted(torch.cat([members for _, members in parts]).tolist()) == list(range(COUNT))
    assert len(parts) == 2  # the second row's mask
    for part, members in parts:
        assert not any(isinstance(node.operation, Power) for node in part.network.nodes)
        assert any(isinstance(node.operation, Scale) for node in part.network.nodes)
        check(network, part, Box(boxes.low[members], boxes.high[members]))


def test_products_of_what_moves_stay_squares() -> None:
    network = load(Masked(), input_shape=(2, 4)).cast(torch.float64)
    boxes = boxes_of(network, [1, 3], masks=True)
    whole = moving_part(network, boxes, boxes.moving[0])
    assert whole is not None
    ((part, _),) = with_factors(whole, boxes)
    assert any(isinstance(node.operation, Power) for node in part.network.nodes)


@pytest.mark.parametrize("fixed", [0.0, 1e-200, 1e200])
def test_boxes_with_numbers_that_are_not_finite_are_left_out(fixed: float) -> None:
    """The inverse of 0, and squares that overflow."""
    network = load(Divided(), input_shape=(3,)).cast(torch.float64)
    low = torch.rand(COUNT, 3, dtype=torch.float64) + 1
    low[2, 1:] = torch.tensor([max(fixed, 1.0), fixed])
    high = low.clone()
    high[:, 0] += 0.5
    whole = moving_part(network, Box(low, high), torch.tensor([True, False, False]))
    assert whole is not None
    parts = list(with_factors(whole, Box(low, high)))
    assert sorted(torch.cat([members for _, members in parts]).tolist()) == [0, 1, 3, 4]
    for part, members in parts:
        if len(members):
            check(network, part, Box(low[members], high[members]))
