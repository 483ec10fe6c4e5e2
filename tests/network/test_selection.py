"""Layers that only select numbers are evaluated as that, whatever they are written as."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import relucert
from relucert.inputs.loading.runtime import RoundedEvaluation
from relucert.network import find_inference
from tests.inputs.loading.image_models import Function

SIZES = (1e-30, 1e-12, 1.0, 1e12, 1e30)
LAYERS: dict[str, Callable[[Tensor], Tensor]] = {
    "maximum with a constant": lambda x: torch.maximum(x, torch.tensor(-1.0)),
    "maximum with a large constant": lambda x: torch.maximum(x, torch.tensor(-(2.0**66))),
    "minimum with a constant": lambda x: torch.minimum(x, torch.tensor(1.0)),
    "clamp": lambda x: x.clamp(-3.0, 2.0**66),
    "maximum of values": lambda x: torch.maximum(x, x.flip(1)),
    "minimum of values": lambda x: torch.minimum(x, x.roll(1, 1)),
    "maximum of a leaky ReLU": lambda x: torch.maximum(x, torch.relu(functional.leaky_relu(x.flip(1), 0.5))),
    "leaky ReLU": lambda x: functional.leaky_relu(x, 0.5),
    "absolute value": torch.abs,
    "largest": lambda x: x.amax(1, keepdim=True).expand(-1, 12).flatten(1),
    "smallest": lambda x: x.reshape(-1, 3, 4).amin(2),
    "pooling": lambda x: functional.max_pool1d(x[:, None], 3, 2)[:, 0],
    "padded pooling": lambda x: functional.max_pool2d(x.reshape(-1, 1, 3, 4), 3, 2, 1).flatten(1),
    "pooling of pooling": lambda x: functional.max_pool1d(
        functional.max_pool1d(x[:, None], 2, 1), 3, 2, ceil_mode=True
    ).flatten(1),
}


def points() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(400, 12, generator=generator)
    sizes = torch.tensor(SIZES)[torch.randint(len(SIZES), drawn.shape, generator=generator)]
    return drawn * sizes


@pytest.mark.parametrize("name", LAYERS)
def test_numbers_are_selected_exactly(name: str) -> None:
    """Of sizes so different that a difference keeps nothing of the smaller one."""
    network = relucert.load(Function(LAYERS[name]), input_shape=(12,))
    assert any(node.exact for node in network.nodes)
    expected = LAYERS[name](points())
    assert torch.equal(RoundedEvaluation(network.evaluated_in(find_inference("float32")))(points()), expected)
    for dtype in (torch.float32, torch.float64):
        found = network.cast(dtype)(points().to(dtype))
        assert torch.equal(found, expected.to(dtype))


@pytest.mark.parametrize("name", LAYERS)
def test_slopes_are_those_of_what_is_selected(name: str) -> None:
    network = relucert.load(Function(LAYERS[name]), input_shape=(12,)).cast(torch.float64)
    slopes: list[Tensor] = []
    for run in (network, LAYERS[name]):
        drawn = torch.randn(20, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        drawn.requires_grad_()
        slopes += torch.autograd.grad(run(drawn).sum(), [drawn])
    assert torch.allclose(slopes[0], slopes[1])


def test_what_is_no_number_stays_none() -> None:
    network = relucert.load(Function(LAYERS["clamp"]), input_shape=(12,))
    assert not bool(network(torch.full((1, 12), torch.nan)).isfinite().any())


def test_a_violation_is_no_artefact_of_a_difference() -> None:
    """`max(x, -1)` of an x of 1e-20 is positive: as `relu(x + 1) - 1` it would be 0, at any such input."""
    identity = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        identity.weight.copy_(torch.eye(2))
    network = relucert.load(nn.Sequential(Function(lambda x: torch.maximum(x, torch.tensor(-1.0))), identity))
    query = relucert.Query.within([1e-20, -1], [2e-20, -1], [([[1, 0]], [0])])
    verdict = relucert.verify(network, query, inference="float32")
    assert verdict.status != "violated"
