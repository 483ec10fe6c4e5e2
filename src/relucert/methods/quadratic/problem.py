"""One region of a chain as the quadratic certificates see it: deviations from a centre, and a sector for every ReLU.

Inputs are `x = c + r y` with `y` in the unit ball. The pre-activations deviate from those at c by

    dz[0] = W[0] (r y),    dz[k + 1] = W[k + 1] (s[k] dz[k] + e[k]),    |e[k]| <= w[k] |dz[k]|,

where `relu(z) - relu(zc) = s dz + e` defines e, and `s +- w` is the sector of the ReLU. All of this is exact for the
true pre-activations zc at the centre; what is computed of them is within a known error. Where the weights themselves
are not exact, each layer adds a noise to dz, within known bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.interval import Bounds, Interval
from relucert.methods.quadratic.chain import Chain
from relucert.methods.quadratic.sectors import sector


@dataclass(frozen=True, eq=False)
class HiddenLayer:
    """A hidden layer within the region.

    Attributes:
        weight: (size, size before).
        bias: (size,).
        lower: Bounds of the pre-activations, (size,), as `upper`.
        upper: The upper ones.
        centre: The pre-activations at the region's centre as computed, (size,).
        error: How far those may be from the true ones, (size,).
        slope: The slope of the sector, (size,).
        width: The width of the sector, (size,).
        loose: The neurons whose sectors have a width: (count,).
        noise: How far `weight @ outputs before + bias` may be from the true pre-activations, (size,).
        drift: How far the noise of this layer and those before it may move dz, (size,).
    """

    weight: Tensor
    bias: Tensor
    lower: Tensor
    upper: Tensor
    centre: Tensor
    error: Tensor
    slope: Tensor
    width: Tensor
    loose: Tensor
    noise: Tensor
    drift: Tensor

    @property
    def unstable(self) -> Tensor:
        return (self.lower < 0) & (self.upper > 0)

    @cached_property
    def max_deviation(self) -> Tensor:
        """How far a pre-activation may be from that at the centre, at most: (size,)."""
        far = torch.maximum(self.upper - self.centre, self.centre - self.lower).clamp(min=0)
        return RIGOROUS.above(far + self.error, 2)

    def cast(self, dtype: torch.dtype) -> HiddenLayer:
        numbers = {name: part.to(dtype) for name, part in vars(self).items() if name in NUMBERS}
        return replace(self, **numbers)


NUMBERS = ("weight", "bias", "lower", "upper", "centre", "error", "slope", "width")


@dataclass(frozen=True, eq=False)
class Problem:
    """A region and the hidden layers of a chain within it.

    Attributes:
        region: One region, in float64.
        centre: The point c, (inputs,).
        radii: The radii r, (inputs,).
        moving: The inputs whose radius is not 0: (count,).
        layers: The hidden layers.
    """

    region: Region
    centre: Tensor
    radii: Tensor
    moving: Tensor
    layers: tuple[HiddenLayer, ...]

    @classmethod
    def of(cls, chain: Chain, region: Region, bounds: Bounds) -> Problem:
        """In float64; region: a batch of one; bounds: of every hidden layer, (1, size) each, proven or not."""
        centre, radii = region.reference[0], region.coordinate_radii(RIGOROUS)[0]
        layers = []
        point, doubt = centre, torch.zeros_like(centre)
        sizes, moved = RIGOROUS.above(centre.abs() + radii, 1), torch.zeros_like(centre)
        for layer, value in zip(chain.layers, chain.values, strict=False):
            lower, upper = (side[0].double() for side in bounds[value])
            before = layer.weight @ point + layer.bias
            gamma = RIGOROUS.gamma(len(point) + 2)
            size = layer.weight.abs() @ (doubt + gamma * (point.abs() + doubt)) + gamma * layer.bias.abs()
            error = RIGOROUS.above(size, len(point) + 4)
            below, above = RIGOROUS.floor(before - error), RIGOROUS.ceil(before + error)
            slope, width = sector(Interval(lower, upper), Interval(below, above))
            loose = (width > 0).nonzero().flatten()
            noise = layer.noise(sizes)
            drift = noise
            if bool(moved.any()):
                drift = RIGOROUS.above(layer.weight.abs() @ moved + noise, len(point) + 2)
            layers.append(HiddenLayer(
                layer.weight, layer.bias, lower, upper, before, error, slope, width, loose, noise, drift
            ))  # fmt: skip
            point, doubt = before.clamp(min=0), error
            sizes, moved = upper.clamp(min=0), slope * drift * (1 + RIGOROUS.gamma(2))
        return cls(region, centre, radii, (radii > 0).nonzero().flatten(), tuple(layers))

    @property
    def sizes(self) -> list[int]:
        """How many inputs move, and how many neurons of every hidden layer but the last have a sector with a width."""
        return [len(self.moving), *(len(layer.loose) for layer in self.layers[:-1])]

    @property
    def relaxed(self) -> bool:
        """Whether any input moves and any neuron is unstable."""
        return len(self.moving) > 0 and any(bool(layer.unstable.any()) for layer in self.layers)

    @property
    def rows(self) -> int:
        """The number of rows of the certificate's matrix."""
        return sum(self.sizes)
