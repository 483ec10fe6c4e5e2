"""The paper's Algorithm 1 as it stands, vectorised with NumPy: what relucert is timed against.

Every layer's matrices A are multiplied out in full for every earlier layer, and the radius is bisected. (The
pseudo-code's loop over k stops at 1; A of index 0 is needed too and is updated in the same way.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Layers:
    """Weights and biases of an m-layer network, one row per output neuron."""

    weights: list[Array]
    biases: list[Array]


def dual_norm(rows: Array, p: float) -> Array:
    if np.isinf(p):
        return np.asarray(np.abs(rows).sum(1))
    if p == 1:
        return np.asarray(np.abs(rows).max(1))
    q = p / (p - 1)
    return np.asarray((np.abs(rows) ** q).sum(1) ** (1 / q) if q != 2 else np.sqrt((rows * rows).sum(1)))


def two_sided_bounds(layers: Layers, x: Array, radius: float, p: float) -> list[tuple[Array, Array]]:
    """ComputeTwoSideBounds for every layer in turn: lower and upper bounds of each."""
    bounds: list[tuple[Array, Array]] = []
    saved: list[Array] = []  # A of every earlier layer, index 0 first
    for weight, bias in zip(layers.weights, layers.biases, strict=True):
        if not bounds:
            saved = [weight]
        else:
            lower, upper = bounds[-1]
            slope = np.where(lower >= 0, 1, 0).astype(weight.dtype)
            unstable = (lower < 0) & (upper > 0)
            slope[unstable] = upper[unstable] / (upper[unstable] - lower[unstable])
            scaled = np.asarray(weight * slope, weight.dtype)
            saved = [scaled @ matrix for matrix in saved] + [scaled]
        centre = saved[0] @ x + bias
        above, below = np.zeros_like(centre), np.zeros_like(centre)
        for matrix, (lower, upper), earlier in zip(saved[1:], bounds, layers.biases, strict=False):
            lows = np.where((lower < 0) & (upper > 0), lower, 0).astype(weight.dtype)
            centre = centre + matrix @ earlier
            above -= np.maximum(matrix, 0) @ lows
            below -= np.minimum(matrix, 0) @ lows
        reach = radius * dual_norm(saved[0], p)
        bounds.append((centre + below - reach, centre + above + reach))
    return bounds


def certified_radius(layers: Layers, x: Array, rows: Array, p: float, start: float, steps: int = 15) -> float:
    """The largest radius among `steps` trials at which all margins (rows on the outputs) are positive."""
    last = Layers([*layers.weights[:-1], rows @ layers.weights[-1]], [*layers.biases[:-1], rows @ layers.biases[-1]])
    low, high, radius = 0.0, np.inf, start
    for _ in range(steps):
        lower, _ = two_sided_bounds(last, x, radius, p)[-1]
        if lower.min() > 0:
            low = radius
        else:
            high = radius
        radius = 2 * low if np.isinf(high) else (low + high) / 2
    return low
