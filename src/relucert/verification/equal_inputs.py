"""Inputs that every violation sets equal are one: a query about two networks is about one input to both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor

from relucert.common.deadline import check_time
from relucert.inputs.loading.runtime import Runtime
from relucert.network import INPUT, IndexMap, Network, Node
from relucert.verification.specification.query import Query
from relucert.verification.specification.violations import Terms, Violation


@dataclass(frozen=True, eq=False)
class MergedInputs:
    """A question about fewer inputs, the same in all else.

    Attributes:
        network, query, replay: The question.
        places: For every input of the original one that of the merged one that it equals.
    """

    network: Network
    query: Query
    replay: Runtime
    places: tuple[int, ...]

    def original(self, point: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """A point as the original network takes it."""
        return tuple(point[place] for place in self.places)


def merge_equal_inputs(network: Network, query: Query, replay: Runtime) -> MergedInputs:
    """The question with one input for all that are equal in every violation; the same question if there are none."""
    first = list(range(query.inputs))  # the first input that each one equals
    for later, earlier in sorted(_equal_pairs(query.possible)):
        first[later] = first[earlier]
    kept = sorted(set(first))
    numbers = {index: number for number, index in enumerate(kept)}
    places = tuple(numbers[index] for index in first)
    if len(kept) == query.inputs:
        return MergedInputs(network, query, replay, places)
    spread = IndexMap.of(torch.tensor(places).reshape(network.input_shape), (len(kept),))
    nodes = [Node(spread, (INPUT,))]
    nodes += [replace(node, inputs=tuple(source + 1 for source in node.inputs)) for node in network.nodes]
    merged = replace(network, input_shape=(len(kept),), nodes=tuple(nodes), input_range=None, picture_shape=None)
    boxes = {replace(violation, constraints=()) for violation in query.possible}  # equal ones become one
    merged_boxes = {box: _merged_box(box, places, len(kept)) for box in boxes}
    violations = (
        _merged(violation, merged_boxes[replace(violation, constraints=())], places) for violation in query.possible
    )
    left = tuple(violation for violation in violations if violation is not None)
    chosen = torch.tensor(places)

    def run(point: Tensor) -> Tensor:
        return replay.run(point[chosen])

    return MergedInputs(
        merged, Query(len(kept), query.outputs, left, None, query.remarks), replay._replace(run=run), places
    )


def _equal_pairs(violations: Sequence[Violation]) -> set[tuple[int, int]]:
    """Pairs of inputs, the later first, that every violation sets equal."""
    equal = ({pair for pair, difference in one.fixed_differences.items() if not difference} for one in violations)
    return set.intersection(*equal) if violations else set()


def _merged_box(box: Violation, places: Sequence[int], count: int) -> Violation | None:
    """The box of the merged inputs, as a violation without constraints; None where it is empty."""
    check_time()
    low, high = list[Fraction](), list[Fraction]()
    open_low, open_high = set[int](), set[int]()
    equal: list[list[int]] = [[] for _ in range(count)]
    for index, place in enumerate(places):
        equal[place].append(index)
    for place, members in enumerate(equal):
        low.append(max(box.low[index] for index in members))
        high.append(min(box.high[index] for index in members))
        if any(box.low[index] == low[-1] for index in box.open_low.intersection(members)):
            open_low.add(place)
        if any(box.high[index] == high[-1] for index in box.open_high.intersection(members)):
            open_high.add(place)
        if low[-1] > high[-1] or (low[-1] == high[-1] and (place in open_low or place in open_high)):
            return None
    return Violation(tuple(low), tuple(high), (), frozenset(open_low), frozenset(open_high))


def _merged(violation: Violation, box: Violation | None, places: Sequence[int]) -> Violation | None:
    """A violation about the merged inputs, in their box; None where no input meets it."""
    check_time()
    constraints = []
    for constraint in violation.constraints:
        merged = replace(constraint, inputs=_added(constraint.inputs, places))
        if merged.inputs or merged.outputs:
            constraints.append(merged)
        elif not merged.is_met_by(-merged.bound):
            return None
    return None if box is None else replace(box, constraints=tuple(constraints))


def _added(terms: Terms, places: Sequence[int]) -> Terms:
    """Coefficients by merged inputs, those that cancel left out."""
    totals: dict[int, int] = {}
    for index, number in terms:
        totals[places[index]] = totals.get(places[index], 0) + number
    return tuple((place, number) for place, number in sorted(totals.items()) if number)
