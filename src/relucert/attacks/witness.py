"""The re-check of witnesses, outside any attack: what does not pass it was never found."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.box import Box
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.point import lower_margins
from relucert.errors import InputError
from relucert.inputs.loading.runtime import Runtime, own_precision, point_precision, runtime_of
from relucert.network import Network

STRETCHES = (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1)  # how much farther to look where a point does not pass
POINT_BYTES = 2**26  # memory for all values at the points that are evaluated at once


class AdversarialPoint(NamedTuple):
    """A point that passed, (size,), and its distance from the image, never understated."""

    point: Tensor
    distance: float

    def __repr__(self) -> str:
        return f"AdversarialPoint({tuple(self.point.shape)} at distance {self.distance!r})"


class AdversarialCheck:
    """Checks candidate adversarial examples for one network and one shape of regions.

    A point passes if it is a number of the network's precision in every coordinate, lies in the box exactly, and some
    row of the property is not positive. For a network in real arithmetic that has to be so both as it is evaluated in
    its own precision (float32 where it is stored in less) and proven in float64 with every rounding error bounded. For
    one that is evaluated in floating point, the runtime shows it, at a point where the bounds of all evaluations allow
    it: what they exclude is no evaluation that they are about. Properties come with a batch of one.
    """

    def __init__(self, network: Network, shape: RegionShape, runtime: Runtime | None = None) -> None:
        """runtime: The network's own, where it is evaluated in floating point."""
        self.rounds = network.inference.rounds
        self.precision = point_precision(network)
        self.network, self.exact = network.cast(own_precision(network)), network.cast(torch.float64)
        self.runtime = runtime or (runtime_of(network, network) if self.rounds else None)
        self.shape = shape
        self.inner_box = self._inner_box()

    @property
    def by(self) -> str | None:
        """The runtime that shows violations of a network evaluated in floating point; None in real arithmetic."""
        return self.runtime.by if self.rounds and self.runtime is not None else None

    def _inner_box(self) -> Box | None:
        """The largest box of numbers of the network's own precision within the box."""
        if self.shape.box is None:
            return None
        low, high = self.shape.box.cast(self.precision)
        infinity = torch.tensor(torch.inf, dtype=self.precision)
        low = torch.where(low.double() < self.shape.box.low, torch.nextafter(low, infinity), low)
        high = torch.where(high.double() > self.shape.box.high, torch.nextafter(high, -infinity), high)
        return Box(low, high)

    def represent(self, points: Tensor) -> Tensor:
        """Points as the network takes them: rounded to its own precision, clipped to the box."""
        rounded = points.to(self.precision)
        return rounded if self.inner_box is None else torch.clamp(rounded, *self.inner_box)

    def nearest(self, centre: Tensor, points: Tensor, prop: Property) -> AdversarialPoint | None:
        """The nearest to a centre (size,), in float64, of the points (count, size) that pass."""
        points = self.represent(points)
        distances = self.shape.distance_bound(points.double(), centre, RIGOROUS)
        possible = distances.masked_fill(~self._inside(points), torch.inf)
        step = max(1, POINT_BYTES // (8 * sum(self.exact.sizes)))
        for nearest in possible.argsort().split(step):
            passed = possible[nearest].isfinite() & self._plausible(points[nearest], prop)
            for index in nearest[passed].tolist():
                if self.violated(points[index], prop):
                    return AdversarialPoint(points[index], float(distances[index]))
        return None

    def at_image(self, image: Tensor, prop: Property) -> AdversarialPoint | None:
        """The image (size,) itself, if it is proven that in real arithmetic the property does not hold there, or shown
        by the runtime of a network that is evaluated in floating point."""
        fails = bool(self._plausible(image[None], prop))
        if self.rounds:
            rounded = image.to(self.precision)
            fails = fails and torch.equal(rounded.double(), image.double()) and self.violated(rounded, prop)
        return AdversarialPoint(image, 0.0) if fails else None

    def beyond(self, centre: Tensor, point: Tensor, prop: Property) -> AdversarialPoint | None:
        """The point, or one slightly farther along the way from the centre that passes."""
        stretch = 1 + torch.tensor(STRETCHES, dtype=torch.float64)[:, None]
        return self.nearest(centre, centre + stretch * (point.double() - centre), prop)

    def violated(self, point: Tensor, prop: Property) -> bool:
        """Whether the network's scores, evaluated on this one point in its precision, fail some row."""
        return prop.fails_at(self.scores(point))

    def scores(self, point: Tensor) -> Tensor:
        if self.rounds and self.runtime is not None:
            return self.runtime.run(point.to(self.precision))
        return self.network(point.to(self.precision)[None])[0]

    def weakest(self, point: Tensor, prop: Property) -> int:
        """The index of the row that is least at a point (size,), in float64."""
        return int(prop.values(self.exact(point.double()[None])).argmin())

    def _inside(self, points: Tensor) -> Tensor:
        if self.shape.box is None:
            return torch.ones(len(points), dtype=torch.bool)
        return self.shape.box.contains(points.double())

    def _plausible(self, points: Tensor, prop: Property) -> Tensor:
        """Whether, in real arithmetic, some row is proven not to be positive at points (count, size), or in floating
        point no bound says that all are: (count,)."""
        sign = 1 if self.rounds else -1
        signed = Property(sign * prop.rows, sign * prop.offsets).select(torch.zeros(len(points), dtype=torch.long))
        lower = lower_margins(self.exact, points.double(), None, signed, RIGOROUS)
        return ~(lower > 0).all(1) if self.rounds else (lower >= 0).any(1)


def check_staying(images: Tensor, network: Network, shape: RegionShape) -> None:
    """Refuses images whose coordinates of scale 0 the network's precision can't hold: a witness could not keep them."""
    if shape.scale is None:
        return
    staying = images[:, shape.scale == 0]
    dtype = point_precision(network)
    if not torch.equal(staying.to(dtype).double(), staying):
        raise InputError(f"coordinates of scale 0 must be {dtype} numbers, as the network takes them: round the images")
