"""Warm starts: the variables of an ascent at one radius, in full size, whichever neurons are unstable at another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relucert.methods.quadratic.ascent import VariableLayout
from relucert.methods.quadratic.shared import SharedAscent, row_of_logarithms

NEAR = 1.15  # largest ratio of two radii at which one ascent is a start of the other
SHARED_NEAR = 1.04  # the same, with weights that many forms share
CAUTION = 3.0  # of logarithms of weights


@dataclass(frozen=True, eq=False)
class Memory:
    """The variables of one row.

    Attributes:
        radius: Where they were found.
        neurons: By layer, shares, centres of errors per radius, and logarithms of the weights of deviations and of
            errors: (4, size), NaN for stable neurons.
        inputs: Centres of y, (inputs,).
        input_weights: Their logarithms, (inputs or 1,).
    """

    radius: float
    neurons: dict[int, Tensor]
    inputs: Tensor
    input_weights: Tensor

    @classmethod
    def of(cls, layout: VariableLayout, line: Tensor, radius: float) -> Memory:
        """From a row of the table, (1, variables)."""
        point, weights, neurons = layout.point(line), layout.logarithms(line), {}
        for value, unstable in layout.linearised.neurons.items():
            table = line.new_full((4, layout.linearised.network.sizes[value]), torch.nan)
            table[0, unstable.index], table[2, unstable.index] = point.shares[value][0], weights.deviations[value][0]
            if unstable.following:
                table[1, unstable.index] = point.errors[value][0] / radius
                table[3, unstable.index] = weights.errors[value][0]
            neurons[value] = table
        return cls(radius, neurons, point.inputs[0].clone(), weights.inputs[0].clone())

    def suits(self, radius: float) -> bool:
        """Whether it is a better start at a radius than none: from far away it leads astray."""
        return 1 / NEAR <= radius / self.radius <= NEAR

    def over(self, before: Memory | None) -> Memory:
        """The same, with what an earlier memory knows of neurons that were stable here."""
        if before is None:
            return self
        neurons = {
            value: torch.where(table.isnan(), before.neurons[value], table) for value, table in self.neurons.items()
        }
        return replace(self, neurons=neurons)

    def recall(self, layout: VariableLayout, line: Tensor, radius: float, own: bool = True) -> None:
        """Writes what is known into a row of the table, (1, variables), which holds a start of its own.

        Neurons that were stable keep their start, its weights moved as those of the others of their layer were, and
        away from where they would make the certificate infeasible: such neurons err by little.

        own: Whether it is about the same form; else only the weights are of use.
        """
        point, weights = layout.point(line), layout.logarithms(line)
        growth = math.log(radius / self.radius)  # of deviations, by whose squares weights are multiplied
        weights.inputs.copy_(self.input_weights + growth)
        if own:
            point.inputs.copy_(self.inputs)
        for value, unstable in layout.linearised.neurons.items():
            shares, errors, log_deviations, log_errors = self.neurons[value][:, unstable.index]
            if own:
                put(point.shares[value], shares)
            shift(weights.deviations[value], log_deviations - growth, -CAUTION)
            if unstable.following:
                if own:
                    put(point.errors[value], errors * radius)
                shift(weights.errors[value], log_errors - growth, CAUTION)


def put(target: Tensor, known: Tensor, rows: Tensor | slice = slice(None)) -> None:
    """Writes what is known, (rows, count) with NaN elsewhere, into some rows of a table."""
    target[rows] = torch.where(known.isnan(), target[rows], known)


def shift(target: Tensor, known: Tensor, caution: float) -> None:
    """Writes known logarithms, (count,) with NaN elsewhere; the others move as these did on the median, and by a
    caution."""
    missing = known.isnan()
    if bool(missing.all()):
        return
    moved = (known - target)[:, ~missing].median() + caution
    target.copy_(torch.where(missing, target + moved, known))


@dataclass(frozen=True, eq=False)
class SharedMemory:
    """The variables of an ascent with shared weights at one radius.

    Attributes:
        radius: Where it was found.
        rows: By the key of a form, its row.
        neurons: By layer, shares and centres of errors per radius, (2, forms, size), NaN for stable neurons.
        inputs: Centres of y, (forms, inputs).
        factors: Logarithms of factors, (forms,).
        weights: By layer, logarithms of the weights of deviations and of errors, (2, size), NaN for stable neurons.
        input_weights: Their logarithms, (inputs or 1,).
    """

    radius: float
    rows: dict[int, int]
    neurons: dict[int, Tensor]
    inputs: Tensor
    factors: Tensor
    weights: dict[int, Tensor]
    input_weights: Tensor

    @classmethod
    def of(cls, ascent: SharedAscent, keys: Sequence[int], radius: float) -> SharedMemory:
        """keys: What names the forms at every radius."""
        linearised, point, logarithms = (
            ascent.linearised,
            ascent.layout.point(ascent.table),
            ascent.weights().map(torch.log),
        )
        neurons, weights = {}, {}
        for value, unstable in linearised.neurons.items():
            size = linearised.network.sizes[value]
            neurons[value] = ascent.table.new_full((2, len(keys), size), torch.nan)
            weights[value] = ascent.table.new_full((2, size), torch.nan)
            neurons[value][0][:, unstable.index], weights[value][0, unstable.index] = (
                point.shares[value], logarithms.deviations[value][0],
            )  # fmt: skip
            if unstable.following:
                neurons[value][1][:, unstable.index] = point.errors[value] / radius
                weights[value][1, unstable.index] = logarithms.errors[value][0]
        rows = {key: row for row, key in enumerate(keys)}
        factors, inputs = ascent.table[:, -1].clone(), point.inputs.clone()
        return cls(radius, rows, neurons, inputs, factors, weights, logarithms.inputs[0])

    def suits(self, radius: float) -> bool:
        """Whether it is a better start at a radius than none: from far away it leads astray."""
        return 1 / SHARED_NEAR <= radius / self.radius <= SHARED_NEAR

    def recall(self, ascent: SharedAscent, keys: Sequence[int], radius: float) -> None:
        """Writes what is known into an ascent, which has a start of its own."""
        pairs = [(position, self.rows[key]) for position, key in enumerate(keys) if key in self.rows]
        if not pairs:
            return
        positions, rows = (torch.tensor(column) for column in zip(*pairs, strict=True))
        growth = math.log(radius / self.radius)  # of deviations, by whose squares weights are multiplied
        point, logarithms = ascent.layout.point(ascent.table), ascent.weights().map(torch.log)
        point.inputs[positions] = self.inputs[rows]
        ascent.table[:, -1] = self.factors[rows].median()
        ascent.table[positions, -1] = self.factors[rows]
        logarithms.inputs.copy_(self.input_weights + growth)
        for value, unstable in ascent.linearised.neurons.items():
            shares, errors = self.neurons[value][:, rows][..., unstable.index]
            put(point.shares[value], shares, positions)
            shift(logarithms.deviations[value], self.weights[value][0, unstable.index] - growth, -CAUTION)
            if unstable.following:
                put(point.errors[value], errors * radius, positions)
                shift(logarithms.errors[value], self.weights[value][1, unstable.index] - growth, CAUTION)
        ascent.logarithms = row_of_logarithms(logarithms.map(torch.exp), ascent.layout)
