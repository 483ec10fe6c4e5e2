"""What an ascent with shared weights found at one radius, as the start of another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.methods.quadratic.memory import CAUTION, put, shift
from relucert.methods.quadratic.shared import SharedAscent, row_of_logarithms

NEAR = 1.04  # times the radius


@dataclass(frozen=True, eq=False)
class SharedMemory:
    """What an ascent found at one radius, as the start of another: in full size, whichever neurons are unstable.

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
        for value, its in linearised.neurons.items():
            size = linearised.network.sizes[value]
            neurons[value] = ascent.table.new_full((2, len(keys), size), torch.nan)
            weights[value] = ascent.table.new_full((2, size), torch.nan)
            neurons[value][0][:, its.index], weights[value][0, its.index] = (
                point.shares[value], logarithms.deviations[value][0],
            )  # fmt: skip
            if its.following:
                neurons[value][1][:, its.index] = point.errors[value] / radius
                weights[value][1, its.index] = logarithms.errors[value][0]
        rows = {key: row for row, key in enumerate(keys)}
        factors, inputs = ascent.table[:, -1].clone(), point.inputs.clone()
        return cls(radius, rows, neurons, inputs, factors, weights, logarithms.inputs[0])

    def suits(self, radius: float) -> bool:
        """Whether it is a better start at a radius than none: from far away it leads astray."""
        return 1 / NEAR <= radius / self.radius <= NEAR

    def recall(self, ascent: SharedAscent, keys: Sequence[int], radius: float) -> None:
        """Writes what is known into an ascent, which has a start of its own."""
        found = [(place, self.rows[key]) for place, key in enumerate(keys) if key in self.rows]
        if not found:
            return
        places, rows = (torch.tensor(column) for column in zip(*found, strict=True))
        growth = math.log(radius / self.radius)  # of deviations, by whose squares weights are multiplied
        point, logarithms = ascent.layout.point(ascent.table), ascent.weights().map(torch.log)
        point.inputs[places] = self.inputs[rows]
        ascent.table[:, -1] = self.factors[rows].median()
        ascent.table[places, -1] = self.factors[rows]
        logarithms.inputs.copy_(self.input_weights + growth)
        for value, its in ascent.linearised.neurons.items():
            shares, errors = self.neurons[value][:, rows][..., its.index]
            put(point.shares[value], shares, places)
            shift(logarithms.deviations[value], self.weights[value][0, its.index] - growth, -CAUTION)
            if its.following:
                put(point.errors[value], errors * radius, places)
                shift(logarithms.errors[value], self.weights[value][1, its.index] - growth, CAUTION)
        ascent.logarithms = row_of_logarithms(logarithms.map(torch.exp), ascent.layout)
