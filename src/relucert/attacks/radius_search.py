"""PGD: projected gradient steps in a ball of fixed radius, and a search for the least radius at which they succeed."""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.attacks.pursuit import Pursuit, annealed

ROUNDS = 10  # radii that are tried for each image
STEP = 0.5  # length of the first step, as a share of the radius


def projected_gradient(pursuit: Pursuit, steps: int, generators: list[torch.Generator]) -> None:
    """Projected gradient descent (PGD) for every p, in a search for the radius.

    Each image's radius is doubled until a rival catches up; then the bracket is halved again and again.

    Rounds start at the image and at a random point of the ball in turn.
    """
    centres = pursuit.centres
    length = max(1, steps // ROUNDS)
    radius = pursuit.first_order(pursuit.slope(centres), pursuit.norm)
    failed = torch.zeros_like(radius)
    for number in range(min(ROUNDS, steps)):
        offsets = torch.zeros_like(centres) if number % 2 == 0 else _random(pursuit, generators) * radius[:, None]
        before = pursuit.distances
        _descend(pursuit, offsets, radius, length)
        missed = pursuit.distances >= torch.minimum(before, radius * 1.001)
        failed = torch.where(missed, torch.maximum(failed, radius), failed)
        failed = torch.minimum(failed, pursuit.distances * 0.9)
        doubled = torch.minimum(2 * radius, pursuit.across(pursuit.norm))
        radius = torch.where(pursuit.succeeded, (failed + pursuit.distances) / 2, doubled)


def _descend(pursuit: Pursuit, offsets: Tensor, radius: Tensor, steps: int) -> None:
    centres, norm = pursuit.centres, pursuit.norm
    for step in range(steps):
        points = pursuit.clip(centres + offsets)
        direction = norm.direction(pursuit.slope(points).gradients)
        length = STEP * annealed(step / steps) * radius
        offsets = norm.project(points - centres - length[:, None] * direction, radius)
    pursuit.slope(pursuit.clip(centres + offsets))


def _random(pursuit: Pursuit, generators: list[torch.Generator]) -> Tensor:
    size, dtype = pursuit.centres.shape[1], pursuit.centres.dtype
    return torch.cat([pursuit.norm.offsets(1, size, generator, dtype) for generator in generators])
