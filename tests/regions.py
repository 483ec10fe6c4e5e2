"""Boxes and scales around points, for tables of tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relucert.arithmetic.norm import Norm
from relucert.arithmetic.region import Region


@dataclass(frozen=True)
class Limits:
    """What is valid, and how far coordinates move: as users give it, for inputs of some size."""

    boxed: str | None
    scaled: bool

    def given(self, points: Tensor) -> dict[str, Any]:
        """The options `box` and `scale` for points (batch, size), which lie inside."""
        size = points.shape[1]
        options: dict[str, Any] = {}
        low, high = points.amin(0), points.amax(0)
        if self.boxed == "numbers":
            options["box"] = (float(points.min()), float(points.max()) + 0.05)
        elif self.boxed == "arrays":  # some walls touch a point, some are near, some are nowhere
            near = torch.arange(size) % 3
            low = torch.where(near == 0, low, torch.where(near == 1, low - 0.07, -torch.inf))
            options["box"] = (low, torch.where(near == 2, high, high + 0.11))
        if self.scaled:
            options["scale"] = torch.linspace(0.0, 1.5, size, dtype=torch.float64)
        return options


LIMITS = {
    "numbers": Limits("numbers", False),
    "arrays": Limits("arrays", False),
    "scale": Limits(None, True),
    "arrays and scale": Limits("arrays", True),
}


def samples(region: Region, member: int, count: int, generator: torch.Generator) -> Tensor:
    """Points of one member's region, (count, size): spread in it, at its corners, and its centre."""
    centre, radius = region.centre[member], float(region.radius[member])
    size = len(centre)
    offsets = region.norm.offsets(count, size, generator, torch.float64)
    corners = Norm(region.norm.p).offsets(count, size, generator, torch.float64).sign()
    lengths = region.norm.distance(corners, torch.zeros_like(corners))[:, None]
    scale = torch.ones_like(centre) if region.scale is None else region.scale
    points = centre + radius * scale * torch.cat([offsets, corners / lengths, torch.zeros(1, size).double()])
    return points if region.box is None else torch.clamp(points, *region.box)
