"""The region of inputs that a question is about: a ball, within the box of valid inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from relucert.errors import InputError
from relucert.norm import Norm
from relucert.rigor import Arithmetic

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class Ball:
    """A batch of balls of one norm: radius (batch,), and points (batch, size) they are centred at.

    With `which` (batch,) the balls share fewer points: the centre of ball b is points[which[b]]. With a `box`, the
    least and the largest valid number, only the points whose coordinates all lie in it belong to the ball.
    """

    points: Tensor
    radius: Tensor
    norm: Norm
    which: Tensor | None = None
    box: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        count = len(self.points) if self.which is None else len(self.which)
        if self.points.ndim != 2 or self.radius.shape != (count,):
            raise InputError(
                f"a ball needs centres (batch, size) and radii (batch,), "
                f"not {tuple(self.points.shape)} and {tuple(self.radius.shape)}"
            )

    @classmethod
    def around(cls, centre: ArrayLike | Tensor, radius: float | Tensor, norm: str | float | Norm) -> Ball:
        """A checked ball around points given as (batch, ...); one radius for all, or one each."""
        try:
            points = centre.detach() if isinstance(centre, Tensor) else torch.as_tensor(np.asarray(centre))
            flat = points.flatten(1).double().clone()
            radii = torch.as_tensor(radius, dtype=torch.float64).expand(len(flat))
        except (TypeError, ValueError, IndexError, RuntimeError):
            raise InputError("a ball needs centres of numbers, (batch, ...), and one radius or one each") from None
        if not bool(torch.isfinite(flat).all()):
            raise InputError("the centre has NaN or infinite numbers")
        if not bool((torch.isfinite(radii) & (radii >= 0)).all()):
            raise InputError("a radius must be a finite number >= 0")
        return cls(flat, radii, Norm.parse(norm))

    @property
    def centre(self) -> Tensor:
        """(batch, size)"""
        return self.shared(self.points)

    def shared(self, values: Tensor) -> Tensor:
        """What was computed for each point, (points, ...), for each ball: (batch, ...)."""
        return values if self.which is None else values[self.which]

    def select(self, chosen: Tensor) -> Ball:
        """Some of the balls."""
        which = chosen if self.which is None else self.which[chosen]
        return replace(self, radius=self.radius[chosen], which=which)

    def cast(self, dtype: torch.dtype) -> Ball:
        return replace(self, points=self.points.to(dtype), radius=self.radius.to(dtype))

    def gain(self, forms: Tensor, dim: int, arithmetic: Arithmetic) -> Tensor:
        """How much linear forms on the input, (batch or 1, ...) with coordinates along `dim`, can gain in the ball."""
        return self.gain_of(self.norm.dual_length(forms, dim), forms.shape[dim], arithmetic)

    def fall(self, forms: Tensor, arithmetic: Arithmetic) -> Tensor:
        """How far linear forms on the input, (batch or 1, forms, size), can fall below their values at the centre.

        With a box every form is split in two: one part falls by its dual norm times the radius, the other by its
        sizes times the room that the coordinates have. Any split is sound; the norm knows the best one.
        """
        if self.box is None:
            return self.gain(forms, -1, arithmetic)
        below = arithmetic.ceil(self.centre - self.box[0]).clamp(min=0)[:, None]
        above = arithmetic.ceil(self.box[1] - self.centre).clamp(min=0)[:, None]
        sizes, count = forms.abs(), forms.shape[-1]
        room = torch.minimum(torch.where(forms > 0, below, above), self.radius[:, None, None])
        free = self.norm.unconfined(sizes, room, self.radius[:, None])
        confined = arithmetic.above((arithmetic.ceil(sizes - free) * room).sum(-1), count + 2)
        return arithmetic.above(self.gain(free, -1, arithmetic) + confined, 1)

    def gain_of(self, lengths: Tensor, size: int, arithmetic: Arithmetic) -> Tensor:
        """The same from the forms' dual lengths over so many coordinates, (batch or 1, ...)."""
        above = self.norm.above_length(lengths, size, arithmetic)
        radius = self.radius.reshape(-1, *[1] * (lengths.ndim - 1))
        return arithmetic.above(above * radius, 1)
