"""Slopes of lines around any function, from a few samples of it: the activation then gives the offsets that hold."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

HALF = 8  # samples on either side of the middle

Values = Callable[[Tensor], Tensor]


def supporting_slopes(values: Values, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The slopes of the highest line below the samples, and of the lowest one above them, in the middle of the
    interval: with these the area between both lines is the smallest."""
    samples, step = _samples(values, lower, upper)
    return _supporting(samples, step), -_supporting(-samples, step)


def parallel_slope(values: Values, lower: Tensor, upper: Tensor) -> Tensor:
    """The slope of the nearest parallel lines around the samples: a supporting one, the mean of both, or the secant."""
    samples, step = _samples(values, lower, upper)
    below, above = _supporting(samples, step), -_supporting(-samples, step)
    secant = (samples[-1] - samples[0]) / (2 * HALF * step)
    places = _places(samples)
    best, distance = secant, torch.full_like(lower, torch.inf)
    for slope in (secant, below, above, (below + above) / 2):
        heights = samples - slope * step * places
        apart = heights.amax(0) - heights.amin(0)
        best, distance = torch.where(apart < distance, slope, best), torch.fmin(apart, distance)
    return best


def _samples(values: Values, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Values at equal distances from end to end, (samples, ...), and the distance, which is positive."""
    eps = torch.finfo(lower.dtype).eps ** 0.5
    least = eps * (1 + lower.abs() + upper.abs())
    step = torch.maximum((upper - lower) / (2 * HALF), least)
    middle = (lower + upper) / 2
    return values(middle + step * _places(lower[None])), step


def _places(like: Tensor) -> Tensor:
    return torch.arange(-HALF, HALF + 1, dtype=like.dtype).reshape(-1, *[1] * (like.ndim - 1))


def _supporting(samples: Tensor, step: Tensor) -> Tensor:
    """The slope of the lower convex envelope of samples in the middle: that of the lowest chord between a sample on the
    left and one on the right, which are the neighbours where the envelope touches the middle sample."""
    left, right = samples[:HALF].flip(0)[:, None], samples[HALF + 1 :][None]
    counts = torch.arange(1, HALF + 1, dtype=samples.dtype)
    ahead, behind = (counts.reshape(shape + [1] * (samples.ndim - 1)) for shape in ([1, HALF], [HALF, 1]))
    heights = ((left * ahead + right * behind) / (ahead + behind)).flatten(0, 1)
    chords = ((right - left) / (ahead + behind)).flatten(0, 1)
    lowest = heights.argmin(0, keepdim=True)
    return chords.gather(0, lowest)[0] / step
