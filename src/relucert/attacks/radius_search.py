"""PGD: projected gradient steps in a ball of fixed radius, and a search for the least radius at which they succeed."""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.attacks.objective import AttackObjective, annealed

ROUNDS = 10  # radii that are tried for each image
STEP = 0.5  # length of the first step, as a share of the radius


def projected_gradient(objective: AttackObjective, steps: int, generators: list[torch.Generator]) -> None:
    """Projected gradient descent (PGD) for every p, in a search for the radius.

    Each image's radius is doubled until a rival catches up; then the bracket is halved again and again.

    Rounds start at the image and at a random point of the ball in turn.
    """
    centres = objective.centres
    length = max(1, steps // ROUNDS)
    radius = objective.first_order(objective.slope(centres), objective.norm)
    failed = torch.zeros_like(radius)
    for number in range(min(ROUNDS, steps)):
        offsets = torch.zeros_like(centres) if number % 2 == 0 else _random(objective, generators) * radius[:, None]
        before = objective.distances
        _descend(objective, offsets, radius, length)
        missed = objective.distances >= torch.minimum(before, radius * 1.001)
        failed = torch.where(missed, torch.maximum(failed, radius), failed)
        failed = torch.minimum(failed, objective.distances * 0.9)
        doubled = torch.minimum(2 * radius, objective.across(objective.norm))
        radius = torch.where(objective.succeeded, (failed + objective.distances) / 2, doubled)


def _descend(objective: AttackObjective, offsets: Tensor, radius: Tensor, steps: int) -> None:
    centres, norm = objective.centres, objective.norm
    for step in range(steps):
        points = objective.clip(centres + offsets)
        direction = norm.direction(objective.slope(points).gradients)
        length = STEP * annealed(step / steps) * radius
        offsets = norm.project(points - centres - length[:, None] * direction, radius)
    objective.slope(objective.clip(centres + offsets))


def _random(objective: AttackObjective, generators: list[torch.Generator]) -> Tensor:
    size, dtype = objective.centres.shape[1], objective.centres.dtype
    return torch.cat([objective.norm.offsets(1, size, generator, dtype) for generator in generators])
