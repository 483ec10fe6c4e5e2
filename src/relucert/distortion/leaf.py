"""Nodes without undecided neurons: there the network is affine, and the nearest adversarial point solves a program.

The program's multipliers are those that prove how near it is: nothing else is taken from the solver.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from relucert.attacks.nearest import program
from relucert.distortion.nodes import Bounded, Nodes, Region
from relucert.pieces import Pattern, piece_values, pull_back


def nearest(region: Region, leaf: Bounded, seconds: float) -> tuple[Tensor, Nodes] | None:
    """The nearest point, (size,), of one leaf's region at which the rival has caught up, and the leaf with the
    multipliers that belong to it; None where the solver finds none."""
    network, centre = region.exact, region.centre
    pattern: Pattern = {value: bounds.lower >= 0 for value, bounds in leaf.bounds.items()}
    at_centre = piece_values(network, pattern, centre[None])
    low, high = region.box or (-torch.inf, torch.inf)
    nearest = program(region.norm, (low - centre).clamp(max=0).numpy(), (high - centre).clamp(min=0).numpy())
    lead = -region.margins[leaf.nodes.rows][:, None]
    nearest.add(pull_back(network, pattern, network.output, lead)[0].numpy(), -(lead[0] @ at_centre[-1][0]).numpy())
    sides: list[tuple[int, Tensor, Tensor]] = []
    for value, known in region.by_value(leaf.nodes.signs).items():
        neurons = known[0].nonzero().flatten()
        if not len(neurons):
            continue
        signs = known[0, neurons].double()
        forms = torch.zeros(1, len(neurons), network.sizes[value], dtype=torch.float64)
        forms[0, torch.arange(len(neurons)), neurons] = signs
        nearest.add(
            pull_back(network, pattern, value, forms)[0].numpy(), -(signs * at_centre[value][0, neurons]).numpy()
        )
        sides.append((value, neurons, signs))
    found = nearest.solve(seconds)
    if found is None or not all(np.isfinite(part).all() for part in found) or found.resistance[0] <= 0:
        return None
    shares = iter(torch.from_numpy(found.resistance[1:] / found.resistance[0]).split([len(own) for _, own, _ in sides]))
    multipliers = torch.zeros_like(leaf.nodes.multipliers)
    tables = region.by_relu(multipliers)
    for value, neurons, signs in sides:
        made = next(made for made, source in region.relus.items() if source == value)
        tables[made][0, neurons] = (next(shares) * signs).float()
    return centre + torch.from_numpy(found.offset), replace(leaf.nodes, multipliers=multipliers)
