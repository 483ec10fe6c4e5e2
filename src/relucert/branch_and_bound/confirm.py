"""Proofs of what an ascent found: one back-substitution in float64 that bounds its rounding.

Any slopes and multipliers give a bound, so nothing is taken from the ascent on trust.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.bounding.backward import DualVariables, bound_forms
from relucert.bounding.record import rounded_duals
from relucert.branch_and_bound.dual_ascent import Nodes
from relucert.branch_and_bound.stages import Stages


@dataclass(frozen=True, eq=False)
class OutputRows:
    """Linear forms on one value of the cut network, (count, size) in float64, and constants, (count,)."""

    value: int
    forms: Tensor
    offsets: Tensor


def proven_bounds(stages: Stages, rows: OutputRows, nodes: Nodes, ends: float = math.inf) -> Tensor:
    """Lower bounds of the nodes' rows, rounding included, (count,): they hold where the nodes' signs do.

    ends: By the monotonic clock, when no further node is bounded; the bounds of all others are -inf.
    """
    least = torch.full((len(nodes.rows),), -torch.inf, dtype=torch.float64)
    for first in range(0, len(nodes.rows), stages.batch_size):
        some = slice(first, first + stages.batch_size)
        started = time.monotonic()
        if started > ends:
            break
        batch = nodes.pick(some)
        least[some] = _proven(stages, rows, batch)
        stages.pace = (time.monotonic() - started) / len(batch.rows)
    return least


def neuron_bounds(
    stages: Stages, value: int, neurons: Tensor, signs: Tensor, nodes: Nodes, ends: float = math.inf
) -> Tensor:
    """Lower bounds of neurons of a pre-activation that is no stage yet, (count,), times signs, rounding included.

    Each is the least over the nodes of this neuron and sign, or -inf where there are none; ends: of `proven_bounds`.
    """
    count = len(neurons)
    forms = torch.nn.functional.one_hot(neurons, stages.exact.sizes[value]).double() * signs.double()[:, None]
    least = proven_bounds(stages, OutputRows(value, forms, torch.zeros(count, dtype=torch.float64)), nodes, ends)
    bounds = torch.full((count,), torch.inf, dtype=torch.float64)
    bounds = bounds.scatter_reduce(0, nodes.rows, least.nan_to_num(-torch.inf), "amin")
    return torch.where(torch.bincount(nodes.rows, minlength=count) > 0, bounds, -torch.inf)


def _proven(stages: Stages, rows: OutputRows, nodes: Nodes) -> Tensor:
    count = len(nodes.rows)
    duals = DualVariables()
    table = nodes.duals.double() if stages.record is None else rounded_duals(nodes.signs, nodes.duals)
    for stage in stages.stages:
        signs, numbers = nodes.signs[:, stage.columns], table[:, stage.columns].nan_to_num(0)
        size, neurons = stages.cut.sizes[stage.value], stages.cut_indices(stage)
        slopes, multipliers, split = torch.zeros(3, 1, count, size, dtype=torch.float64)
        slopes[0, :, neurons] = torch.where(signs == 0, numbers, 0)
        multipliers[0, :, neurons], split[0, :, neurons] = numbers * signs, signs.double()
        for number, relu in enumerate(stages.relus[stage.value]):
            duals.slopes[relu] = slopes
            if bool(signs.any()):
                duals.signs[relu] = split
                if number == 0:
                    duals.multipliers[relu] = multipliers
    forms, offsets = rows.forms[nodes.rows][None], rows.offsets[nodes.rows][None]
    return bound_forms(stages.path(), rows.value, forms, duals=duals, offsets=offsets).lower[0]
