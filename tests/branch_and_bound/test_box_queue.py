"""Boxes of many questions are cut in one queue: what is proven is true, and what is violated is come upon."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.box import Box
from relucert.arithmetic.property import Property
from relucert.branch_and_bound import box_queue
from relucert.branch_and_bound.box_queue import BoxQueue
from relucert.common.deadline import TimeUp, until
from relucert.common.progress import Progress
from relucert.inputs.loading import load
from relucert.network import Network
from tests.nets import mlp

COUNT = 20
FUNCTION, DEEP = mlp(1, 12, 12, 1, seed=4), mlp(3, 10, 10, 10, 2, seed=5)


def question(network: Network, room: float, seed: int = 0) -> tuple[Box, Property, Tensor]:
    """Wide boxes of one moving input; that the first output stays above its least value there, less some room, or (the
    second row) above its largest. Returns the least margins, as sampled, too."""
    generator = torch.Generator().manual_seed(seed)
    low = torch.rand(COUNT, network.sizes[0], generator=generator, dtype=torch.float64) * 2 - 1
    high = low.clone()
    high[:, 0] += 0.5
    shares = torch.linspace(0, 1, 2001, dtype=torch.float64)[None, :, None]
    values = network((low[:, None] + shares * (high - low)[:, None]).flatten(0, 1))[:, 0].unflatten(0, (COUNT, -1))
    rows = torch.zeros(COUNT, 2, network.classes, dtype=torch.float64)
    rows[:, :, 0] = 1
    offsets = torch.stack([room - values.amin(1), -values.amax(1) - 1], 1)
    return Box(low, high), Property(rows, offsets), values.amin(1)


def never(number: int, point: Tensor) -> bool:
    raise AssertionError(f"box {number} has no violation")


@pytest.mark.parametrize("network", [FUNCTION, DEEP], ids=["function", "deep"])
@pytest.mark.parametrize("room", [1.0, 1e-2, 1e-3])
def test_what_holds_is_proven(network: Network, room: float) -> None:
    exact = network.cast(torch.float64)
    boxes, prop, _ = question(exact, room)
    queue = BoxQueue(exact, boxes, prop, never)
    with torch.inference_mode():
        queue.run()
    assert sorted(queue.proven) == list(range(COUNT))
    assert queue.suited == set(range(COUNT))
    assert queue.nodes >= COUNT + (room < 1) * 2


@pytest.mark.parametrize("accepted", [True, False])
def test_what_is_violated_is_come_upon(accepted: bool) -> None:
    """Where the check of the point fails, that box is left open, and all others are decided."""
    exact, violated, points = FUNCTION.cast(torch.float64), 7, []
    boxes, prop, least = question(exact, 1e-3)
    offsets = prop.offsets.clone()
    offsets[violated, 0] = -least[violated] - 1e-3

    def violates(number: int, point: Tensor) -> bool:
        points.append((number, point))
        return accepted

    queue = BoxQueue(exact, boxes, Property(prop.rows, offsets), violates)
    with torch.inference_mode():
        queue.run()
    ((number, point),) = points
    assert number == violated
    assert bool((point >= boxes.low[number]).all() and (point <= boxes.high[number]).all())
    assert float(exact(point[None])[0, 0] + offsets[number, 0]) <= 0
    assert queue.violated == accepted
    assert violated not in queue.proven
    assert accepted or sorted(queue.proven) == [other for other in range(COUNT) if other != violated]


def test_boxes_that_take_too_many_parts_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a room of 0 the least margin is zero, at a point that no cut decides."""
    monkeypatch.setattr(box_queue, "MOST_PARTS", 40)
    exact = FUNCTION.cast(torch.float64)
    boxes, prop, _ = question(exact, 0.0)
    queue = BoxQueue(exact, boxes, prop, lambda number, point: False)
    with torch.inference_mode():
        queue.run()
    assert len(queue.proven) < COUNT
    assert queue.suited == set(range(COUNT))


class Gated(torch.nn.Module):
    """A product with the last input."""

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(inputs[:, :1] - inputs[:, 1:2]) * inputs[:, 2:]


def test_what_was_proven_stays_so_when_time_ends() -> None:
    """Boxes with factors of their own are searched one after the other, each as soon as its network is made."""
    exact = load(Gated(), input_shape=(3,)).cast(torch.float64)
    boxes, prop, _ = question(exact, 1.0)

    def late(state: Progress) -> None:
        if state.nodes == COUNT // 2:
            raise TimeUp

    queue = BoxQueue(exact, boxes, prop, never, late)
    with pytest.raises(TimeUp):
        queue.run()
    assert len(queue.proven) == COUNT // 2
    assert len(queue.suited) == COUNT // 2 + 1


def test_time_ends_it() -> None:
    exact = FUNCTION.cast(torch.float64)
    boxes, prop, _ = question(exact, 1e-2)
    queue = BoxQueue(exact, boxes, prop, never)
    with pytest.raises(TimeUp), until(0.0):
        queue.run()
    assert not queue.proven
