"""Many boxes at once: cheap bounds exclude most violations of a long list, in batches.

A violation is impossible where one of its constraints is nowhere met. A constraint on outputs whose coefficients are
float64 numbers is a row of a property of the network as it is, so regions and rows of many violations are one batch.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import torch

from relucert.arithmetic.box import Box
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.common.deadline import TimeUp, check_time, until
from relucert.common.numbers import float_below
from relucert.common.progress import Progress, Report
from relucert.common.words import counted
from relucert.methods.table import find_method
from relucert.network import Network
from relucert.network.batching import batch_size
from relucert.verification.problem import outer_boxes
from relucert.verification.search import CHEAP
from relucert.verification.specification.violations import Constraint, Violation

MANY = 8  # boxes from which on batches pay
MOVING_SHARE = 0.25  # of the inputs, at most, for few boxes to be cut as the part of the network that moves
MEMORY = 2**28  # bytes of the bounds of one batch


class ListedViolations(NamedTuple):
    """Violations that simple constraints may exclude: each is impossible where one of its rows is positive.

    Attributes:
        numbers: Which of the given violations they are.
        boxes: Their boxes, rounded outwards, (count, inputs) for each end.
        prop: One batch member per violation; those with fewer rows than others repeat their first.
    """

    numbers: list[int]
    boxes: Box
    prop: Property

    def __len__(self) -> int:
        return len(self.numbers)

    def pick(self, places: Sequence[int]) -> ListedViolations:
        """Those at some places of the list."""
        indices = torch.tensor(places, dtype=torch.long)
        boxes = Box(self.boxes.low[indices], self.boxes.high[indices])
        return ListedViolations([self.numbers[place] for place in places], boxes, self.prop.select(indices))


def listed(violations: Sequence[Violation], outputs: int) -> ListedViolations | None:
    """Those of some violations that have simple constraints; None where there are none, or few boxes in all."""
    return _simple(violations, outputs) if _boxes(violations) >= MANY else None


def mostly_fixed(violations: Sequence[Violation], outputs: int) -> ListedViolations | None:
    """Those of few boxes that have simple constraints and fix most inputs; None where there are none, or many boxes."""
    simple = _simple(violations, outputs) if _boxes(violations) < MANY else None
    if simple is None:
        return None
    moving = simple.boxes.moving
    places = (moving.sum(1) <= MOVING_SHARE * moving.shape[1]).nonzero().flatten().tolist()
    return simple.pick(places) if places else None


def _boxes(violations: Sequence[Violation]) -> int:
    return len({(id(violation.low), id(violation.high)) for violation in violations})


def _simple(violations: Sequence[Violation], outputs: int) -> ListedViolations | None:
    """Those that have simple constraints; None where there are none."""
    rows: dict[int, list[list[float]]] = {}
    for number, violation in enumerate(violations):
        simple = [row for constraint in violation.constraints if (row := _row(constraint, outputs)) is not None]
        if simple:
            rows[number] = simple
    if not rows:
        return None
    return ListedViolations(list(rows), outer_boxes([violations[number] for number in rows]), _property(rows.values()))


def _row(constraint: Constraint, outputs: int) -> list[float] | None:
    """What is positive where a constraint is not met: coefficients on the outputs, and a constant; None where it is
    about inputs, too, or has numbers that are none of float64."""
    scale = constraint.scale
    scaled = {index: scale * number for index, number in constraint.outputs}
    constant = float_below(-scale * constraint.bound)
    if constraint.inputs or any(float(number) != number for number in scaled.values()) or math.isinf(constant):
        return None
    return [*(float(scaled.get(index, 0)) for index in range(outputs)), constant]


def _property(groups: Collection[list[list[float]]]) -> Property:
    """The rows of every violation, each repeating its first one up to the most that one has."""
    most = max(map(len, groups))
    padded = [[*rows, *[rows[0]] * (most - len(rows))] for rows in groups]
    table = torch.tensor(padded, dtype=torch.float64)
    return Property(table[..., :-1].contiguous(), table[..., -1].contiguous())


def excluded(network: Network, violations: ListedViolations, ends: float, report: Report) -> dict[int, str]:
    """The violations that cheap bounds exclude, by number, each with the method that did, until time ends."""
    closed: dict[int, str] = {}
    with suppress(TimeUp), until(ends), torch.inference_mode():
        for name in CHEAP:
            open_places = [place for place, number in enumerate(violations.numbers) if number not in closed]
            violations = violations.pick(open_places)
            report(Progress(stage=name, part=counted(len(violations), "violation")))
            for number in _excluded_by(name, network, violations):
                closed[number] = name
    return closed


def _excluded_by(name: str, network: Network, violations: ListedViolations) -> Iterator[int]:
    """The violations of which the method proves a row positive."""
    method, exact = find_method(name), network.cast(torch.float64)
    step = batch_size(network, violations.prop.rows.shape[1], MEMORY, name)
    for first in range(0, len(violations), step):
        check_time()
        batch = violations.pick(range(first, min(first + step, len(violations))))
        region = Region.boxes(*batch.boxes)
        hidden = method.hidden(exact, region, RIGOROUS)
        proven = (method.margins(exact, region, batch.prop, hidden, RIGOROUS) > 0).any(1).tolist()
        yield from (number for number, done in zip(batch.numbers, proven, strict=True) if done)
