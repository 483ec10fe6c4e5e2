"""Nodes without undecided neurons: there the network is affine, and the nearest adversarial point solves a program.

The program's multipliers are those that prove how near it is: nothing else is taken from the solver. So that there
are such multipliers where there is no adversarial point at all, every inequality may be met with a little help from
one more coordinate: then there is always a point, if need be one very far away.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from relucert.attacks.nearest import program
from relucert.distortion.nodes import Bounded, Nodes, Region
from relucert.pieces import Pattern, piece_values, pull_back

HELP = 1e-5  # of the further coordinate, in units of an inequality's own length
LEAST = 1e-6  # share of the largest multiplier that the rival's own has at least


def nearest(region: Region, leaf: Bounded, seconds: float) -> tuple[Tensor, Nodes] | None:
    """The nearest point, (size,), of one leaf's region at which the rival has caught up, and the leaf with the
    multipliers that belong to it; None where the solver finds none."""
    network, centre = region.exact, region.centre
    pattern: Pattern = {value: bounds.lower >= 0 for value, bounds in leaf.bounds.items()}
    at_centre = piece_values(network, pattern, centre[None])
    low, high = region.box or (-torch.inf, torch.inf)
    nearest = program(
        region.norm,
        np.append((low - centre).clamp(max=0).numpy(), 0.0),
        np.append((high - centre).clamp(min=0).numpy(), np.inf),
    )

    def require(value: int, forms: Tensor) -> None:
        """That forms (forms, size) on a value are not negative."""
        rows = pull_back(network, pattern, value, forms[None])[0]
        helped = torch.cat([rows, HELP * rows.norm(dim=1, keepdim=True)], 1)
        nearest.add(helped.numpy(), -(forms @ at_centre[value][0]).numpy())

    require(network.output, -region.margins[leaf.nodes.rows])
    sides: list[tuple[int, Tensor, Tensor]] = []
    for value, known in region.by_value(leaf.nodes.signs).items():
        neurons = known[0].nonzero().flatten()
        if not len(neurons):
            continue
        signs = known[0, neurons].double()
        require(value, torch.diag(known[0].double())[neurons])
        sides.append((value, neurons, signs))
    found = nearest.solve(seconds)
    if found is None or not all(np.isfinite(part).all() for part in found):
        return None
    own = max(found.resistance[0], LEAST * found.resistance.max(), np.finfo(float).tiny)
    shares = iter(torch.from_numpy(found.resistance[1:] / own).split([len(neurons) for _, neurons, _ in sides]))
    multipliers = torch.zeros_like(leaf.nodes.multipliers)
    tables = region.by_relu(multipliers)
    for value, neurons, signs in sides:
        made = next(made for made, source in region.relus.items() if source == value)
        tables[made][0, neurons] = (next(shares) * signs).float()
    return centre + torch.from_numpy(found.offset[:-1]), replace(leaf.nodes, multipliers=multipliers)
