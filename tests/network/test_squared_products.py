"""Products of two computed values, which are written in squares, and how they are balanced."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import relucert
from relucert import Network, Region
from relucert.arithmetic.property import Property
from relucert.network import Add, Layer, Node, Power, Reshape, Scale, Shift
from relucert.network.squared_products import balanced
from relucert.query.problem import Problem
from tests.transformers import attention_network

SQUARE = Power(2)


def _points(inputs: int) -> Tensor:
    return torch.randn(200, inputs, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def test_the_products_of_attention_and_of_a_quotient_are_found() -> None:
    network = attention_network()
    assert len(network.products) == 3
    for product in network.products:
        assert product.plus < product.minus
        points = network.values(_points(5))
        first, second = (points[factor] for factor in product.factors)
        torch.testing.assert_close(points[product.plus] - points[product.minus], 4 * first * second)
        for factor, root in zip(product.factors, product.roots, strict=True):
            assert network.ancestors((factor,)) >= {root}
    assert not relucert.load("mnist-2x20").products


@pytest.mark.parametrize("fault", ["another use", "another power", "a sum", "another factor"])
def test_other_differences_are_no_products(fault: str) -> None:
    """Forms on the second square must be the negatives of those on the first one, and both of the same two values."""
    minus, plus = Scale(torch.tensor(-1.0), divide=False), Scale(torch.tensor(1.0), divide=False)
    nodes = [
        Node(Scale(torch.tensor(2.0), divide=False), (0,)),
        Node(Add(), (1, 0)),
        Node(SQUARE, (2,)),
        Node(minus, (1 if fault == "another factor" else 0,)),
        Node(Add(), (1, 4)),
        Node(Power(4) if fault == "another power" else SQUARE, (5,)),
        Node(plus if fault == "a sum" else minus, (6,)),
        Node(Add(), (3, 7)),
        Node(Add(), (8, 3 if fault == "another use" else 0)),
    ]
    assert not Network((4,), tuple(nodes)).products
    sound = [*nodes[:3], Node(minus, (0,)), Node(Add(), (1, 4)), Node(SQUARE, (5,)), Node(minus, (6,)), nodes[7]]
    assert [product.factors for product in Network((4,), tuple(sound)).products] == [(1, 0)]


class _Far(nn.Module):
    """A product of numbers of very different sizes."""

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([inputs[:, :2] * (1e-9 * inputs[:, 2:] + 1e-8), inputs[:, :1]], 1)


def test_balanced_products_are_the_same_function() -> None:
    """Factors are powers of two; squares vary alike, and both differ no more than their factors do."""
    network = relucert.load(_Far().double(), input_shape=(4,))
    points = torch.tensor([1e6, 1e6, 1.0, 1.0]).double() * _points(4)
    (product,) = network.products
    scaled = balanced(network, points)
    torch.testing.assert_close(scaled(points), network(points), rtol=1e-6, atol=1e-30)
    values = scaled.values(points)
    first, second = (values[factor].std(0).mean() for factor in product.factors)
    assert 0.5 < float(first / second) < 2
    before = network.values(points)
    assert not 0.5 < float(before[product.factors[0]].std(0).mean() / before[product.factors[1]].std(0).mean()) < 2
    assert scaled.products == network.products
    for value, node in scaled.steps():
        old = network.node(value).operation
        assert type(old) is type(node.operation)
        if isinstance(old, Scale):
            assert isinstance(node.operation, Scale)
            mantissas = torch.frexp(node.operation.factor / old.factor).mantissa
            assert bool((mantissas == 0.5).all())


def test_factors_that_are_used_elsewhere_are_left_alone() -> None:
    minus = Scale(torch.tensor(-1.0).double(), divide=False)
    factor, quarter = (Scale(torch.tensor(number).double(), divide=False) for number in (4.0, 1 / 16))
    nodes = [Node(factor, (0,)), Node(Add(), (1, 0)), Node(SQUARE, (2,)), Node(minus, (0,)), Node(Add(), (1, 4))]
    nodes += [Node(SQUARE, (5,)), Node(minus, (6,)), Node(Add(), (3, 7)), Node(quarter, (8,))]
    network = Network((4,), tuple(nodes))
    points = _points(4)
    assert len(network.products) == 1
    changed = balanced(network, points)
    assert float(changed.node(1).operation.tensors()["factor"]) == 1
    torch.testing.assert_close(changed(points), network(points))
    for reused in (1, 8):
        used = Network((4,), (*nodes, Node(Add(), (9, reused))))
        assert len(used.products) == 1
        same = balanced(used, points)
        assert float(same.node(1).operation.tensors()["factor"]) == 4


def _written(kind: str) -> tuple[Node, ...]:
    """`((k x + y)^2 - (k x - y)^2) q` as nobody's import writes it: another function once k alone is changed."""
    minus, k, q = (Scale(torch.tensor(number).double(), divide=False) for number in (-1.0, 4.0, 1 / 16))
    shift = Shift(torch.tensor([1.0, 2.0, 3.0, 4.0]).double())
    nodes = [Node(k, (0,)), Node(shift if kind == "shifted" else Reshape((4,), (2, 2)), (1,))]
    nodes += [Node(Reshape((4,) if kind == "shifted" else (2, 2), (4,)), (2,)), Node(shift, (0,)), Node(Add(), (3, 4))]
    nodes += [Node(SQUARE, (5,)), Node(minus, (4,)), Node(Add(), (3, 7)), Node(SQUARE, (8,)), Node(minus, (9,))]
    nodes += [Node(Add(), (6, 10)), Node(q, (11,))]
    if kind == "a factor of the next":
        nodes += [Node(Add(), (12, 0)), Node(SQUARE, (13,)), Node(minus, (0,)), Node(Add(), (12, 15))]
        nodes += [Node(SQUARE, (16,)), Node(minus, (17,)), Node(Add(), (14, 18)), Node(q, (19,))]
    used = {"the sum used": 5, "the difference used": 8, "the factor used": 3, "k x used": 1, "the result used": 11}
    return (*nodes, Node(Add(), (len(nodes), used[kind]))) if kind in used else tuple(nodes)


ELSEWHERE = ("the sum used", "the difference used", "the factor used", "k x used", "the result used")


@pytest.mark.parametrize("kind", ["moved", "shifted", "a factor of the next", *ELSEWHERE])
def test_balanced_networks_are_the_same_function_however_they_are_written(kind: str) -> None:
    network = Network((4,), _written(kind))
    assert network.products
    points = torch.tensor([1e3, 1.0, 1e-3, 10.0]).double() * _points(4)
    scaled = balanced(network, 1e-2 * points)
    torch.testing.assert_close(scaled(points), network(points), rtol=1e-9, atol=1e-12)
    changed = [
        value
        for value, node in scaled.steps()
        if any(not torch.equal(*pair) for pair in _paired(node.operation.tensors(), network.node(value).operation))
    ]
    assert changed == {"moved": [1, 12], "a factor of the next": [1, 12]}.get(kind, [])


def _paired(tensors: dict[str, Tensor], other: Layer) -> list[tuple[Tensor, Tensor]]:
    return [(tensor, other.tensors()[name]) for name, tensor in tensors.items()]


@pytest.mark.parametrize(("k", "q"), [(1e-9, 1e-34), (1e9, 1e30)])
def test_factors_that_would_leave_their_precision_are_left_alone(k: float, q: float) -> None:
    nodes = list(_written("moved"))
    for place, number in ((0, k), (11, q)):
        nodes[place] = Node(Scale(torch.tensor(number, dtype=torch.float32), divide=False), nodes[place].inputs)
    network = Network((4,), tuple(nodes))
    scaled = balanced(network, _points(4))
    for value in (1, 12):
        assert torch.equal(*_paired(scaled.node(value).operation.tensors(), network.node(value).operation)[0])


def test_problems_balance_products_in_their_region() -> None:
    network = relucert.load(_Far().double(), input_shape=(4,))
    centre = torch.tensor([[1.0, 2.0, 1.0, 1.0]]).double()
    region = Region.around(centre, torch.tensor([0.5]).double(), "inf")
    prop = Property(torch.eye(3, dtype=torch.float64)[None], torch.zeros(1, 3, dtype=torch.float64))
    problem = Problem(network, region, prop).balanced()
    values = problem.network.values(centre + 0.5 * _points(4).clamp(-1, 1))
    (product,) = problem.network.products
    first, second = (values[factor].std(0).mean() for factor in product.factors)
    assert 0.4 < float(first / second) < 2.5
    plain = Problem(relucert.load("mnist-2x20"), region, prop)
    assert plain.balanced() is plain
