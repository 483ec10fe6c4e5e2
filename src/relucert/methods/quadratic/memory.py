"""What an ascent found at one radius, as the start of another: in full size, whichever neurons are unstable."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relucert.methods.quadratic.ascent import Layout

NEAR = 1.15  # times the radius
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
    def of(cls, layout: Layout, line: Tensor, radius: float) -> Memory:
        """From a row of the table, (1, variables)."""
        point, weights, neurons = layout.point(line), layout.logarithms(line), {}
        for value, its in layout.linearised.neurons.items():
            kept = line.new_full((4, layout.linearised.network.sizes[value]), torch.nan)
            kept[0, its.index], kept[2, its.index] = point.shares[value][0], weights.deviations[value][0]
            if its.following:
                kept[1, its.index], kept[3, its.index] = point.errors[value][0] / radius, weights.errors[value][0]
            neurons[value] = kept
        return cls(radius, neurons, point.inputs[0].clone(), weights.inputs[0].clone())

    def suits(self, radius: float) -> bool:
        """Whether it is a better start at a radius than none: from far away it leads astray."""
        return 1 / NEAR <= radius / self.radius <= NEAR

    def over(self, before: Memory | None) -> Memory:
        """The same, with what an earlier memory knows of neurons that were stable here."""
        if before is None:
            return self
        neurons = {
            value: torch.where(kept.isnan(), before.neurons[value], kept) for value, kept in self.neurons.items()
        }
        return replace(self, neurons=neurons)

    def recall(self, layout: Layout, line: Tensor, radius: float, own: bool = True) -> None:
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
        for value, its in layout.linearised.neurons.items():
            shares, errors, log_deviations, log_errors = self.neurons[value][:, its.index]
            if own:
                put(point.shares[value], shares)
            shift(weights.deviations[value], log_deviations - growth, -CAUTION)
            if its.following:
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
