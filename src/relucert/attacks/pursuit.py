"""What an attack sees of its question: margins and their gradients. The nearest success is kept for it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.network import Network
from relucert.norm import Norm
from relucert.query.property import Property

FAR = 1e6  # times an image's span: where to stop looking if every input is valid
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

    @contextmanager
    def multiplied(self, times: int) -> Iterator[Pursuit]:
        """The same images so many times over, all of the first copies first; what any of them finds counts."""
        prop = Property(self.prop.labels.repeat(times), self.prop.rivals.repeat(times, 1))
        copies = Pursuit(self.network, self.centres.repeat(times, 1), prop, self.norm, self.box, self.deadline)
        try:
            yield copies
        finally:
            distances = torch.cat([self.distances, copies.distances]).view(times + 1, -1)
            points = torch.cat([self.points, copies.points]).view(times + 1, *self.points.shape)
            self.distances, nearest = distances.min(0)
            self.points = points[nearest, torch.arange(len(nearest))]

    @property
    def found(self) -> Tensor:
        return self.distances.isfinite()

    def first_order(self, slope: Slope, norm: Norm) -> Tensor:
        """How far in a norm, (batch,), the margins would take to vanish if they kept falling as they do.

        At most as far as it is across.
        """
        steepness = norm.dual_length(slope.gradients, 1).clamp(min=torch.finfo(slope.gradients.dtype).tiny)
        return torch.minimum(slope.margins.abs() / steepness, self.across(norm))

    def across(self, norm: Norm) -> Tensor:
        """The distance between opposite corners of the box, (batch,); without one, far beyond what the pixels span."""
        spans = FAR * (self.centres.amax(1) - self.centres.amin(1)) if self.box is None else self.box[1] - self.box[0]
        corner = torch.ones_like(self.centres) * torch.as_tensor(spans).clamp(min=1).reshape(-1, 1)
        return norm.distance(corner, torch.zeros_like(corner))


def unit(vectors: Tensor) -> Tensor:
    """Vectors (batch, size) at length 1 in the 2-norm; zeros stay zeros."""
    lengths: Tensor = vectors.norm(dim=1, keepdim=True)
    return vectors / lengths.clamp(min=torch.finfo(vectors.dtype).tiny)


def annealed(share: float) -> float:
    """From 1 at the share 0 down to 0.01 at 1, along half a cosine."""
    return 0.01 + 0.99 * (1 + math.cos(math.pi * share)) / 2
