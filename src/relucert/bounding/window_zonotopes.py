"""Zonotopes of images in windows: bounds of convolutional layers by parallel lines, without back-substitution.

Back-substitution costs as much as there are neurons that intervals leave unstable. A zonotope costs as much as there
are inputs, and neurons that are unstable by their final bounds, which on deep convolutional networks are far fewer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf
from typing import NamedTuple

from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.arithmetic.symbol_windows import Extent, SymbolWindows
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.relaxers import Relaxer
from relucert.bounding.zonotope import Block, Zonotope, ZonotopeSteps, count_symbols
from relucert.common.deadline import check_time
from relucert.network import INPUT, Affine, Network, Units

NUMBER_WORK = 16  # multiplications that take as long as what else is done to one coefficient
SET_UP = 2**26  # multiplications that take as long as the many small steps of a layer
MOST_BYTES = 2**27  # of coefficients on one value


class WindowZonotopes:
    """Zonotopes of a network's values, each computed once it is wanted, from the bounds of all pre-activations before.

    Attributes:
        values: The zonotopes that later ones depend on, by value.
    """

    def __init__(self, network: Network, region: Region, relaxer: Relaxer, arithmetic: Arithmetic) -> None:
        self.network, self.region, self.relaxer, self.arithmetic = network, region, relaxer, arithmetic
        self.steps = ZonotopeSteps(network, region, arithmetic, network.inference.rounds)
        self.values = {INPUT: self.steps.input()}
        self._uses = Counter(source for node in network.nodes for source in node.inputs)  # those that are left

    def suit(self, value: int, unstable: Tensor, bounds: Bounds) -> bool:
        """Whether the zonotope of a pre-activation takes fewer multiplications than the back-substitution of neurons.

        Args:
            unstable: The neurons that would be pulled back, (batch, size).
            bounds: Of all pre-activations before.
        """
        members = len(self.region.radius)
        neurons = int(unstable.any(0).sum())
        pulled = members * neurons * self.network.pull_counts[value].multiplications
        if pulled <= SET_UP:
            return False
        work, numbers = self._count(value, bounds)
        small = members * numbers * self.arithmetic.dtype.itemsize <= MOST_BYTES
        return small and members * work + SET_UP <= pulled

    def interval(self, value: int, bounds: Bounds) -> Interval:
        """The bounds of a pre-activation, given those of all before it; infinite ones where numbers overflow."""
        last = value == self.network.preactivations[-1]
        for current in self._missing(value):
            check_time()
            self.values[current] = self._step(current, bounds, keep=current != value or not last)
            for source in self.network.node(current).inputs:
                self._uses[source] -= 1
                if not self._uses[source]:
                    del self.values[source]
        lower, upper = self.values[value].interval(self.arithmetic)
        return Interval(lower.nan_to_num(-inf, inf, -inf), upper.nan_to_num(inf, inf, -inf))

    def _missing(self, value: int) -> list[int]:
        """What has to be computed for a value, in order."""
        return sorted(self.network.ancestors((value,), self.values) - self.values.keys())

    def _step(self, value: int, bounds: Bounds, keep: bool) -> Zonotope:
        node = self.network.node(value)
        if isinstance(node.operation, Affine):
            operands = {source: self._in_windows(source) for source in node.inputs}
            return self.steps.affine(value, operands, bounds, keep)
        source = node.inputs[0]
        relaxation = self.relaxer(node.operation, bounds[source], self.arithmetic)
        return self.steps.activation(value, self.values[source], relaxation)

    def _in_windows(self, value: int) -> Zonotope:
        """The zonotope of a value, with units on an image as windows."""
        zonotope, shape, dtype = self.values[value], self.network.shapes[value], self.arithmetic.dtype
        if len(shape) != 3:
            return zonotope
        blocks: dict[int, Block] = {
            source: SymbolWindows.units(block.indices, block.scale, shape, dtype) if isinstance(block, Units) else block
            for source, block in zonotope.blocks.items()
        }
        return replace(zonotope, blocks=blocks)

    def _count(self, value: int, bounds: Bounds) -> tuple[int, int]:
        """The multiplications that lead from the present zonotopes to that of a value, and the most coefficients that
        one value on the way has."""
        work = most = 0
        counts = {known: _Count.by_source(self._in_windows(known)) for known in self.values}
        for current in self._missing(value):
            node = self.network.node(current)
            operands = [counts[source] for source in node.inputs]
            if isinstance(node.operation, Affine):
                counts[current] = {}
                for source in set().union(*operands):
                    before = [operand[source] for operand in operands if source in operand]
                    images = [count.image(node.operation, self.network.sizes[current]) for count in before]
                    work += sum(products for products, _ in images)
                    counts[current][source] = max((image for _, image in images), key=_Count.coefficients)
            else:
                unstable = ~node.operation.is_affine(*bounds[node.inputs[0]])
                shape = self.network.shapes[current]
                unit = Extent(1, 1, shape) if len(shape) == 3 else None
                fresh = _Count(int(unstable.any(0).sum()), unit, self.network.sizes[current])
                counts[current] = {**operands[0], current: fresh}
            coefficients = sum(count.coefficients() for count in counts[current].values())
            work, most = work + NUMBER_WORK * coefficients, max(most, coefficients)
        return work, most


class _Count(NamedTuple):
    """How many symbols a source has, and their windows on a value of this size; without windows they take all of it."""

    symbols: int
    extent: Extent | None
    size: int

    @classmethod
    def by_source(cls, zonotope: Zonotope) -> dict[int, _Count]:
        """The symbols of a zonotope."""
        size, blocks = zonotope.centre.shape[1], zonotope.blocks.items()
        extents = {source: block.extent if isinstance(block, SymbolWindows) else None for source, block in blocks}
        return {source: cls(count_symbols(block, size), extents[source], size) for source, block in blocks}

    def coefficients(self) -> int:
        return self.symbols * (self.size if self.extent is None else self.extent.numbers)

    def image(self, operation: Affine, size: int) -> tuple[int, _Count]:
        """The multiplications that symbols take through an operation, and what they have on its value, of this size."""
        work, extent = (operation.work, None) if self.extent is None else operation.count_image(self.extent)
        return self.symbols * work, _Count(self.symbols, extent, size)
