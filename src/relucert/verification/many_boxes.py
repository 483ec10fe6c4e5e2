"""Many boxes at once: cheap bounds exclude most violations of a long list, in batches.

A violation is impossible where one of its constraints is nowhere met. A constraint on outputs whose coefficients are
float64 numbers is a row of a property of the network as it is, so regions and rows of many violations are one batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

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
MEMORY = 2**28  # bytes of the bounds of one batch


class _Row(NamedTuple):
    """What is positive where a constraint is not met: coefficients on the outputs, and a constant."""

    coefficients: list[float]
    constant: float


class _Candidate(NamedTuple):
    """A violation, by its number, and the rows of its simple constraints, one at least."""

    number: int
    rows: list[_Row]


def excluded(network: Network, violations: Sequence[Violation], ends: float, report: Report) -> dict[int, str]:
    """The violations that cheap bounds exclude, by number, each with the method that did, until time ends.

    Where few boxes are asked about, none are tried here.
    """
    closed: dict[int, str] = {}
    if len({(id(violation.low), id(violation.high)) for violation in violations}) < MANY:
        return closed
    candidates, boxes = list(_candidates(violations, network.classes)), outer_boxes(violations)
    try:
        with until(ends), torch.inference_mode():
            for name in CHEAP:
                candidates = [candidate for candidate in candidates if candidate.number not in closed]
                report(Progress(stage=name, part=counted(len(candidates), "violation")))
                for number in _excluded_by(name, network, candidates, boxes):
                    closed[number] = name
    except TimeUp:
        pass
    return closed


def _candidates(violations: Sequence[Violation], outputs: int) -> Iterator[_Candidate]:
    for number, violation in enumerate(violations):
        rows = [row for constraint in violation.constraints if (row := _row(constraint, outputs)) is not None]
        if rows:
            yield _Candidate(number, rows)


def _row(constraint: Constraint, outputs: int) -> _Row | None:
    """None where a constraint is about inputs, too, or has numbers that are none of float64."""
    scaled = {index: constraint.scale * number for index, number in constraint.outputs}
    constant = float_below(-constraint.scale * constraint.bound)
    if constraint.inputs or any(float(number) != number for number in scaled.values()) or math.isinf(constant):
        return None
    return _Row([float(scaled.get(index, 0)) for index in range(outputs)], constant)


def _excluded_by(name: str, network: Network, candidates: Sequence[_Candidate], boxes: Box) -> Iterator[int]:
    """The violations of which the method proves a row positive; boxes: those of all violations, one row each."""
    method, exact = find_method(name), network.cast(torch.float64)
    most = max((len(candidate.rows) for candidate in candidates), default=1)
    step = batch_size(network, most, MEMORY, name)
    for first in range(0, len(candidates), step):
        check_time()
        batch = candidates[first : first + step]
        numbers = [candidate.number for candidate in batch]
        region = Region.boxes(boxes.low[numbers], boxes.high[numbers])
        hidden = method.hidden(exact, region, RIGOROUS)
        margins = method.margins(exact, region, _property(batch, most), hidden, RIGOROUS)
        proven = (margins > 0).any(1).tolist()
        yield from (candidate.number for candidate, done in zip(batch, proven, strict=True) if done)


def _property(batch: Sequence[_Candidate], most: int) -> Property:
    """The rows of every candidate, each repeating its first one up to the most that one has."""
    padded = [[*one.rows, *[one.rows[0]] * (most - len(one.rows))] for one in batch]

    def stacked(part: int) -> Tensor:
        return torch.tensor([[row[part] for row in rows] for rows in padded], dtype=torch.float64)

    return Property(stacked(0), stacked(1))
