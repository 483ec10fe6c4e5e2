"""Products of two values with factors that vary equally much, which makes their bounds tightest.

A product is written in squares, `x y = ((k x + y)^2 - (k x - y)^2) / (4 k)`. That holds for every k; its chords and
tangents are as tight as McCormick's planes where k x varies as much as y.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.network import Network, Node, Reshape, Scale, Shape

COUNT = 8  # random inputs at which the spreads of factors are compared
FARTHEST = 20  # the largest exponent of a scale 2^e


class ProductValues(NamedTuple):
    """The values of a product: its factors x and y, `k x`, and the result, which is divided by 4 k."""

    left: int
    right: int
    scaled: int
    result: int


def balanced(nodes: Sequence[Node], products: Sequence[ProductValues], shapes: Sequence[Shape]) -> list[Node]:
    """The nodes with powers of two as the k of every product, chosen by how much its factors vary on random inputs.

    shapes: Of all values, the input's first.
    """
    rescaled = list(nodes)
    if not products:
        return rescaled
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(COUNT, math.prod(shapes[0]), generator=generator, dtype=torch.float64)
    flat = Node(Reshape(shapes[-1], (math.prod(shapes[-1]),)), (len(nodes),))  # as the last value of a network is
    with torch.no_grad():
        values = Network(shapes[0], (*nodes, flat)).cast(torch.float64).values(points)
    for product in products:
        left, right = _spread(values[product.left]), _spread(values[product.right])
        if 0 < left < math.inf and 0 < right < math.inf:
            k = 2.0 ** max(-FARTHEST, min(FARTHEST, round(math.log2(right) - math.log2(left))))
            for value, factor in ((product.scaled, k), (product.result, 0.25 / k)):
                scale = Scale(torch.tensor(factor, dtype=torch.float64), divide=False)
                rescaled[value - 1] = replace(rescaled[value - 1], operation=scale)
    return rescaled


def _spread(values: Tensor) -> float:
    """How much the coordinates vary, in the mean; 0 where that is unknown."""
    return float(values.std(0).mean().nan_to_num(0.0))
