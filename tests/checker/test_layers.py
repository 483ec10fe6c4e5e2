"""Every affine operation in the checker's own arithmetic, against the operation itself."""

from math import prod

import pytest
import torch
from flint import arb, ctx
from torch import Tensor

from relucert.checker.layers import LAYERS, Layer, layer_of
from relucert.network import Affine, BatchScale, Convolution, Network, Node, Operation, Reshape
from relucert.network.forms import Shape
from tests.network.test_convolution import CHANNELS, GEOMETRIES, SIZE, convolution
from tests.network.test_operations import CASES


def layer(operation: Operation, shapes: tuple[Shape, ...]) -> Layer:
    after = operation.shape(*shapes)
    node = Node(operation, (0,) * len(shapes))
    return layer_of(Network(shapes[0], (node, Node(Reshape(after, (prod(after),)), (1,)))), 1, node)


def assert_same(operation: Affine, shapes: tuple[Shape, ...]) -> None:
    after = operation.shape(*shapes)
    generator = torch.Generator().manual_seed(3)
    forms = torch.randn(1, 3, prod(after), generator=generator, dtype=torch.float64)
    forms[0, :, ::3] = 0
    balls = layer(operation, shapes)
    pulled = balls.transpose([[arb(number) for number in row] for row in forms[0].tolist()])
    for part in operation.transpose(forms.unflatten(-1, after)):
        torch.testing.assert_close(middles(pulled), part[0].flatten(1))
    if operation.constant is None:
        assert balls.constant is None
    else:
        assert balls.constant is not None
        torch.testing.assert_close(middles([balls.constant])[0], operation.constant.expand(after).flatten())


def middles(rows: list[list[arb]]) -> Tensor:
    return torch.tensor([[float(ball) for ball in row] for row in rows], dtype=torch.float64)


@pytest.mark.parametrize("name", CASES)
def test_is_the_operation_itself(name: str) -> None:
    operation, shapes = CASES[name]()
    assert isinstance(operation, Affine)
    assert_same(operation, shapes)


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("geometry", GEOMETRIES[::4])
def test_convolutions_of_all_shapes(channels: tuple[int, int, int], geometry: tuple[tuple[int, ...], ...]) -> None:
    operation: Convolution = convolution(channels, *geometry)  # type: ignore[arg-type]
    assert_same(operation, ((channels[0], *SIZE),))


def test_all_operations_are_compared() -> None:
    assert {CASES[name]()[0].name for name in CASES} == set(LAYERS)


def test_the_root_of_a_variance_is_a_ball() -> None:
    """1 / sqrt(2 + 2^-60) is no number of 53 bits, and neither is the sum under the root."""
    operation = BatchScale(torch.ones(1, dtype=torch.float64), torch.full((1,), 2.0, dtype=torch.float64), 2.0**-60)
    ((factor,),) = layer(operation, ((1,),)).transpose([[arb(1)]])
    before = ctx.prec
    ctx.prec = 300
    try:
        truth = 1 / (arb(2) + arb(2.0**-60)).sqrt()
    finally:
        ctx.prec = before
    assert not factor.is_exact()
    assert factor.contains(truth)
