"""Sectors: between which slopes the chords of a ReLU from a known point lie."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.rigor import RIGOROUS, TINY
from relucert.bounding.interval import Interval


class Sector(NamedTuple):
    """`|relu(z) - relu(c) - slope (z - c)| <= width |z - c|` for every z and c within their bounds: (size,) each."""

    slope: Tensor
    width: Tensor


def sector(bounds: Interval, centre: Interval) -> Sector:
    """The narrowest sector for z within `bounds` and c within `centre`, (size,) each in float64, rounded outwards.

    A chord's slope does not fall when either end of it moves up, as ReLU is convex: the least slope is that between
    both lower ends, the largest that between both upper ones.
    """
    (lowest, certain), (highest, sure) = _chord(bounds.lower, centre.lower), _chord(bounds.upper, centre.upper)
    gamma = RIGOROUS.gamma(2)
    lowest = torch.where(certain, lowest, (lowest * (1 - gamma) - TINY).clamp(min=0))
    highest = torch.where(sure, highest, highest * (1 + gamma) + TINY)
    slope = lowest + (highest - lowest) / 2
    reach = torch.maximum(highest - slope, slope - lowest)
    return Sector(slope, torch.where(reach == 0, reach, RIGOROUS.ceil(reach)))  # a difference of 0 is exact


def _chord(end: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    """The slope of the chord between two ends, or where they meet that of one side, and whether it is exact; else it
    took two roundings."""
    positive, apart = end > 0, (end > 0) != (centre > 0)
    share = torch.where(positive, end, centre) / torch.where(apart, (end - centre).abs(), 1)
    slope = torch.where(apart, share, positive.to(end.dtype)).where(end.isfinite() & centre.isfinite(), torch.nan)
    return slope, ~apart | (end == 0) | (centre == 0)
