"""Nodes without undecided neurons: there the network is affine, and the nearest adversarial point solves a program.

The program's multipliers are those that prove how near it is: nothing else is taken from the solver. Where there is no
adversarial point at all, every inequality may be met with some help from one more coordinate: then there is a point,
far away, and there are multipliers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from relucert.attacks.nearest import Array, Nearest, program
from relucert.branch_and_bound.nodes import Bounded, Nodes, Region
from relucert.linear_regions import Pattern, piece_values, pull_back

HELPS = (0.0, 1e-2)  # of the further coordinate, in units of an inequality's own length
LEAST = 1e-6  # share of the largest multiplier that the rival's own has at least


class _Sides(NamedTuple):
    """Signs of neurons of a value, (neurons,), as inequalities `rows @ offset >= least`."""

    value: int
    neurons: Tensor
    signs: Tensor
    rows: Tensor
    least: Tensor


def nearest(region: Region, leaf: Bounded, seconds: float) -> Iterator[tuple[Tensor, Nodes]]:
    """The nearest point, (size,), of one leaf's region at which the rival has caught up, and the leaf with the
    multipliers that belong to it; then the same with help, for where there is none. Nothing where no solver ends well.
    """
    pattern: Pattern = {value: bounds.lower >= 0 for value, bounds in leaf.bounds.items()}
    lead = _require(region, pattern, region.exact.output, torch.zeros(1), -region.margins[leaf.nodes.rows])
    sides = []
    for value, known in region.by_value(leaf.nodes.signs).items():
        neurons = known[0].nonzero().flatten()
        sides.append(_require(region, pattern, value, neurons, torch.diag(known[0].double())[neurons]))
    for helped in HELPS:
        found = _solve(region, [lead, *sides], helped, seconds)
        if found is not None:
            yield region.centre + torch.from_numpy(found.offset[:-1]), _with_multipliers(region, leaf, sides, found)


def _require(region: Region, pattern: Pattern, value: int, neurons: Tensor, forms: Tensor) -> _Sides:
    """That forms (forms, size) on a value are not negative."""
    at_centre = piece_values(region.exact, pattern, region.centre[None])[value][0]
    rows, least = pull_back(region.exact, pattern, value, forms[None])[0], -(forms @ at_centre)
    always = ~rows.any(1) & (least <= 0)  # an inequality that nothing can change only puts a solver off its stride
    return _Sides(value, neurons, forms.sum(1), rows, torch.where(always, least - 1, least))


def _solve(region: Region, parts: list[_Sides], helped: float, seconds: float) -> Nearest | None:
    low, high = region.box or (-torch.inf, torch.inf)
    ends: list[Array] = [(low - region.centre).clamp(max=0).numpy(), (high - region.centre).clamp(min=0).numpy()]
    model = program(region.norm, np.append(ends[0], 0.0), np.append(ends[1], np.inf if helped else 0.0))
    for part in parts:
        if len(part.rows):
            helping = helped * part.rows.norm(dim=1, keepdim=True)
            model.add(torch.cat([part.rows, helping], 1).numpy(), part.least.numpy())
    found = model.solve(seconds)
    return found if found is not None and all(np.isfinite(part).all() for part in found) else None


def _with_multipliers(region: Region, leaf: Bounded, sides: list[_Sides], found: Nearest) -> Nodes:
    """The leaf with the sides' multipliers in units of the rival's own."""
    own = max(found.resistance[0], LEAST * found.resistance.max(), np.finfo(float).tiny)
    shares = torch.from_numpy(found.resistance[1:] / own).split([len(part.neurons) for part in sides])
    multipliers = torch.zeros_like(leaf.nodes.multipliers)
    tables = region.by_relu(multipliers)
    for part, share in zip(sides, shares, strict=True):
        made = next(made for made, source in region.relus.items() if source == part.value)
        tables[made][0, part.neurons] = (share * part.signs).float()
    return replace(leaf.nodes, multipliers=multipliers)
