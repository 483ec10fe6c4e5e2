"""The most that linear forms can gain in a ball that a box cuts, against procedures that look at every coordinate."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from relucert.arithmetic.confined import diamond_gains, sphere_gains
from relucert.arithmetic.rigor import FLOAT, RIGOROUS

Array = NDArray[np.float64]
NEARLY = 1e-9


def knapsack(sizes: Array, room: Array, radius: float) -> float:
    """p = 1: the largest coefficients are spent first."""
    gain = 0.0
    for place in np.argsort(-sizes):
        spent = min(room[place], radius)
        gain, radius = gain + spent * sizes[place], radius - spent
    return gain


def water_level(sizes: Array, room: Array, radius: float) -> float:
    """p = 2: all coordinates move by their size over one level, those that meet a wall less; by bisection."""
    low, high = 1e-12, 1e12
    for _ in range(300):
        level = np.sqrt(low * high)
        low, high = (level, high) if np.linalg.norm(np.minimum(sizes / level, room)) > radius else (low, level)
    return float(sizes @ np.minimum(sizes / high, room))


@pytest.mark.parametrize("radius", [0.01, 0.7, 5.0, 20.0])
@pytest.mark.parametrize(("gains", "best"), [(diamond_gains, knapsack), (sphere_gains, water_level)])
def test_no_split_gains_less(
    gains: Callable[..., list[Tensor]], best: Callable[[Array, Array, float], float], radius: float
) -> None:
    generator = torch.Generator().manual_seed(7)
    forms = torch.randn(2, 5, 90, generator=generator, dtype=torch.float64)
    rooms = torch.rand(2, 2, 90, generator=generator, dtype=torch.float64) ** 3  # some have hardly any
    rooms[:, :, ::4] = 0
    down, up = (room.clamp(max=radius) for room in rooms)
    for arithmetic in (FLOAT, RIGOROUS):
        (found,) = gains(forms, [(down, up)], torch.full((2,), radius, dtype=torch.float64), arithmetic)
        for member in range(2):
            for form in range(5):
                numbers = forms[member, form]
                room = torch.where(numbers > 0, down[member], up[member]).numpy()
                expected = best(numbers.abs().numpy(), room, radius)
                gain = float(found[member, form])
                assert gain == pytest.approx(expected, rel=NEARLY)
                assert arithmetic is FLOAT or gain >= expected * (1 - 1e-14)
