"""Why no fast certificate can always be close: set cover, written as a question about a ReLU network.

The construction of the paper's appendix A, with all scores divided by its delta so that every weight is whole. It has
an input a set, zero at the centre, and prefers class 1 where the sets whose inputs are near one cover the universe.
How far the centre has to move is then how many sets a cover needs.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations, zip_longest

import torch
from torch import Tensor

from relucert.errors import InputError
from relucert.network import Add, Linear, Network, Node, Operation, Relu
from relucert.norm import Norm

INPUTS = ("real", "boolean")
HALF = 0.5  # the label's score: halfway between what the rival scores at a cover, 1, and at best elsewhere, 0


@dataclass(frozen=True, eq=False)
class Reduction:
    """A network, and the question about it whose answer is the size of a minimum cover.

    centre: (1, sets), all zero. The network takes it for `label`, and covers for `target`.
    depth: how far the input of a set has to move to make up for the label's score; sets with inputs above `threshold`
    count as chosen. The points nearest to the centre at which `target` catches up are, for p < inf, those that
    `point` makes of minimum covers: for p = 1 their distance is `depth` times the size of the cover. With boolean
    inputs this holds among the points of zeros and ones.
    """

    network: Network
    centre: Tensor
    label: int
    target: int
    depth: float
    threshold: float

    def point(self, cover: Collection[int]) -> Tensor:
        """The point nearest to the centre at which the sets at these positions are chosen: (1, sets)."""
        places = range(self.centre.shape[1])
        try:
            chosen = set(cover)
        except TypeError:
            chosen = {-1}
        if not chosen <= set(places):
            raise InputError(f"a cover has positions of sets, 0 to {len(places) - 1}, not {cover!r}")
        return self.centre + self.depth * torch.tensor([[float(place in chosen) for place in places]]).double()

    def distance(self, cover: Collection[int], norm: str | float | Norm = "1") -> float:
        """How far from the centre that point is: for a minimum cover, the minimum distortion."""
        return float(Norm.parse(norm).distance(self.point(cover), self.centre))

    def cover(self, point: object) -> list[int]:
        """Positions of the sets that are chosen at a point: a cover, if the network takes the point for `target`."""
        if not isinstance(point, Tensor) or point.numel() != self.centre.numel():
            raise InputError(f"a point is a tensor of {self.centre.numel()} numbers, one a set")
        return [place for place, number in enumerate(point.flatten().tolist()) if number > self.threshold]


def from_set_cover(
    universe: Iterable[Hashable], sets: Sequence[Iterable[Hashable]], *, inputs: str = "real"
) -> Reduction:
    """The network on which the minimum p = 1 distortion tells the size of the smallest cover of the universe.

    inputs: "real" (the paper's main result) or "boolean" (its warm-up, about inputs of zeros and ones alone).
    """
    if inputs not in list(INPUTS):
        raise InputError(f"unknown inputs {inputs!r}; known are {', '.join(INPUTS)}")
    elements, families = _read(universe, sets)
    holders = [[place for place, family in enumerate(families) if element in family] for element in elements]
    drawing, count = _Drawing(len(families)), len(families)
    if inputs == "boolean":
        depth, threshold = 1.0, HALF
        _boolean(drawing, holders)
    else:
        steepness = max(2, count)  # one over the paper's delta
        depth, threshold = 1 - HALF / steepness, 1 - 1 / steepness
        _real(drawing, holders, steepness)
    network = Network((count,), tuple(drawing.nodes), f"set-cover-{inputs}")
    return Reduction(network, torch.zeros(1, count, dtype=torch.float64), 0, 1, depth, threshold)


def greedy_cover(universe: Iterable[Hashable], sets: Sequence[Iterable[Hashable]]) -> list[int]:
    """Positions of sets that cover the universe: always the one next that covers most of what is left.

    They are at most ln(n) + 1 times as many as needed, for n elements.
    """
    elements, families = _read(universe, sets)
    left, chosen = set(elements), []
    while left:
        gains = [len(family & left) for family in families]
        chosen.append(gains.index(max(gains)))
        left -= families[chosen[-1]]
    return chosen


def minimum_cover(universe: Iterable[Hashable], sets: Sequence[Iterable[Hashable]]) -> list[int]:
    """Positions of the fewest sets that cover the universe, found by trying all: for small instances."""
    elements, families = _read(universe, sets)
    tries = (chosen for size in range(len(families)) for chosen in combinations(range(len(families)), size + 1))
    covers = (chosen for chosen in tries if len(frozenset().union(*(families[at] for at in chosen))) == len(elements))
    return list(next(covers))


def _read(
    universe: Iterable[Hashable], sets: Sequence[Iterable[Hashable]]
) -> tuple[list[Hashable], list[frozenset[Hashable]]]:
    """The elements in their order, and the sets; refuses what is no instance of set cover."""
    if isinstance(sets, (Set, Mapping)):
        raise InputError("the sets are known by their positions: give them as a list")
    try:
        elements, families = list(dict.fromkeys(universe)), [frozenset(family) for family in sets]
    except TypeError as error:
        raise InputError(f"expected a collection of elements and a list of sets of them: {error}") from None
    if not elements:
        raise InputError("the universe is empty: there is nothing to cover")
    for place, family in enumerate(families):
        if strangers := family.difference(elements):
            raise InputError(f"set {place} has {min(map(repr, strangers))}, which is not in the universe")
    for element in elements:
        if not any(element in family for family in families):
            raise InputError(f"the sets do not cover the universe: none has {element!r}")
    return elements, families


class _Drawing:
    """A network as it grows: nodes, and how wide each value is."""

    def __init__(self, inputs: int) -> None:
        self.nodes: list[Node] = []
        self.widths = [inputs]

    def put(self, operation: Operation, *sources: int) -> int:
        """The value that the operation makes of others."""
        (width,) = operation.shape(*((self.widths[source],) for source in sources))
        self.nodes.append(Node(operation, sources))
        self.widths.append(width)
        return len(self.nodes)

    def linear(self, source: int, weight: Tensor, bias: Tensor | None = None) -> int:
        return self.put(Linear(weight, weight.new_zeros(len(weight)) if bias is None else bias), source)

    def score(self, value: int, place: int) -> None:
        """The end: the label's score is constant, the rival's is a coordinate."""
        weight = torch.zeros(2, self.widths[value], dtype=torch.float64)
        weight[1, place] = 1
        self.linear(value, weight, torch.tensor([HALF, 0], dtype=torch.float64))


def _boolean(drawing: _Drawing, holders: list[list[int]]) -> None:
    """One for every element that no chosen set has, and one less their number where that is positive."""
    weight = torch.zeros(len(holders), drawing.widths[0], dtype=torch.float64)
    for element, places in enumerate(holders):
        weight[element, places] = -1
    missed = drawing.put(Relu(), drawing.linear(0, weight, weight.new_ones(len(weight))))
    covered = drawing.linear(missed, -weight.new_ones(1, len(weight)), weight.new_ones(1))
    drawing.score(drawing.put(Relu(), covered), 0)


def _real(drawing: _Drawing, holders: list[list[int]], steepness: int) -> None:
    """A step for every set, from -1 at 0 over a flat part at 0 to 1 at 1; an element's best set; the worst element."""
    unit = torch.eye(drawing.widths[0], dtype=torch.float64)
    ones = unit.new_ones(len(unit))
    weight, bias = torch.cat([-steepness * unit, steepness * unit]), torch.cat([ones, (1 - steepness) * ones])
    ramps = drawing.put(Relu(), drawing.linear(0, weight, bias))
    steps = drawing.linear(ramps, torch.cat([-unit, unit], 1))
    best, places = _extremes(drawing, steps, holders, 1)
    worst, (place,) = _extremes(drawing, best, [places], -1)
    drawing.score(worst, place)


def _extremes(drawing: _Drawing, value: int, groups: list[list[int]], sign: int) -> tuple[int, list[int]]:
    """The largest (sign 1) or the least (sign -1) coordinate of each group: a value, and where they stand in it.

    Two at a time: max(a, b) = a + relu(b - a) and min(a, b) = a - relu(a - b).
    """
    while any(len(group) > 1 for group in groups):
        unit = torch.eye(drawing.widths[value], dtype=torch.float64)
        duels = [duel for group in groups for duel in zip_longest(group[::2], group[1::2])]
        contested = [place for place, (_, second) in enumerate(duels) if second is not None]
        first = unit[[first for first, _ in duels]]
        second = unit[[second for _, second in duels if second is not None]]
        gain = drawing.put(Relu(), drawing.linear(value, sign * (second - first[contested])))
        back = sign * torch.eye(len(duels), dtype=torch.float64)[:, contested]
        value = drawing.put(Add(), drawing.linear(value, first), drawing.linear(gain, back))
        places = iter(range(len(duels)))
        groups = [[next(places) for _ in group[::2]] for group in groups]
    return value, [group[0] for group in groups]
