"""What an attack sees of its question: margins and their gradients. The nearest success is kept for it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.ball import Norm
from relucert.network import Network
from relucert.property import Property

Box = tuple[float, float]


class TimeUp(Exception):  # noqa: N818 - no error: what was found is kept
    """The time for the attacks is over."""


class Slope(NamedTuple):
    """Least margins (batch,), and their gradients (batch, size)."""

    margins: Tensor
    gradients: Tensor


class Pursuit:
    """A batch of images, each with the rivals of which one is to catch up with its label.

    Every point an attack evaluates is looked at: the nearest one where a rival is ahead stays in `points`, its
    distance in `distances` (infinite: none yet). So attacks keep no books, and one that is stopped loses nothing.
    """

    def __init__(
        self, network: Network, centres: Tensor, prop: Property, norm: Norm, box: Box | None, deadline: float
    ) -> None:
        self.network, self.centres, self.prop, self.norm, self.box = network, centres, prop, norm, box
        self.deadline = deadline
        self.points = centres.clone()
        self.distances = torch.full((len(centres),), torch.inf, dtype=centres.dtype)

    def slope(self, points: Tensor) -> Slope:
        """At points (batch, size), each for its own image. Raises TimeUp when the time is over."""
        if time.monotonic() > self.deadline:
            raise TimeUp
        with torch.enable_grad():
            leaf = points.detach().requires_grad_()
            margins = self._margins(self.network(leaf))
            (gradients,) = torch.autograd.grad(margins.sum(), leaf)
        margins = margins.detach()
        distances = self.norm.distance(points, self.centres)
        nearer = (margins < 0) & (distances < self.distances)
        self.points = torch.where(nearer[:, None], points, self.points)
        self.distances = torch.where(nearer, distances, self.distances)
        return Slope(margins, gradients.nan_to_num(0, 0, 0))

    def _margins(self, scores: Tensor) -> Tensor:
        own = scores.gather(1, self.prop.labels[:, None]).squeeze(1)
        return own - scores.gather(1, self.prop.rivals).amax(1)

    def clip(self, points: Tensor) -> Tensor:
        return points if self.box is None else points.clamp(*self.box)

    @contextmanager
    def afresh(self) -> Iterator[None]:
        """Within, what was found before does not count; after, the nearer of both does."""
        points, distances = self.points, self.distances
        self.distances = torch.full_like(distances, torch.inf)
        try:
            yield
        finally:
            nearer = self.distances < distances
            self.points = torch.where(nearer[:, None], self.points, points)
            self.distances = torch.minimum(self.distances, distances)

    @property
    def found(self) -> Tensor:
        return self.distances.isfinite()

    def first_order(self, slope: Slope, norm: Norm) -> Tensor:
        """How far in a norm, (batch,), the margins would take to vanish if they kept falling as they do."""
        steepness = norm.dual_length(slope.gradients, 1).clamp(min=torch.finfo(slope.gradients.dtype).tiny)
        return (slope.margins.abs() / steepness).clamp(max=1e6)


def unit(vectors: Tensor) -> Tensor:
    """Vectors (batch, size) at length 1 in the 2-norm; zeros stay zeros."""
    lengths: Tensor = vectors.norm(dim=1, keepdim=True)
    return vectors / lengths.clamp(min=torch.finfo(vectors.dtype).tiny)


def annealed(share: float) -> float:
    """From 1 at the share 0 down to 0.01 at 1, along half a cosine."""
    return 0.01 + 0.99 * (1 + math.cos(math.pi * share)) / 2
