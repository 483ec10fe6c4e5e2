"""The p-norm. No other file compares p."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from relucert.arithmetic.confined import SQUARED_TINY, Walls, diamond_gains, root, sphere_gains
from relucert.arithmetic.rigor import Arithmetic
from relucert.common.names import parse_norm
from relucert.common.slicing import absolute_sum, slices
from relucert.errors import InputError

Amount = TypeVar("Amount", float, Tensor)
Choice = TypeVar("Choice")
NO_ROOM = 1e-6  # share of the radius: coordinates with less room are charged to their walls, others to the norm
SPHERE_ROUNDS = 20  # of a geometric bisection of [1, 1e6], which ends at 13 parts in a million


@dataclass(frozen=True)
class Norm:
    """The p-norm, p in [1, inf], with everything the library ever asks of it."""

    p: float

    def __post_init__(self) -> None:
        if math.isnan(self.p) or self.p < 1:
            raise InputError(f"a norm needs a number p >= 1 or 'inf', not {self.p}")

    @classmethod
    def parse(cls, norm: object) -> Norm:
        """The norm that "inf", "2", "l1", 1.5 or the like stands for."""
        return norm if isinstance(norm, Norm) else cls(parse_norm(norm))

    @property
    def dual(self) -> float:
        """q with 1/p + 1/q = 1."""
        if math.isinf(self.p):
            return 1.0
        return math.inf if self.p == 1 else self.p / (self.p - 1)

    def distance(self, points: Tensor, centre: Tensor) -> Tensor:
        """The norm of the difference along the last dimension."""
        return _length(points - centre, self.p, -1)

    def distance_bound(self, points: Tensor, centre: Tensor, arithmetic: Arithmetic) -> Tensor:
        """An upper bound of the distance, rounding included."""
        length = arithmetic.above(self.distance(points, centre), points.shape[-1] + 256)
        return length + SQUARED_TINY if arithmetic.rigorous else length

    def project(self, offsets: Tensor, radius: Tensor) -> Tensor:
        """Offsets (batch, size) brought into balls around 0 of radius (batch,): for p = 1, 2 and infinity to the
        nearest point, for another p by shortening."""
        radius = radius[:, None]
        if math.isinf(self.p):
            return offsets.clamp(-radius, radius)
        length = _length(offsets, self.p, 1)[:, None]
        if self.p != 1:
            return offsets * (radius / length.clamp(min=torch.finfo(offsets.dtype).tiny)).clamp(max=1)
        sizes = offsets.abs()
        descending = sizes.sort(1, descending=True).values
        ranks = torch.arange(1, offsets.shape[1] + 1, dtype=offsets.dtype)
        thresholds = (descending.cumsum(1) - radius) / ranks
        last = (descending > thresholds).sum(1, keepdim=True).clamp(min=1) - 1
        shrunk = (sizes - thresholds.gather(1, last).clamp(min=0)).clamp(min=0).copysign(offsets)
        return torch.where(length <= radius, offsets, shrunk)

    def direction(self, gradients: Tensor) -> Tensor:
        """Where to step along gradients (batch, size) before a projection.

        For p >= 2 the steepest way, in unit length of this norm. Below 2 that moves hardly more than one coordinate:
        there the gradient itself, in unit length of the 2-norm.
        """
        if math.isinf(self.p):
            return gradients.sign()
        tiny = torch.finfo(gradients.dtype).tiny
        power, p = (self.dual - 1, self.p) if self.p >= 2 else (1.0, 2.0)
        way = (gradients.abs() / gradients.abs().amax(1, keepdim=True).clamp(min=tiny)).pow(power).copysign(gradients)
        return way / _length(way, p, 1)[:, None].clamp(min=tiny)

    def dual_length(self, forms: Tensor, dim: int) -> Tensor:
        """The dual norm of linear forms along `dim`, as computed: the most each gains over the unit ball."""
        return _length(forms, self.dual, dim)

    def dual_bound(self, forms: Tensor, dim: int, arithmetic: Arithmetic) -> Tensor:
        """An upper bound of the dual norm of linear forms along `dim`, rounding included."""
        return self.above_length(self.dual_length(forms, dim), forms.shape[dim], arithmetic)

    def above_length(self, length: Tensor, size: int, arithmetic: Arithmetic) -> Tensor:
        """An upper bound of a dual norm that was computed over `size` coordinates."""
        if math.isinf(self.dual):
            return length
        # A power errs by a few units; so does q itself, which moves the norm by less than 100 units.
        powers = 2 if self.dual in (1.0, 2.0) else 256
        length = arithmetic.above(length, size + powers)
        return length + SQUARED_TINY if arithmetic.rigorous else length

    def squares_bound(self, weights: Tensor, arithmetic: Arithmetic) -> Tensor:
        """An upper bound, over the unit ball, of the sum of squared coordinates with weights >= 0: (..., size) to
        (...)."""
        if self.p <= 2:
            return weights.amax(-1)
        return Norm(self.p / 2).dual_bound(weights, -1, arithmetic)

    def even(self, size: int) -> float:
        """The coordinate of the point on the unit sphere whose coordinates are all equal; for p < 2 that of p = 2."""
        return 1.0 if math.isinf(self.p) else size ** (-1 / max(self.p, 2.0))

    def farthest(self, forms: Tensor, walls: Walls | None = None) -> Tensor:
        """The points of the unit ball at which forms are largest, as computed: (..., size) each.

        walls: how far coordinates may go down and up, (size,) each; only p = 2 minds them.
        """
        if walls is not None and self.p == 2:
            return _on_the_sphere(forms, walls)
        if math.isinf(self.p):
            return forms.sign()
        if self.p == 1:
            largest = forms.abs().argmax(-1, keepdim=True)
            return torch.zeros_like(forms).scatter_(-1, largest, forms.gather(-1, largest).sign())
        tiny = torch.finfo(forms.dtype).tiny
        lengths = _length(forms, self.dual, -1).clamp(min=tiny)[..., None]
        return (forms.abs() / lengths).pow(self.dual - 1).copysign(forms)

    def choose(self, one: Choice, between: Choice, infinite: Choice) -> Choice:
        """Chooses by p: `one` for p = 1, `infinite` for p = infinity, `between` for every p between them."""
        if self.between_ends:
            return between
        return one if self.p == 1 else infinite

    @property
    def body(self) -> str | None:
        """The unit ball as the constraints of a program: "box", "diamond" or "sphere"; None where p has none such."""
        return {math.inf: "box", 1.0: "diamond", 2.0: "sphere"}.get(self.p)

    @property
    def between_ends(self) -> bool:
        """Whether p is neither 1 nor infinite: at the ends a matrix has its induced norm in closed form."""
        return 1 < self.p < math.inf

    def between(self, at_one: Amount, at_two: Amount, at_infinity: Amount) -> Amount:
        """Interpolates positive numbers that belong to p = 1, 2 and infinity: their logarithm is linear in 1/p."""
        end, share = (at_one, 2 / self.p - 1) if self.p < 2 else (at_infinity, 1 - 2 / self.p)
        return end if share == 1 else at_two if share == 0 else end**share * at_two ** (1 - share)

    def induced(self, at_one: Tensor, at_two: Tensor, at_infinity: Tensor, arithmetic: Arithmetic) -> Tensor:
        """An upper bound of a matrix's induced p-norm from those of its 1-, 2- and infinity-norms.

        Between them by the theorem of Riesz and Thorin: the logarithm of the norm is convex in 1/p.
        """
        return arithmetic.above(self.between(at_one, at_two, at_infinity), 4096)  # the powers, and the share

    def sample(self, centre: Tensor, radius: float, count: int, generator: torch.Generator) -> Tensor:
        """Points spread evenly in the ball around one centre: (count, size)."""
        return centre.flatten().double() + radius * self.offsets(count, centre.numel(), generator, torch.float64)

    def offsets(self, count: int, size: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Points spread evenly in the unit ball: (count, size).

        Draws of a generalised normal distribution, shortened by an exponential one; for p = 1 and 2 the quick ways.
        """
        shape = (count, size)
        if math.isinf(self.p):
            return torch.rand(shape, generator=generator, dtype=dtype) * 2 - 1
        last = torch.empty(count, 1, dtype=dtype).exponential_(generator=generator)
        if self.p == 2:
            drawn = torch.randn(shape, generator=generator, dtype=dtype)
            return drawn / (drawn.square().sum(1, keepdim=True) + 2 * last).sqrt()
        if self.p == 1:  # one number for both the sign and the exponential
            signs = torch.rand(shape, generator=generator, dtype=dtype) * 2 - 1
            powers = -torch.log1p(-signs.abs().clamp(max=1 - torch.finfo(dtype).eps))
            return powers.copysign(signs) / (powers.sum(1, keepdim=True) + last)
        powers = torch._standard_gamma(torch.full(shape, 1 / self.p, dtype=dtype), generator=generator)
        signs = torch.randint(0, 2, shape, generator=generator) * 2 - 1
        return signs * (powers / (powers.sum(1, keepdim=True) + last)) ** (1 / self.p)

    def scattered(self, count: int, size: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Points of the unit ball at distances spread evenly from 0 to 1, for p = inf spread evenly in the cube.

        In high dimension the points that `offsets` spreads evenly nearly all lie at the surface.
        """
        even = self.offsets(count, size, generator, dtype)
        return even if math.isinf(self.p) else even * torch.rand(count, 1, generator=generator, dtype=dtype)

    def confined_gains(
        self, forms: Tensor, wall_pairs: Sequence[Walls], radius: Tensor, arithmetic: Arithmetic
    ) -> list[Tensor]:
        """How much forms may gain where coordinates have walls, rounding included: (batch, forms) per pair of walls.

        Args:
            forms: (batch or 1, forms, size).
            wall_pairs: The walls of each gain to compute, none beyond the radius.
            radius: (batch,).
        """
        if self.p == 1:
            return diamond_gains(forms, wall_pairs, radius, arithmetic)
        if self.p == 2:
            return sphere_gains(forms, wall_pairs, radius, arithmetic)
        gains, sizes = [], forms.abs()
        for down, up in wall_pairs:
            room = torch.where(forms > 0, down[:, None], up[:, None])
            walled = room <= NO_ROOM * radius[:, None, None]
            walled_gain = arithmetic.above((sizes * walled * room).sum(-1), forms.shape[-1] + 3)
            free_length = self.dual_bound(sizes * ~walled, -1, arithmetic)
            gains.append(arithmetic.above(arithmetic.above(free_length * radius[:, None], 1) + walled_gain, 1))
        return gains

    def __str__(self) -> str:
        return f"{self.p:g}"


NormLike = str | float | Norm
"""A norm's p, as a number or as a text such as "inf", "l2" or "1.5"; or the norm."""


def _on_the_sphere(forms: Tensor, walls: Walls) -> Tensor:
    """The farthest points of the unit ball between walls: multiples of the forms, clamped, of length 1 if they can."""
    down, up = walls
    lengths = _length(forms, 2, -1)[..., None]
    forms = torch.where(lengths > 0, forms / torch.where(lengths > 0, lengths, 1), 0)
    low, high = torch.ones_like(lengths), torch.full_like(lengths, 1e6)
    points = torch.minimum(torch.maximum(forms, -down), up)
    for _ in range(SPHERE_ROUNDS):
        middle = (low * high).sqrt()
        points = torch.minimum(torch.maximum(forms * middle, -down), up)
        long = _length(points, 2, -1)[..., None] > 1
        low, high = torch.where(long, low, middle), torch.where(long, middle, high)
    return points / _length(points, 2, -1).clamp(min=1)[..., None]


def _length(vectors: Tensor, p: float, dim: int) -> Tensor:
    """The p-norm along `dim`; where it is 0, its gradient is 0 too."""
    if p == 1:
        return absolute_sum(vectors, dim)
    if p == 2:
        return root(torch.stack([block.square().sum(dim) for block in slices(vectors, dim)]).sum(0))
    if math.isinf(p):
        return torch.stack([block.abs().amax(dim) for block in slices(vectors, dim)]).amax(0)
    largest = vectors.abs().amax(dim, keepdim=True)
    total = ((vectors.abs() / torch.where(largest == 0, 1, largest)) ** p).sum(dim)
    return largest.squeeze(dim) * torch.where(total == 0, 1, total) ** (1 / p)
