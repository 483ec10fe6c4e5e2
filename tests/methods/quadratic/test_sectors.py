"""Sectors hold for every chord, in rational arithmetic, and are as narrow as they can be."""

import random
from fractions import Fraction

import torch
from torch import Tensor

from relucert.bounding.interval import Interval
from relucert.methods.quadratic.sectors import sector

AWKWARD = (0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 1e-300, -1e-20, 0.1, -0.3, 1 / 3, 1e16, -1e16, 1e300, -7e299)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def relu(value: Fraction) -> Fraction:
    return max(value, Fraction(0))


def test_every_chord_lies_in_its_sector() -> None:
    draw = random.Random(0)
    for _ in range(3000):
        lower, upper = sorted(draw.choice(AWKWARD) * draw.choice((1, draw.random())) for _ in range(2))
        below, above = sorted(draw.choice(AWKWARD) * draw.choice((1, draw.random())) for _ in range(2))
        slope, width = sector(Interval(numbers(lower), numbers(upper)), Interval(numbers(below), numbers(above)))
        for z in (lower, upper, min(max(draw.choice(AWKWARD), lower), upper)):
            for centre in (below, above, min(max(draw.choice(AWKWARD), below), above)):
                way = Fraction(z) - Fraction(centre)
                error = relu(Fraction(z)) - relu(Fraction(centre)) - Fraction(float(slope)) * way
                assert abs(error) <= Fraction(float(width)) * abs(way)


def test_by_hand() -> None:
    """A centre at 1 with a lower bound of -3: slopes from 1/4 to 1. Decided neurons have no width."""
    bounds = Interval(numbers(-3.0, -1.0, 0.0, -2.0), numbers(5.0, 3.0, 2.0, 0.0))
    centre = numbers(1.0, -1.0, 1.0, -1.0)
    slope, width = sector(bounds, Interval(centre, centre))
    torch.testing.assert_close(slope, numbers(0.625, 0.375, 1.0, 0.0))
    torch.testing.assert_close(width, numbers(0.375, 0.375, 0.0, 0.0))
    assert width[2] == width[3] == 0


def test_what_is_no_number_has_no_sector() -> None:
    fine = numbers(1.0)
    for spoilt in (torch.nan, torch.inf, -torch.inf):
        for bounds, centre in (
            (Interval(numbers(spoilt), fine), Interval(fine, fine)),
            (Interval(fine, fine), Interval(fine, numbers(spoilt))),
        ):
            assert not sector(bounds, centre).width.isfinite().all()
