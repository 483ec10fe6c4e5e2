"""FMN ("Fast Minimum-norm Adversarial Attacks through Adaptive Norm Constraints", 2021) and its forerunner for p = 2,
DDN ("Decoupling Direction and Norm", 2019): steps down the margin within a ball that shrinks wherever it succeeds."""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.arithmetic.norm import Norm
from relucert.attacks.objective import AttackObjective, Slope, annealed, unit

GAMMA = 0.05  # FMN's gamma: relative change of the radius in a step
STARTS = 10  # random starting points
L2 = Norm(2.0)


def fast_minimum_norm(objective: AttackObjective, steps: int, generators: list[torch.Generator]) -> None:
    """The fast minimum-norm attack (FMN) for every p, from the image itself."""
    start = objective.slope(objective.centres)
    _follow(objective, torch.zeros_like(objective.centres), objective.first_order(start, objective.norm), start, steps)


def scattered_minimum_norm(objective: AttackObjective, steps: int, generators: list[torch.Generator]) -> None:
    """FMN from random points, nearer than the boundary looks and up to a few times as far away, all at once."""
    size, dtype = objective.centres.shape[1], objective.centres.dtype
    drawn = torch.stack([torch.randn(STARTS, size, generator=generator, dtype=dtype) for generator in generators], 1)
    scales = torch.tensor([2.0 ** (number % 5 - 1) for number in range(STARTS)], dtype=dtype)
    with objective.multiplied(STARTS) as copies:
        start = copies.slope(copies.centres)
        lengths = scales.repeat_interleave(len(generators)) * copies.first_order(start, L2)
        offsets = unit(drawn.flatten(0, 1)) * lengths[:, None]
        _follow(copies, offsets, copies.norm.distance(offsets, torch.zeros_like(offsets)), start, steps)


def _follow(objective: AttackObjective, offsets: Tensor, radius: Tensor, start: Slope, steps: int) -> None:
    """Follows FMN from offsets; the first steps are as long as the first-order distance of the boundary at `start`,
    the slope at the image.

    Until a rival is ahead the ball reaches at least to where the boundary seems to be, and grows: as published it
    need not grow, and where the box cuts the steps short it never gets there.
    """
    centres, norm = objective.centres, objective.norm
    length = (norm.direction(start.gradients) * objective.first_order(start, norm)[:, None]).norm(dim=1)
    for step in range(steps):
        offsets = objective.clip(centres + offsets) - centres
        slope = objective.slope(objective.clip(centres + offsets))
        pace = annealed(step / steps)
        ahead = slope.margins < 0
        shrunk = torch.minimum(radius * (1 - GAMMA * pace), objective.distances)
        near = norm.distance(offsets, torch.zeros_like(offsets)) + objective.first_order(slope, norm)
        grown = radius * (1 + GAMMA * torch.where(objective.succeeded, pace, 1.0))
        radius = torch.where(ahead, shrunk, torch.where(objective.succeeded, grown, torch.maximum(near, grown)))
        offsets = norm.project(offsets - (pace * length)[:, None] * unit(slope.gradients), radius)


def decoupled_direction(objective: AttackObjective, steps: int, generators: list[torch.Generator]) -> None:
    """The decoupled direction and norm attack (DDN) for p = 2: points lie on a sphere whose radius is adapted."""
    centres = objective.centres
    start = objective.slope(centres)
    radius = objective.first_order(start, L2)
    length, offsets = radius, torch.zeros_like(centres)
    for step in range(steps):
        slope = objective.slope(objective.clip(centres + offsets))
        pace = annealed(step / steps)
        radius = radius * torch.where(slope.margins < 0, 1 - GAMMA * pace, 1 + GAMMA * pace)
        offsets = radius[:, None] * unit(offsets - (pace * length)[:, None] * unit(slope.gradients))
        offsets = objective.clip(centres + offsets) - centres
