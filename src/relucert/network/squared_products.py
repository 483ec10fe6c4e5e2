"""Products of two computed values in a network, which imports write as differences of two squares.

`x y = ((k x + y)^2 - (k x - y)^2) / (4 k)`: so every method that takes activations takes products. Bounds of the whole
are tighter than those of both squares (bounding/product_planes.py), which is why they are found again here. Any k will
do: both squares are tightest, and float32 tells them apart best, where k x varies as much as y.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from relucert.network.activation import Activation
from relucert.network.add import Add
from relucert.network.algebraic import Power
from relucert.network.index_map import IndexMap
from relucert.network.pull_back import INPUT
from relucert.network.reshape import Reshape
from relucert.network.scale import Scale

if TYPE_CHECKING:
    from relucert.network.graph import Network

FARTHEST = 40  # the largest exponent of the power of two that a k is changed by
LOPSIDED = 6  # by so many powers of two k x may be larger or smaller than y: squares of one alone would leave rounding


class SquaredProduct(NamedTuple):
    """A product, `4 x y = (x + y)^2 - (x - y)^2`, by the values of a network.

    Attributes:
        plus: The square of the sum. Nothing but the difference of both squares is computed from it.
        minus: The square of the difference, computed after the other one; likewise.
        factors: x and y.
        roots: For each factor, the value that it is moved, scaled and shifted from, or the factor itself.
    """

    plus: int
    minus: int
    factors: tuple[int, int]
    roots: tuple[int, int]


def squared_products(network: Network) -> tuple[SquaredProduct, ...]:
    """The products of a network, in order."""
    found = (_product(network, value) for value, _ in network.steps())
    return tuple(product for product in found if product is not None)


def balanced(network: Network, points: Tensor) -> Network:
    """The same function with k times a power of two for each product, chosen by how much its factors vary at points,
    (count, inputs)."""
    if not network.products:
        return network
    values, operations = network.cast(points.dtype).values(points), dict[int, Scale]()
    for product in network.products:
        scales, times = _scales(network, product), _ratio(*(values[factor] for factor in product.factors))
        if scales is None or not operations.keys().isdisjoint(scales):
            continue
        before, after = _times(network, scales[0], times), _times(network, scales[1], 1 / times)
        if before is not None and after is not None:
            operations |= {scales[0]: before, scales[1]: after}
    return network.with_operations(operations)


def _ratio(first: Tensor, second: Tensor) -> float:
    """The power of two times which the first factor varies as much as the second one, but is not far larger or smaller;
    1 where that is unknown."""
    exponents = []
    for sizes in ([factor.std(0).mean() for factor in (first, second)], [first.abs().mean(), second.abs().mean()]):
        if not all(0 < float(size) < math.inf for size in sizes):
            return 1.0
        exponents.append(round(math.log2(float(sizes[1])) - math.log2(float(sizes[0]))))
    by_spread, by_size = exponents
    exponent = max(by_size - LOPSIDED, min(by_size + LOPSIDED, by_spread))
    return 2.0 ** max(-FARTHEST, min(FARTHEST, exponent))


def _scales(network: Network, product: SquaredProduct) -> tuple[int, int] | None:
    """The values of the two factors k and 1 / (4 k), where k is a factor of nothing but x, and 1 / (4 k) of nothing but
    the difference of both squares: between them are moves, which change no number, and the squares."""
    plus, minus = product.plus, product.minus
    ((negated,), users, value) = network.users[minus], network.users, product.factors[0]
    (difference,) = users[negated]
    sums = network.source(plus), network.source(minus)
    alone = users[value] == tuple(sorted(sums)) and users[sums[0]] == (plus,) and users[sums[1]] == (minus,)
    while value != INPUT and isinstance(network.node(value).operation, Reshape | IndexMap):
        value = network.source(value)
        alone = alone and len(users[value]) == 1
    results = users[difference]
    if not alone or len(results) != 1 or not (_is_factor(network, value) and _is_factor(network, results[0])):
        return None
    return value, results[0]


def _is_factor(network: Network, value: int) -> bool:
    operation = network.node(value).operation if value != INPUT else None
    return isinstance(operation, Scale) and not operation.divide


def _times(network: Network, value: int, factor: float) -> Scale | None:
    """A multiplication by a power of two more; None where that is not represented."""
    scale = network.node(value).operation
    assert isinstance(scale, Scale)
    product = scale.factor * factor
    exact = bool(product.isfinite().all()) and bool((product / factor == scale.factor).all())
    return replace(scale, factor=product) if exact else None


def _product(network: Network, value: int) -> SquaredProduct | None:
    """The product whose squares are subtracted here, if it is one: the pattern that imports write."""
    squares = _difference(network, value)
    if squares is None or any(len(network.users[between]) > 1 for between in (*squares, network.node(value).inputs[1])):
        return None
    plus, minus = squares
    if not all(_is_square(network, square) for square in squares) or minus < plus:
        return None
    added, subtracted = network.source(plus), network.source(minus)
    factors = _difference(network, subtracted)
    if factors is None or not isinstance(network.node(added).operation, Add) or network.node(added).inputs != factors:
        return None
    return SquaredProduct(plus, minus, factors, (_root(network, factors[0]), _root(network, factors[1])))


def _is_square(network: Network, value: int) -> bool:
    operation = network.activations.get(value)
    return isinstance(operation, Power) and operation.exponent == 2


def _difference(network: Network, value: int) -> tuple[int, int] | None:
    """The two values whose difference a value is, if it is one."""
    if value == INPUT or not isinstance(network.node(value).operation, Add):
        return None
    first, negated = network.node(value).inputs
    operation = network.node(negated).operation if negated != INPUT else None
    if not isinstance(operation, Scale) or not bool((operation.factor == -1).all()):
        return None
    return first, network.source(negated)


def _root(network: Network, value: int) -> int:
    """The value that this one is moved, scaled and shifted from: as many numbers, or fewer, where some are repeated."""
    while value != INPUT:
        operation, inputs = network.node(value).operation, network.node(value).inputs
        if isinstance(operation, Activation) or operation.work or len(inputs) > 1:
            break
        (value,) = inputs
    return value
