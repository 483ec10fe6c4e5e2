"""Warm starts: the variables of an ascent at one radius, in full size, whichever neurons are unstable at another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from relucert.methods.quadratic.ascent import VariableLayout
from relucert.methods.quadratic.dual import DualPoint, Weights
from relucert.methods.quadratic.linearised_network import LinearisedNetwork
from relucert.methods.quadratic.shared import SharedAscent

CAUTION = 3.0  # of logarithms of weights


@dataclass(frozen=True, eq=False)
class Memory:
    """The variables of one form, or of several that share their weights.

    Attributes:
        radius: Where they were found.
        points: By layer, shares and centres of errors per radius, (2, forms, size), NaN for stable neurons.
        inputs: Centres of y, (forms, inputs).
        weights: By layer, logarithms of the weights of deviations and of errors, (2, size), NaN for stable neurons.
        input_weights: Their logarithms, (inputs or 1,).
    """

    radius: float
    points: dict[int, Tensor]
    inputs: Tensor
    weights: dict[int, Tensor]
    input_weights: Tensor
    near: ClassVar[float] = 1.15  # largest ratio of two radii at which one ascent is a start of the other

    @classmethod
    def of(cls, layout: VariableLayout, line: Tensor, radius: float) -> Memory:
        """From a row of the table, (1, variables)."""
        return Memory(radius, *_in_full_size(layout.linearised, layout.point(line), layout.logarithms(line), radius))

    def suits(self, radius: float) -> bool:
        """Whether it is a better start at a radius than none: from far away it leads astray."""
        return 1 / self.near <= radius / self.radius <= self.near

    def over(self, before: Self | None) -> Self:
        """The same, with what an earlier memory knows of neurons that were stable here."""
        if before is None:
            return self
        points, weights = (
            {value: torch.where(table.isnan(), earlier[value], table) for value, table in tables.items()}
            for tables, earlier in ((self.points, before.points), (self.weights, before.weights))
        )
        return replace(self, points=points, weights=weights)

    def recall(self, layout: VariableLayout, line: Tensor, radius: float, own: bool = True) -> None:
        """Writes what is known into a row of the table, (1, variables), which holds a start of its own.

        own: Whether it is about the same form; else only the weights are of use.
        """
        self.recall_weights(layout.linearised, layout.logarithms(line), radius)
        if own:
            self.recall_points(layout.linearised, layout.point(line), radius)

    def recall_weights(self, linearised: LinearisedNetwork, logarithms: Weights, radius: float) -> None:
        """Writes known weights over logarithms, one row of each.

        Neurons that were stable keep their start, its weights moved as those of the others of their layer were, and
        away from where they would make the certificate infeasible: such neurons err by little.
        """
        growth = math.log(radius / self.radius)  # of deviations, by whose squares weights are multiplied
        logarithms.inputs.copy_(self.input_weights + growth)
        for value, unstable in linearised.neurons.items():
            deviations, errors = self.weights[value][:, unstable.index] - growth
            _shift(logarithms.deviations[value], deviations, -CAUTION)
            if unstable.following:
                _shift(logarithms.errors[value], errors, CAUTION)

    def recall_points(
        self, linearised: LinearisedNetwork, point: DualPoint, radius: float,
        rows: Tensor | slice = slice(None), positions: Tensor | slice = slice(None),
    ) -> None:  # fmt: skip
        """Writes some rows of what is known over a dual point, at these positions."""
        point.inputs[positions] = self.inputs[rows]
        for value, unstable in linearised.neurons.items():
            shares, errors = self.points[value][:, rows][..., unstable.index]
            _put(point.shares[value], shares, positions)
            if unstable.following:
                _put(point.errors[value], errors * radius, positions)


@dataclass(frozen=True, eq=False)
class SharedMemory(Memory):
    """The variables of an ascent with shared weights at one radius.

    Attributes:
        rows: By the key of a form, its row.
        factors: Logarithms of factors, (forms,).
    """

    rows: dict[int, int]
    factors: Tensor
    near: ClassVar[float] = 1.04

    @classmethod
    def of_shared(cls, ascent: SharedAscent, keys: Sequence[int], radius: float) -> SharedMemory:
        """keys: What names the forms at every radius."""
        numbers = _in_full_size(ascent.linearised, ascent.point, ascent.weights().map(torch.log), radius)
        rows = {key: row for row, key in enumerate(keys)}
        return cls(radius, *numbers, rows, ascent.table[:, -1].clone())

    def recall_shared(self, ascent: SharedAscent, keys: Sequence[int], radius: float) -> None:
        """Writes what is known into an ascent, which has a start of its own."""
        pairs = [(position, self.rows[key]) for position, key in enumerate(keys) if key in self.rows]
        if not pairs:
            return
        positions, rows = (torch.tensor(column) for column in zip(*pairs, strict=True))
        self.recall_points(ascent.linearised, ascent.point, radius, rows, positions)
        ascent.table[:, -1] = self.factors[rows].median()
        ascent.table[positions, -1] = self.factors[rows]
        logarithms = ascent.weights().map(torch.log)
        self.recall_weights(ascent.linearised, logarithms, radius)
        ascent.logarithms = ascent.layout.weight_columns(logarithms.map(torch.exp))


def _in_full_size(
    linearised: LinearisedNetwork, point: DualPoint, logarithms: Weights, radius: float
) -> tuple[dict[int, Tensor], Tensor, dict[int, Tensor], Tensor]:
    """The numbers of a memory in the order of its fields, from a dual point and one row of weights."""
    points, weights = {}, {}
    for value, unstable in linearised.neurons.items():
        size = linearised.network.sizes[value]
        points[value] = point.inputs.new_full((2, len(point.inputs), size), torch.nan)
        weights[value] = point.inputs.new_full((2, size), torch.nan)
        points[value][0][:, unstable.index] = point.shares[value]
        weights[value][0, unstable.index] = logarithms.deviations[value][0]
        if unstable.following:
            points[value][1][:, unstable.index] = point.errors[value] / radius
            weights[value][1, unstable.index] = logarithms.errors[value][0]
    return points, point.inputs.clone(), weights, logarithms.inputs[0].clone()


def _put(target: Tensor, known: Tensor, rows: Tensor | slice) -> None:
    """Writes what is known, (rows, count) with NaN elsewhere, into some rows of a table."""
    target[rows] = torch.where(known.isnan(), target[rows], known)


def _shift(target: Tensor, known: Tensor, caution: float) -> None:
    """Writes known logarithms, (count,) with NaN elsewhere; the others move as these did on the median, and by a
    caution."""
    missing = known.isnan()
    if bool(missing.all()):
        return
    moved = (known - target)[:, ~missing].median() + caution
    target.copy_(torch.where(missing, target + moved, known))
