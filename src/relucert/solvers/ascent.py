"""Slopes and multipliers by gradient ascent on the bound itself: for networks too wide for a solver, and for many
small questions at once.

The bound is concave in the slopes of any one layer, and at its highest it is the program's value.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relucert.bounding.backward import Multipliers, Slopes, allowed, minimise
from relucert.bounding.forward import Bounds
from relucert.bounding.relaxers import Interval, parallel
from relucert.network import Network
from relucert.region import Ball
from relucert.rigor import DOUBLE, FLOAT
from relucert.solvers.solver import Unsolved

STEPS = 100
RATE = 0.5  # of Adam, at the start
COOLING = 0.01  # the last step's share of it
MEMORY = (0.9, 0.99)  # of gradients and of their squares


def ascend(
    network: Network, ball: Ball, forms: Tensor, value: int, bounds: Bounds, slopes: Slopes, time_limit: float
) -> Slopes:
    """Better slopes than these for each form of each batch member; raises `Unsolved` if time runs out."""
    ends = time.monotonic() + time_limit * max(1, len(ball.radius) * forms.shape[1])
    climb = Climb(network, ball, forms, value, bounds, slopes, {})
    climb.run(STEPS, RATE, ends)
    if climb.late:
        raise Unsolved("Time limit reached")
    return climb.slopes


@dataclass(eq=False)
class Climb:
    """The highest bounds found of forms on a value, (batch, forms), and the slopes and multipliers they are due to.

    All are in the ball's precision. Multipliers are counted in units of the coefficients that they are taken off.
    """

    network: Network
    ball: Ball
    forms: Tensor
    value: int
    bounds: Bounds
    slopes: Slopes
    multipliers: Multipliers
    late: bool = False

    def __post_init__(self) -> None:
        """What comes of an inference mode can't be part of a gradient."""
        self.arithmetic = FLOAT if self.ball.radius.dtype == torch.float32 else DOUBLE
        with torch.inference_mode(False):
            self.ball = replace(self.ball, points=self.ball.points.clone(), radius=self.ball.radius.clone())
            self.bounds = {source: Interval(*(side.clone() for side in own)) for source, own in self.bounds.items()}
            self.forms = self.forms.clone()
            self.slopes = {made: own.clone() for made, own in self.slopes.items()}
            self.multipliers = {made: own.clone() for made, own in self.multipliers.items()}
        self.highest = self._bound(self.slopes, self.multipliers)

    def run(self, steps: int, rate: float, ends: float, enough: float = torch.inf) -> None:
        """So many steps at most: none when time is over or every bound is above what is enough."""
        with torch.inference_mode(False), torch.enable_grad():
            met = self.coefficients()
            units = {
                made: met[made].abs().mean(-1, keepdim=True).clamp(min=torch.finfo(own.dtype).tiny)
                for made, own in self.multipliers.items()
            }
            slopes = {made: own.clone().requires_grad_() for made, own in self.slopes.items()}
            shares = {made: (own / units[made]).requires_grad_() for made, own in self.multipliers.items()}
            if not slopes:
                return
            adam = _Adam([*slopes.values(), *shares.values()])
            for step in range(steps):
                if bool((self.highest > enough).all()):
                    return
                if time.monotonic() > ends:
                    self.late = True
                    return
                multipliers = {made: own * units[made] for made, own in shares.items()}
                found = self._bound(slopes, multipliers)
                self._keep(found.detach(), slopes, multipliers)
                gradients = torch.autograd.grad(found.sum(), adam.tensors)
                with torch.no_grad():
                    adam.step(gradients, rate * COOLING ** (step / steps))
                    for own in slopes.values():
                        own.clamp_(0, 1)
                    for made, own in shares.items():
                        own.copy_(allowed(own, self.bounds[self.network.nodes[made - 1].inputs[0]]))

    def coefficients(self) -> dict[int, Tensor]:
        """Of what ReLUs make, in the forms on their way to the input: (batch, forms, size)."""
        met: dict[int, Tensor] = {}
        self._bound(self.slopes, self.multipliers, met)
        return met

    def _bound(self, slopes: Slopes, multipliers: Multipliers, met: dict[int, Tensor] | None = None) -> Tensor:
        return minimise(
            self.network, self.ball, self.forms, self.value, self.bounds, parallel, self.arithmetic,
            slopes, multipliers, met,
        )  # fmt: skip

    def _keep(self, found: Tensor, slopes: Slopes, multipliers: Multipliers) -> None:
        better = found > self.highest
        self.highest = torch.where(better, found, self.highest)
        for kept, tried in ((self.slopes, slopes), (self.multipliers, multipliers)):
            kept.update({made: torch.where(better[..., None], tried[made].detach(), own) for made, own in kept.items()})


class _Adam:
    """Adam, upwards. PyTorch's own costs more than a small network's bound, and seconds to import."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self._means = [torch.zeros_like(own) for own in tensors]
        self._squares = [torch.zeros_like(own) for own in tensors]
        self._steps = 0

    def step(self, gradients: tuple[Tensor, ...], rate: float) -> None:
        self._steps += 1
        first, second = (1 - share**self._steps for share in MEMORY)
        for own, mean, square, gradient in zip(self.tensors, self._means, self._squares, gradients, strict=True):
            mean.lerp_(gradient, 1 - MEMORY[0])
            square.lerp_(gradient.square(), 1 - MEMORY[1])
            own.addcdiv_(mean, (square / second).sqrt_().add_(1e-8), value=rate / first)
