"""Attacks that weigh distance against margin: Carlini and Wagner's for p = 2 and infinity ("Towards Evaluating the
Robustness of Neural Networks", 2017), and EAD for p = 1 ("Elastic-Net Attacks to Deep Neural Networks", 2018).

Each minimises distance + weight * max(margin, 0) for a weight of each image's own, which is raised while no rival
catches up and lowered once one does. To suit any network, lengths are in units of the first-order way to the boundary
in the 2-norm, and margins in units of their steepness at the image.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from relucert.arithmetic.norm import Norm
from relucert.attacks.objective import AttackObjective, annealed
from relucert.bounding.adam import Adam

SHRINK = 0.97  # factor of Carlini and Wagner's threshold for p = infinity after each success
SPARSITY = 4.0  # of EAD: the weight of the 1-norm beside the squared 2-norm
DECAY = (0.9, 0.999)  # Adam's decay rates, its defaults
Round = Callable[["_Scaled", Tensor, int], None]


class _Scaled:
    """An objective with offsets in units of the first-order distance, and margins in units of their steepness."""

    def __init__(self, objective: AttackObjective) -> None:
        self.objective = objective
        start = objective.slope(objective.centres)
        l2 = Norm(2.0)
        self.length = objective.first_order(start, l2)[:, None].clamp(min=1e-12)
        self.steepness = l2.dual_length(start.gradients, 1)[:, None].clamp(min=1e-12)

    def push(self, offsets: Tensor) -> Tensor:
        """The gradient of max(margin, 0) at scaled offsets."""
        objective = self.objective
        slope = objective.slope(objective.clip(objective.centres + offsets * self.length))
        return slope.gradients / self.steepness * (slope.margins >= 0)[:, None]

    def clip(self, offsets: Tensor) -> Tensor:
        objective = self.objective
        return (objective.clip(objective.centres + offsets * self.length) - objective.centres) / self.length


def carlini_wagner_l2(objective: AttackObjective, steps: int, generators: list[torch.Generator]) -> None:
    _search_weights(objective, steps, _squared_round, first=2.0, rounds=6)


def carlini_wagner_linf(objective: AttackObjective, steps: int, generators: list[torch.Generator]) -> None:
    _search_weights(objective, steps, _threshold_round, first=math.sqrt(objective.centres.shape[1]), rounds=2)


def elastic_net(objective: AttackObjective, steps: int, generators: list[torch.Generator]) -> None:
    _search_weights(objective, steps, _shrinking_round, first=40.0, rounds=6)


def _search_weights(objective: AttackObjective, steps: int, play: Round, first: float, rounds: int) -> None:
    scaled = _Scaled(objective)
    weights = torch.full_like(scaled.length, first)
    low, high = torch.zeros_like(weights), torch.full_like(weights, torch.inf)
    for _ in range(min(rounds, steps)):
        with objective.afresh():
            play(scaled, weights, max(1, steps // rounds))
            succeeded = objective.succeeded[:, None]
        high, low = torch.where(succeeded, weights, high), torch.where(succeeded, low, weights)
        weights = torch.where(high.isinf(), 4 * weights, (low + high) / 2)


def _descend(scaled: _Scaled, gradients: Callable[[Tensor], Tensor], steps: int, distance: float) -> None:
    """Adam from the image, along gradients at scaled offsets; all steps together go about a distance, in units of
    length."""
    offsets = torch.zeros_like(scaled.objective.centres)
    adam, rate = Adam([offsets], DECAY, 1e-12), min(1.0, distance / steps) / math.sqrt(offsets.shape[1])
    for step in range(steps):
        direction = adam.directions([gradients(offsets)])[0]
        offsets = scaled.clip(offsets - rate * annealed(step / steps) * direction)


def _squared_round(scaled: _Scaled, weights: Tensor, steps: int) -> None:
    """Carlini and Wagner for p = 2: Adam on the squared distance."""
    _descend(scaled, lambda offsets: 2 * offsets + weights * scaled.push(offsets), steps, distance=16)


def _threshold_round(scaled: _Scaled, weights: Tensor, steps: int) -> None:
    """Carlini and Wagner for p = infinity: only what exceeds a threshold costs, and success lowers the threshold."""
    threshold = torch.full_like(weights, torch.inf)

    def gradients(offsets: Tensor) -> Tensor:
        nonlocal threshold
        push = scaled.push(offsets)
        reached = (scaled.objective.distances[:, None] / scaled.length).clamp(max=1e6)
        threshold = torch.where(push.abs().amax(1, keepdim=True) == 0, SHRINK * reached, threshold)
        return offsets.sign() * (offsets.abs() > threshold) + weights * push

    _descend(scaled, gradients, steps, distance=24)


def _shrinking_round(scaled: _Scaled, weights: Tensor, steps: int) -> None:
    """EAD: accelerated proximal steps (FISTA), which shrink every offset towards zero."""
    offsets = ahead = torch.zeros_like(scaled.objective.centres)
    for step in range(steps):
        rate = 0.02 * math.sqrt(1 - step / steps)
        moved = ahead - rate * (2 * ahead + weights * scaled.push(ahead))
        before, offsets = offsets, scaled.clip((moved.abs() - rate * SPARSITY).clamp(min=0).copysign(moved))
        ahead = offsets + step / (step + 3) * (offsets - before)
