"""Sums that an import writes as several operations: the bounds hold for every order of all their terms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import relucert
from relucert.checker.document import Proof, Rejected
from relucert.checker.tree_check import TreeCheck
from relucert.checker.trees import BoundingRule, by_rule
from relucert.network import Network
from tests.inputs.loading.image_models import Function
from tests.inputs.loading.onnx_models import Array, model, node, write

BIG = 2.0**24  # float32 adds 1 to it in vain
COUNT, SIDE = 40, 16


@dataclass(frozen=True)
class Case:
    """A layer, and the terms of its first output at a point.

    large: where the point, of ones, has a large number; divisor: of the sum.
    """

    load: Callable[[Path], Network]
    terms: Callable[[Array], Array]
    large: int | None = None
    divisor: float = 1.0


def slices() -> list[object]:
    return [node("Slice", f"x from{place} to{place} axis", f"x{place}") for place in range(COUNT)]


def ends() -> dict[str, Array]:
    numbers = {f"from{place}": place for place in range(COUNT)} | {f"to{place}": place + 1 for place in range(COUNT)}
    return {name: np.array([number]) for name, number in numbers.items()} | {"axis": np.array([1])}


def operands(operator: str) -> Callable[[Path], Network]:
    """An operator of many inputs, at the coordinates of one."""

    def load(folder: Path) -> Network:
        last = node(operator, " ".join(f"x{place}" for place in range(COUNT)))
        return relucert.load(write(folder, model([*slices(), last], ends(), ("batch", COUNT))))  # type: ignore[list-item]

    return load


def with_constants(folder: Path) -> Network:
    """A sum of one input and many constants."""
    constants = {f"c{place}": np.array([1.0], np.float32) for place in range(COUNT - 1)}
    constants["last"] = np.array([BIG], np.float32)
    last = node("Sum", " ".join(["x", *constants]))
    return relucert.load(write(folder, model([last], constants, ("batch", 1))))


def computed_addend(folder: Path) -> Network:
    """`ones @ x + alpha x_last`: the addend is computed, and may come first."""
    nodes = [node("Slice", "x from to axis", "c"), node("Gemm", "x w c", beta=1.0)]
    weight = np.ones((COUNT, 1), np.float32)
    weight[-1] = 0
    constants = {"w": weight, "from": np.array([COUNT - 1]), "to": np.array([COUNT]), "axis": np.array([1])}
    return relucert.load(write(folder, model(nodes, constants, ("batch", COUNT))))


def scaled_addend(folder: Path) -> Network:
    """`2 ones @ x + 3 c`, with constants c."""
    constants = {"w": np.ones((COUNT, 2), np.float32), "c": np.array([BIG, 1], np.float32)}
    nodes = [node("Gemm", "x w c", alpha=2.0, beta=3.0)]
    return relucert.load(write(folder, model(nodes, constants, ("batch", COUNT))))


class Rows(nn.Module):
    """A linear layer on several rows at once, with a large bias."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(COUNT, 1)
        nn.init.ones_(self.layer.weight)
        nn.init.constant_(self.layer.bias, BIG)

    def forward(self, values: Tensor) -> Tensor:
        rows: Tensor = self.layer(values).flatten(1)
        return rows


def last_large(point: Array) -> Array:
    return np.append(point[-1], point[:-1])


def first_column(point: Array) -> Array:
    return np.sort(point.reshape(SIDE, 2, SIDE)[:, 0].flatten())[::-1]


GRID, END = (SIDE, 2, SIDE, 1), SIDE * (2 * SIDE - 1) - 1
CASES = {
    "Sum": Case(operands("Sum"), last_large, -1),
    "Mean": Case(operands("Mean"), last_large, -1, COUNT),
    "Sum of constants": Case(with_constants, lambda point: np.array([BIG, *[1.0] * (COUNT - 1), *point])),
    "Gemm with a computed C": Case(computed_addend, last_large, -1),
    "Gemm with factors": Case(scaled_addend, lambda point: np.array([3 * BIG, *(2 * point)])),
    "rows": Case(
        lambda folder: relucert.load(Rows(), input_shape=(2, COUNT)),
        lambda point: np.array([BIG, *point[:COUNT]]),
    ),
    "sum over two axes": Case(
        lambda folder: relucert.load(Function(lambda x: x.sum((1, 3)).flatten(1)), input_shape=GRID), first_column, END
    ),
    "mean over two axes": Case(
        lambda folder: relucert.load(Function(lambda x: x.mean((1, 3)).flatten(1)), input_shape=GRID),
        first_column, END, SIDE**2,
    ),
}  # fmt: skip


def point_of(network: Network, large: int | None) -> Array:
    """Ones, and a large number, to which the sum as written comes last."""
    point = np.ones(network.sizes[0])
    if large is not None:
        point[large] = BIG
    return point


def in_order(terms: Array, divisor: float, order: Array) -> float:
    total = np.float32(0)
    for term in terms[order]:
        total = np.float32(total + np.float32(term))
    return float(np.float32(total / np.float32(divisor)))


def bounds_of(network: Network, point: Array) -> tuple[float, float]:
    region = relucert.Region.around(torch.tensor(point)[None], 1e-9, "inf")
    (*_, interval) = relucert.bounds(network, region, method="interval", inference="float32")
    return float(interval.lower[0, 0]), float(interval.upper[0, 0])


def least_of(network: Network, point: Array) -> Fraction:
    """The checker's lower bound of the first output."""
    rows = torch.eye(network.classes, dtype=torch.float64).tolist()
    proof = Proof(
        name="", sha256="", index=0, image=point.tolist(), rows=rows, offsets=[0.0] * len(rows), norm=math.inf,
        box=None, scale=None, radius=1e-9, inference="float32", activation_ulps=None,
        relaxation=by_rule(BoundingRule("interval", "all")),
    )  # fmt: skip
    return TreeCheck.of(network, proof, proof.relaxation).margins()[0]


def charged_by_itself(network: Network) -> Network:
    """The same with every operation charged as if it were a sum of its own."""
    return replace(network, nodes=tuple(replace(node, roundings=None) for node in network.nodes))


@pytest.mark.parametrize("name", CASES)
def test_no_order_of_all_terms_leaves_the_bounds(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    network = case.load(tmp_path)
    point = point_of(network, case.large)
    terms = case.terms(point)
    generator = np.random.default_rng(0)
    orders = [np.arange(len(terms)), *(generator.permutation(len(terms)) for _ in range(20))]
    computed = [in_order(terms, case.divisor, order) for order in orders]
    lower, upper = bounds_of(network, point)
    least = least_of(network, point)
    assert all(lower <= number <= upper for number in computed)
    assert all(least <= Fraction(number) for number in computed)
    apart = charged_by_itself(network)
    assert not bounds_of(apart, point)[0] <= computed[0], "else this order shows nothing"
    assert not least_of(apart, point) <= Fraction(computed[0])


def test_a_layer_by_itself_says_nothing(tmp_path: Path) -> None:
    """Whose sum is one operation: neither its SHA-256 nor its bounds change."""
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 3), nn.ReLU(),
        Function(lambda x: x - x.mean(1, keepdim=True)), nn.Linear(3, 2),
    ).eval()  # fmt: skip
    assert all(node.roundings is None for node in relucert.load(module, input_shape=(1, 6, 6)).nodes)


def test_fewer_roundings_than_an_operation_has_are_rejected(tmp_path: Path) -> None:
    network = relucert.load(nn.Linear(4, 2))
    fewer = replace(network, nodes=tuple(replace(node, roundings=3) for node in network.nodes))
    with pytest.raises(Rejected, match="rounds 5 times, and says 3"):
        least_of(fewer, np.ones(4))
