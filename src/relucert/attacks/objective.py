"""The objective of an attack: margins and their gradients. The nearest success is kept for it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.box import Box
from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.common.deadline import check_time
from relucert.common.progress import Progress, Report, silent
from relucert.network import Network

FAR = 1e6  # times an image's span: the farthest that attacks look if every input is valid


class Slope(NamedTuple):
    """Least margins (batch,), and their gradients (batch, size)."""

    margins: Tensor
    gradients: Tensor


class AttackObjective:
    """A batch of images, each with a property of which one row is to be violated.

    Attacks move points around the images in units of the region's scale: there a distance is the norm's own. Every
    point an attack evaluates is looked at: of those that violate the property the nearest stays in `points`, as an
    input of the network, and its distance in `distances` (infinite: none yet). So attacks keep no books, and one that
    is stopped loses nothing.
    """

    def __init__(
        self, network: Network, centres: Tensor, prop: Property, shape: RegionShape, report: Report = silent
    ) -> None:
        """report: Called with how many slopes were evaluated."""
        self.report, self.slopes = report, 0
        self.network, self.centres, self.shape = network, centres, shape
        self.prop = prop.cast(centres.dtype)
        self.norm = shape.norm
        self.pace = 0.0  # the seconds that the last evaluation took
        self.points = centres.clone()
        self.distances = torch.full((len(centres),), torch.inf, dtype=centres.dtype)
        self.cut_short = False  # whether time ended before the attacks did
        self.failure: str | None = None  # why they broke down
        self._scale = None if shape.scale is None else shape.scale.to(centres.dtype, copy=True)
        self._walls = self._scaled_box()

    def _scaled_box(self) -> Box | None:
        """The valid points in units of the scale; coordinates that stay have no room."""
        box = None if self.shape.box is None else self.shape.box.cast(self.centres.dtype)
        if self._scale is None:
            return box
        endless = torch.full_like(self._scale, torch.inf)
        low, high = (-endless, endless) if box is None else box
        moving, units = self._scale > 0, torch.where(self._scale > 0, self._scale, 1)
        ends = (self.centres + (end - self.centres) / units for end in (low, high))
        return Box(*(torch.where(moving, end, self.centres) for end in ends))

    def slope(self, points: Tensor) -> Slope:
        """The margins and gradients at points (batch, size), one per image; raises TimeUp where time is up."""
        check_time(self.pace)
        self.slopes += 1
        self.report(Progress(step=self.slopes))
        started = time.monotonic()
        with torch.enable_grad():
            leaf = points.detach().requires_grad_()
            inputs = self._inputs(leaf)
            margins = self.prop.values(self.network(inputs)).amin(1)
            (gradients,) = torch.autograd.grad(margins.sum(), leaf)
        margins = margins.detach()
        distances = self.norm.distance(points, self.centres)
        nearer = (margins < 0) & (distances < self.distances)
        self.points = torch.where(nearer[:, None], inputs.detach(), self.points)
        self.distances = torch.where(nearer, distances, self.distances)
        self.pace = time.monotonic() - started
        return Slope(margins, gradients.nan_to_num(0, 0, 0))

    def _inputs(self, points: Tensor) -> Tensor:
        """The inputs that points in units of the scale stand for."""
        return points if self._scale is None else self.centres + self._scale * (points - self.centres)

    def clip(self, points: Tensor) -> Tensor:
        return points if self._walls is None else torch.clamp(points, *self._walls)

    @contextmanager
    def afresh(self) -> Iterator[None]:
        """Forgets earlier successes within this context; afterwards the nearer of both counts."""
        points, distances = self.points, self.distances
        self.distances = torch.full_like(distances, torch.inf)
        try:
            yield
        finally:
            nearer = self.distances < distances
            self.points = torch.where(nearer[:, None], self.points, points)
            self.distances = torch.minimum(self.distances, distances)

    @contextmanager
    def multiplied(self, times: int) -> Iterator[AttackObjective]:
        """An objective of several copies of all images, copy by copy; afterwards the nearest success counts."""
        prop = self.prop.repeat(times)
        copies = AttackObjective(self.network, self.centres.repeat(times, 1), prop, self.shape, self.report)
        copies.pace = times * self.pace
        try:
            yield copies
        finally:
            distances = torch.cat([self.distances, copies.distances]).view(times + 1, -1)
            points = torch.cat([self.points, copies.points]).view(times + 1, *self.points.shape)
            self.distances, nearest = distances.min(0)
            self.points = points[nearest, torch.arange(len(nearest))]

    @property
    def succeeded(self) -> Tensor:
        return self.distances.isfinite()

    def first_order(self, slope: Slope, norm: Norm) -> Tensor:
        """The first-order distance of the boundary in a norm, (batch,): where linear margins would vanish.

        It is at most the distance across the valid inputs.
        """
        steepness = norm.dual_length(slope.gradients, 1).clamp(min=torch.finfo(slope.gradients.dtype).tiny)
        return torch.minimum(slope.margins.abs() / steepness, self.across(norm))

    def across(self, norm: Norm) -> Tensor:
        """The distance between opposite corners of the valid inputs, (batch,); where they do not end, far beyond what
        the pixels span."""
        spans = FAR * (self.centres.amax(1, keepdim=True) - self.centres.amin(1, keepdim=True)).clamp(min=1)
        spans = spans.expand_as(self.centres)
        if self._scale is not None:
            spans = torch.where(self._scale > 0, spans / torch.where(self._scale > 0, self._scale, 1), 0)
        if self._walls is not None:
            spans = torch.minimum(spans, self._walls.high - self._walls.low)
        return norm.distance(spans, torch.zeros_like(spans))


def unit(vectors: Tensor) -> Tensor:
    """Vectors (batch, size) at length 1 in the 2-norm; zeros stay zeros."""
    lengths: Tensor = vectors.norm(dim=1, keepdim=True)
    return vectors / lengths.clamp(min=torch.finfo(vectors.dtype).tiny)


def annealed(share: float) -> float:
    """A cosine schedule: from 1 at the share 0 of all steps down to 0.01 at the share 1."""
    return 0.01 + 0.99 * (1 + math.cos(math.pi * share)) / 2
