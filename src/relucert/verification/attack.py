"""An attack aimed at violations within a box: samples that lie on its faces and corners, too, then signed gradients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.attacks.objective import annealed
from relucert.common.deadline import TimeUp, check_time, until
from relucert.inputs.loading.runtime import own_precision
from relucert.network import Network
from relucert.verification.witness_check import StatedBox

OVERSHOOT = 0.25  # by which samples reach beyond the box at either end before they are clamped
MOST_NUMBERS = 2**23  # that one evaluation may hold
DEPTH = 1e-3  # how far beyond a constraint, relative to its size, the descent goes on


class Round(NamedTuple):
    """How many samples are drawn, how many of the best are descended from for each violation, and how many steps."""

    samples: int
    starts: int
    steps: int


ROUNDS = (Round(1024, 16, 10), Round(16384, 64, 40))


@dataclass(eq=False)
class BoxAttack:
    """Looks for points of a box at which all constraints of one of its violations are met, as computed.

    Attributes:
        network: In its own precision, float32 at least.
        stated: The box and its violations.
        ends: When time is over.
    """

    network: Network
    stated: StatedBox
    ends: float
    seed: int = 0

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)
        self.pace = 0.0  # the seconds that the last gradients took
        self.precision = own_precision(self.network)
        self.low, self.high = self.stated.box.cast(self.precision)
        self.batch_size = max(1, MOST_NUMBERS // sum(self.network.sizes))
        owners = self.stated.tables.owners
        self.members = [(owners == number).nonzero().flatten() for number in range(len(self.stated.violations))]

    def candidates(self) -> Iterator[Tensor]:
        """Points (count, size) worth checking, round after round."""
        for number, effort in enumerate(ROUNDS):
            if number and effort.samples * effort.steps > 64 * self.batch_size:
                effort = Round(self.batch_size, 8, effort.steps)
            samples = self._samples(min(effort.samples, self.batch_size))
            try:
                missed = self._missed(samples)
            except TimeUp:
                return
            yield samples[missed.amin(1).argsort()[: effort.starts]]
            for violation in range(len(self.members)):
                starts = samples[missed[:, violation].argsort()[: effort.starts]]
                yield from self._descend(starts, violation, effort.steps)
                if time.monotonic() > self.ends:
                    return

    def near(self, point: Tensor, steps: int = 10) -> Iterator[Tensor]:
        """Points that descents from a point (size,) come to, for every violation."""
        start = self.stated.represent(point[None]).to(self.precision)
        yield start
        for violation in range(len(self.members)):
            yield from self._descend(start, violation, steps, reach=0.1)

    def _samples(self, count: int) -> Tensor:
        drawn = torch.rand(count, len(self.low), generator=self.generator, dtype=torch.float64)
        spread = (1 + 2 * OVERSHOOT) * drawn - OVERSHOOT
        points = self.low.double() + (self.high.double() - self.low.double()) * spread
        points[0] = (self.low.double() + self.high.double()) / 2
        return self.stated.represent(points).to(self.precision)

    def _missed(self, points: Tensor) -> Tensor:
        """By how much the worst constraint of each violation is missed: (count, violations)."""
        with until(self.ends), torch.no_grad():
            excess = self.stated.excess(points, self.network(points))
        return torch.stack([excess[:, rows].amax(1) for rows in self.members], 1)

    @torch.inference_mode(False)  # whichever mode the caller is in: gradients are needed
    def _descend(self, points: Tensor, violation: int, steps: int, reach: float = 0.5) -> tuple[Tensor, Tensor]:
        """The best points of a descent, and the corners next to them."""
        points = points.clone()
        rows, half = self.members[violation], (self.high - self.low) / 2
        best, least = points, torch.full((len(points),), torch.inf, dtype=points.dtype)
        for step in range(steps + 1):
            try:
                worst, gradient = self._slope(points, rows)
            except TimeUp:
                break
            better = worst < least
            best, least = torch.where(better[:, None], points, best), torch.where(better, worst, least)
            length = reach * annealed(step / max(1, steps))
            points = torch.clamp(points - length * half * gradient.nan_to_num(0).sign(), self.low, self.high)
        return best[least.argsort()], torch.where(best - self.low < self.high - best, self.low, self.high)

    def _slope(self, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """By how much the worst of some constraints is missed, (count,), and the gradient of what is descended."""
        with until(self.ends), torch.enable_grad():
            check_time(self.pace)
            started = time.monotonic()
            leaf = points.detach().requires_grad_()
            outputs = self.network(leaf)
            excess = self.stated.excess(leaf, outputs)[:, rows]
            size = outputs.detach().abs().amax(1, keepdim=True) + torch.finfo(outputs.dtype).tiny
            loss = torch.maximum(excess / size, excess.new_tensor(-DEPTH)).sum()
            (gradient,) = torch.autograd.grad(loss, leaf)
            self.pace = time.monotonic() - started
        return excess.detach().amax(1), gradient
