"""The re-check of witnesses, outside any attack: what does not pass it was never found."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relucert.attacks.pursuit import Box
from relucert.bounding.point import lower_margins
from relucert.network import Network
from relucert.norm import Norm
from relucert.query.property import Property
from relucert.rigor import RIGOROUS

STRETCHES = (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1)  # how far beyond a point to look where it is too near


class Witness(NamedTuple):
    """A point that passed, (size,), and its distance from the image, never understated."""

    point: Tensor
    distance: float


class Judge:
    """Judges points for one network, norm and box.

    A point passes if it is a number of the network's own precision in every coordinate, lies in the box exactly, and
    a rival is level with the label or ahead of it in both: the network as evaluated in its own precision (float32
    where it is stored in less), and in real arithmetic, proven in float64 with every rounding error bounded.
    """

    def __init__(self, network: Network, norm: Norm, box: Box | None) -> None:
        self.precision = own_precision(network)
        self.own, self.exact = network.cast(self.precision), network.cast(torch.float64)
        self.norm, self.box = norm, box

    @property
    def inner_box(self) -> Box | None:
        """The largest box of numbers of the network's own precision within the box."""
        if self.box is None:
            return None
        ends = torch.tensor(self.box, dtype=torch.float64)
        low, high = ends.to(self.precision)
        infinity = torch.tensor(torch.inf, dtype=self.precision)
        if float(low) < self.box[0]:
            low = torch.nextafter(low, infinity)
        if float(high) > self.box[1]:
            high = torch.nextafter(high, -infinity)
        return float(low), float(high)

    def represent(self, points: Tensor) -> Tensor:
        """Points as the network takes them: rounded to its own precision, clipped to the box."""
        rounded = points.to(self.precision)
        inner = self.inner_box
        return rounded if inner is None else rounded.clamp(*inner)

    def nearest(self, centre: Tensor, points: Tensor, label: int, rivals: list[int]) -> Witness | None:
        """The nearest to a centre (size,), in float64, of the points (count, size) that pass."""
        points = self.represent(points)
        distances = self.norm.distance_bound(points.double(), centre, RIGOROUS)
        passed = self._inside(points) & distances.isfinite() & self._proven(points, label, rivals)
        for place in distances.masked_fill(~passed, torch.inf).argsort().tolist():
            if not bool(passed[place]):
                break
            if self.overtaken(points[place], label, rivals):
                return Witness(points[place], float(distances[place]))
        return None

    def at_image(self, image: Tensor, label: int, rivals: list[int]) -> Witness | None:
        """The image (size,) itself, if it is proven that in real arithmetic a rival is not behind the label there."""
        return Witness(image, 0.0) if bool(self._proven(image[None], label, rivals)) else None

    def farthest(self, point: Tensor, centre: Tensor) -> float:
        """How far a point is from a centre, both (size,), in float64: never understated."""
        return float(self.norm.distance_bound(point, centre, RIGOROUS))

    def beyond(self, centre: Tensor, point: Tensor, label: int, rivals: list[int]) -> Witness | None:
        """The point, or one slightly farther along the way from the centre that passes."""
        stretch = 1 + torch.tensor(STRETCHES, dtype=torch.float64)[:, None]
        return self.nearest(centre, centre + stretch * (point.double() - centre), label, rivals)

    def overtaken(self, point: Tensor, label: int, rivals: list[int]) -> bool:
        """Whether the network, evaluated on this one point in its own precision, scores no rival below the label."""
        scores = self.scores(point)
        return bool((scores[rivals] >= scores[label]).any())

    def scores(self, point: Tensor) -> Tensor:
        return self.own(point.to(self.precision)[None])[0]

    def _inside(self, points: Tensor) -> Tensor:
        if self.box is None:
            return torch.ones(len(points), dtype=torch.bool)
        exact = points.double()
        return ((exact >= self.box[0]) & (exact <= self.box[1])).all(1)

    def _proven(self, points: Tensor, label: int, rivals: list[int]) -> Tensor:
        """Whether, in real arithmetic, some rival's score less the label's is proven not to be negative."""
        prop = Property(torch.full((len(points),), label), torch.tensor(rivals).expand(len(points), -1))
        leads = -prop.rows(self.exact.classes, torch.float64)
        return (lower_margins(self.exact, points.double(), None, leads, RIGOROUS) >= 0).any(1)


def own_precision(network: Network) -> torch.dtype:
    """The widest precision of the stored numbers, at least float32."""
    kinds = {tensor.dtype for node in network.nodes for tensor in node.operation.tensors().values()}
    return torch.float64 if torch.float64 in kinds else torch.float32
