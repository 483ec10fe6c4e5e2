"""What an ascent found, proven: one pull-back in float64 that bounds its rounding, with any slopes and multipliers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.bounding.backward import DualVariables, bound_forms
from relucert.bounding.interval import Bounds, Interval
from relucert.branch_and_bound.climb import Nodes
from relucert.branch_and_bound.stages import Stages
from relucert.rigor import RIGOROUS

CROWD = 256  # nodes at once


@dataclass(frozen=True, eq=False)
class Rows:
    """Linear forms on one value of the cut network, (count, size) in float64, and constants, (count,)."""

    value: int
    forms: Tensor
    offsets: Tensor

    def pick(self, chosen: Tensor) -> Rows:
        return Rows(self.value, self.forms[chosen], self.offsets[chosen])


def neuron_rows(stages: Stages, value: int, neurons: Tensor, signs: Tensor) -> Rows:
    """Neurons of a pre-activation that is no stage yet, (count,), times signs."""
    forms = torch.nn.functional.one_hot(neurons, stages.exact.sizes[value]).double() * signs.double()[:, None]
    return Rows(value, forms, torch.zeros(len(neurons), dtype=torch.float64))


def proven_bounds(stages: Stages, rows: Rows, nodes: Nodes, depth: int | None = None) -> Tensor:
    """Lower bounds of the nodes' rows, rounding included, (count,): they hold where the nodes' signs do.

    depth: the number of stages that the nodes' signs and duals are about.
    """
    parts = [
        _proven(stages, rows, nodes.pick(slice(first, first + CROWD)), depth)
        for first in range(0, len(nodes.rows), CROWD)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def _proven(stages: Stages, rows: Rows, nodes: Nodes, depth: int | None) -> Tensor:
    count = len(nodes.rows)
    slopes: dict[int, Tensor] = {}
    multipliers: dict[int, Tensor] = {}
    bounds: Bounds = {}
    for stage in stages.stages[:depth]:
        signs, duals = nodes.signs[:, stage.columns], nodes.duals[:, stage.columns].double().nan_to_num(0)
        lower, upper = (side.repeat(count, 1) for side in stages.cut_bounds[stage.value])
        places = stages.places(stage)
        lower[:, places] = torch.where(signs > 0, lower[:, places].clamp(min=0), lower[:, places])
        upper[:, places] = torch.where(signs < 0, upper[:, places].clamp(max=0), upper[:, places])
        bounds[stage.value] = Interval(lower, upper)
        table, taken = torch.zeros(2, count, 1, lower.shape[1], dtype=torch.float64).unbind()
        table[:, 0, places] = torch.where(signs == 0, duals, 0)
        taken[:, 0, places] = duals * signs
        for relu in stages.relus[stage.value]:
            slopes[relu] = table
            if bool(signs.any()):
                multipliers[relu] = taken
    chosen = rows.pick(nodes.rows)
    region = stages.region.select(torch.zeros(count, dtype=torch.long))
    return bound_forms(
        stages.cut, region, chosen.forms[:, None], rows.value, bounds, RIGOROUS,
        duals=DualVariables(slopes, multipliers), offsets=chosen.offsets[:, None],
    ).lower.squeeze(1)  # fmt: skip
