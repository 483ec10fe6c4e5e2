"""Norms and balls."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from relucert.arithmetic.box import Box
from relucert.arithmetic.norm import Norm
from relucert.arithmetic.region import Region, RegionShape
from relucert.errors import InputError
from tests.nets import NORMS


@pytest.mark.parametrize(("given", "p"), [("inf", math.inf), ("2", 2.0), (1, 1.0), (1.5, 1.5), (math.inf, math.inf)])
def test_norms_are_read(given: str | float, p: float) -> None:
    assert Norm.parse(given).p == p
    assert Norm.parse(Norm(p)) == Norm(p)


@pytest.mark.parametrize("given", ["", "two", "0.5", 0.99, -1, "nan", math.nan, None, [2]])
def test_other_norms_are_refused(given: object) -> None:
    with pytest.raises(InputError, match="p >= 1"):
        Norm.parse(given)


@pytest.mark.parametrize("p", NORMS)
def test_distance_is_torchs_norm(p: float) -> None:
    points = torch.randn(5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(Norm(p).distance(points, points[0]), torch.linalg.vector_norm(points - points[0], p, 1))


@pytest.mark.parametrize("p", NORMS)
def test_samples_fill_the_ball_and_stay_inside(p: float) -> None:
    centre = torch.tensor([1.0, -2.0, 3.0])
    points = Norm(p).sample(centre, 0.5, 4000, torch.Generator().manual_seed(0))
    distances = Norm(p).distance(points, centre)
    assert distances.max() <= 0.5 * (1 + 1e-12)
    assert distances.max() > 0.48
    assert ((distances / 0.5) ** 3).mean().item() == pytest.approx(0.5, abs=0.03)  # evenly spread in three dimensions


@pytest.mark.parametrize("p", NORMS)
def test_scattered_points_lie_at_even_distances(p: float) -> None:
    points = Norm(p).scattered(4000, 50, torch.Generator().manual_seed(0), torch.float64)
    distances = Norm(p).distance(points, torch.zeros(50))
    assert distances.max() <= 1 + 1e-12
    assert distances.mean().item() == pytest.approx(50 / 51 if math.isinf(p) else 0.5, abs=0.02)


@pytest.mark.parametrize(
    ("centre", "radius", "message"),
    [
        (torch.tensor([[math.nan, 0.0]]), 1.0, "NaN"),
        (torch.zeros(1, 2), -0.1, ">= 0"),
        (torch.zeros(1, 2), math.inf, "finite"),
        (torch.zeros(1, 2), math.nan, "finite"),
        (torch.zeros(1, 2), [0.1, 0.2, 0.3], "one radius or one each"),
        (torch.zeros(1, 2), "a", "one radius or one each"),
        (torch.zeros(2), 0.1, "(batch, ...)"),
        ([["a"]], 0.1, "numbers"),
    ],
)
def test_bad_balls_are_refused(centre: Any, radius: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        Region.around(centre, radius, 2)


def test_mismatched_batches_are_refused() -> None:
    with pytest.raises(InputError, match="radii"):
        Region(torch.zeros(2, 3), torch.zeros(3), Norm(2))


@pytest.mark.parametrize(
    "scale",
    [-1, torch.tensor([1.0, -1.0]), torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.inf]), torch.ones(3)],
)
def test_scales_that_are_none_are_refused(scale: Any) -> None:
    """Wherever a region is built: by hand, of a shape, or of another region."""
    points, radii = torch.zeros(1, 2), torch.ones(1)
    made: list[Callable[[], Region]] = [
        lambda: Region(points, radii, Norm(2), scale=scale),
        lambda: RegionShape(Norm(2), scale=torch.as_tensor(scale)).around(points, 1.0),
        lambda: replace(Region(points, radii, Norm(2)), scale=scale),
        lambda: Region.around(points, 1.0, 2, scale=scale),
    ]
    for make in made:
        with pytest.raises(InputError, match="scale"):
            make()


def test_coordinates_without_a_limit_move() -> None:
    low = torch.tensor([0.0, 0.0, -torch.inf, 0.5], dtype=torch.float64)
    high = torch.tensor([torch.inf, 1.0, torch.inf, 0.5], dtype=torch.float64)
    assert Box(low, high).moving.tolist() == [True, True, True, False]
