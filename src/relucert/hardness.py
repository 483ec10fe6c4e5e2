"""The reduction from set cover to the minimum distortion of a ReLU network: why no fast certificate is always close.

The construction of the paper's appendix A, with all scores divided by its delta so that every weight is an integer.
The network has one input per set, zero at the centre, and predicts class 1 where the sets whose inputs are near one
cover the universe. The minimum distortion at the centre then tells how many sets a cover needs.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations, zip_longest
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from relucert.arithmetic.norm import Norm, NormLike
from relucert.common.names import Names
from relucert.errors import InputError
from relucert.network import Add, Layer, Linear, Network, Node, Relu

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

INPUTS = ("real", "boolean")
HALF = 0.5  # the label's score: halfway between the rival's score at a cover, 1, and its best elsewhere, 0


@dataclass(frozen=True, eq=False)
class Reduction:
    """A network and an input whose minimum distortion tells the size of a minimum cover.

    For p < inf, the points nearest to the centre where the score of `target` reaches that of `label` are `point(cover)`
    of the minimum covers; for p = 1 their distance is `depth` times the size of the cover. With boolean inputs this
    holds among the points of zeros and ones.

    Attributes:
        network: One input per set.
        centre: (1, sets), all zero.
        label: The class of the centre.
        target: The class of covers.
        depth: How far the input of a chosen set has to move for the score of `target` to reach that of `label`.
        threshold: Sets with inputs above it count as chosen.
    """

    network: Network
    centre: Tensor
    label: int
    target: int
    depth: float
    threshold: float

    def point(self, cover: Collection[int]) -> Tensor:
        """The point nearest to the centre at which the sets at these positions are chosen: (1, sets)."""
        positions = range(self.centre.shape[1])
        expected = f"a cover is a collection of positions of sets, 0 to {len(positions) - 1}"
        if isinstance(cover, (str, bytes, Mapping)) or not isinstance(cover, Collection):
            raise InputError(f"{expected}, not {type(cover).__name__}")
        listed = cover.tolist() if isinstance(cover, (Tensor, np.ndarray)) else list(cover)
        members = listed if isinstance(listed, list) else [listed]
        if strangers := [position for position in members if not _is_position(position, positions)]:
            raise InputError(f"{expected}; {strangers[0]!r} is none")
        indicator = torch.tensor([[float(position in members) for position in positions]], dtype=torch.float64)
        return self.centre + self.depth * indicator

    def distance(self, cover: Collection[int], norm: NormLike = "1") -> float:
        """The distance of `point(cover)` from the centre: for a minimum cover, the minimum distortion."""
        return float(Norm.parse(norm).distance(self.point(cover), self.centre))

    def cover(self, point: ArrayLike | Tensor) -> list[int]:
        """Positions of the sets that are chosen at a point: a cover, if the network classifies it as `target`.

        Args:
            point: One number per set, (sets,) or (1, sets).
        """
        expected = f"a point is an array of {self.centre.numel()} numbers, one per set"
        try:
            numbers = torch.as_tensor(point).flatten()
        except (TypeError, ValueError, RuntimeError):
            raise InputError(f"{expected}, not {type(point).__name__}") from None
        if numbers.numel() != self.centre.numel():
            raise InputError(f"{expected}, not of {numbers.numel()}")
        if numbers.is_complex() or not bool(numbers.double().isfinite().all()):
            raise InputError(f"{expected}, which are real and finite")
        return [index for index, number in enumerate(numbers.tolist()) if number > self.threshold]


def _is_position(position: object, positions: range) -> bool:
    return isinstance(position, (int, np.integer)) and not isinstance(position, bool) and position in positions


def from_set_cover(
    universe: Iterable[Hashable], sets: Sequence[Iterable[Hashable]], *, inputs: str = "real"
) -> Reduction:
    """The network whose minimum distortion for p = 1 tells the size of the smallest cover of the universe.

    Args:
        universe: The elements.
        sets: Sets of elements, known by their positions.
        inputs: "real" (the paper's main result) or "boolean" (its warm-up, about inputs of zeros and ones alone).
    """
    inputs = Names("inputs", INPUTS).find(inputs)
    elements, families = _read(universe, sets)
    holders = [[index for index, family in enumerate(families) if element in family] for element in elements]
    builder, count = _Builder(len(families)), len(families)
    if inputs == "boolean":
        depth, threshold = 1.0, HALF
        _boolean(builder, holders)
    else:
        steepness = max(2, count)  # one over the paper's delta
        depth, threshold = 1 - HALF / steepness, 1 - 1 / steepness
        _real(builder, holders, steepness)
    network = Network((count,), tuple(builder.nodes), f"set-cover-{inputs}")
    return Reduction(network, torch.zeros(1, count, dtype=torch.float64), 0, 1, depth, threshold)


def greedy_cover(universe: Iterable[Hashable], sets: Sequence[Iterable[Hashable]]) -> list[int]:
    """Positions of sets that cover the universe, each chosen because it covers most of the elements still left.

    For n elements they are at most ln(n) + 1 times as many as a minimum cover has.

    Args:
        universe: The elements.
        sets: Sets of elements, known by their positions.
    """
    elements, families = _read(universe, sets)
    uncovered, cover = set(elements), []
    while uncovered:
        gains = [len(family & uncovered) for family in families]
        cover.append(gains.index(max(gains)))
        uncovered -= families[cover[-1]]
    return cover


def minimum_cover(universe: Iterable[Hashable], sets: Sequence[Iterable[Hashable]]) -> list[int]:
    """Positions of the fewest sets that cover the universe, by exhaustive search: for small instances.

    Args:
        universe: The elements.
        sets: Sets of elements, known by their positions.
    """
    elements, families = _read(universe, sets)
    numbers = range(len(families))
    tries = (cover for size in numbers for cover in combinations(numbers, size + 1))
    covers = (cover for cover in tries if len(frozenset().union(*(families[at] for at in cover))) == len(elements))
    return list(next(covers))


def _read(
    universe: Iterable[Hashable], sets: Sequence[Iterable[Hashable]]
) -> tuple[list[Hashable], list[frozenset[Hashable]]]:
    """The elements in their order, and the sets; anything that is no instance of set cover is refused."""
    if isinstance(sets, (Set, Mapping)):
        raise InputError("the sets are known by their positions: give them as a list")
    try:
        elements, families = list(dict.fromkeys(universe)), [frozenset(family) for family in sets]
    except TypeError as error:
        raise InputError(f"expected a collection of elements and a list of sets of them: {error}") from None
    if not elements:
        raise InputError("the universe is empty: there is nothing to cover")
    for index, family in enumerate(families):
        if strangers := family.difference(elements):
            raise InputError(f"set {index} has {min(map(repr, strangers))}, which is not in the universe")
    for element in elements:
        if not any(element in family for family in families):
            raise InputError(f"the sets do not cover the universe: none has {element!r}")
    return elements, families


class _Builder:
    """A network under construction: its nodes, and the width of every value."""

    def __init__(self, inputs: int) -> None:
        self.nodes: list[Node] = []
        self.widths = [inputs]

    def put(self, operation: Layer, *sources: int) -> int:
        """Appends an operation and returns the index of its value."""
        (width,) = operation.shape(*((self.widths[source],) for source in sources))
        self.nodes.append(Node(operation, sources))
        self.widths.append(width)
        return len(self.nodes)

    def linear(self, source: int, weight: Tensor, bias: Tensor | None = None) -> int:
        return self.put(Linear(weight, weight.new_zeros(len(weight)) if bias is None else bias), source)

    def score(self, value: int, neuron: int) -> None:
        """Appends the output layer: the label's score is constant, the rival's is one coordinate of a value."""
        weight = torch.zeros(2, self.widths[value], dtype=torch.float64)
        weight[1, neuron] = 1
        self.linear(value, weight, torch.tensor([HALF, 0], dtype=torch.float64))


def _boolean(builder: _Builder, holders: list[list[int]]) -> None:
    """The rival's score relu(1 - m), where m is the number of elements that no chosen set has."""
    weight = torch.zeros(len(holders), builder.widths[0], dtype=torch.float64)
    for element, columns in enumerate(holders):
        weight[element, columns] = -1
    missed = builder.put(Relu(), builder.linear(0, weight, weight.new_ones(len(weight))))
    covered = builder.linear(missed, -weight.new_ones(1, len(weight)), weight.new_ones(1))
    builder.score(builder.put(Relu(), covered), 0)


def _real(builder: _Builder, holders: list[list[int]], steepness: int) -> None:
    """The rival's score: the least over all elements of the largest step among the sets that have the element.

    The step of a set rises from -1 at input 0 to a flat part of 0, and from there to 1 at input 1.
    """
    unit = torch.eye(builder.widths[0], dtype=torch.float64)
    ones = unit.new_ones(len(unit))
    weight, bias = torch.cat([-steepness * unit, steepness * unit]), torch.cat([ones, (1 - steepness) * ones])
    ramps = builder.put(Relu(), builder.linear(0, weight, bias))
    steps = builder.linear(ramps, torch.cat([-unit, unit], 1))
    best, columns = _extremes(builder, steps, holders, 1)
    worst, (column,) = _extremes(builder, best, [columns], -1)
    builder.score(worst, column)


def _extremes(builder: _Builder, value: int, groups: list[list[int]], sign: int) -> tuple[int, list[int]]:
    """The largest (sign 1) or least (sign -1) coordinate of each group: the index of a value, and positions in it.

    Two at a time: max(a, b) = a + relu(b - a) and min(a, b) = a - relu(a - b).
    """
    while any(len(group) > 1 for group in groups):
        unit = torch.eye(builder.widths[value], dtype=torch.float64)
        pairs = [pair for group in groups for pair in zip_longest(group[::2], group[1::2])]
        complete = [index for index, (_, second) in enumerate(pairs) if second is not None]
        first = unit[[first for first, _ in pairs]]
        second = unit[[second for _, second in pairs if second is not None]]
        gain = builder.put(Relu(), builder.linear(value, sign * (second - first[complete])))
        back = sign * torch.eye(len(pairs), dtype=torch.float64)[:, complete]
        value = builder.put(Add(), builder.linear(value, first), builder.linear(gain, back))
        indices = iter(range(len(pairs)))
        groups = [[next(indices) for _ in group[::2]] for group in groups]
    return value, [group[0] for group in groups]
