"""Differences of two networks side by side: enclosed, never looser than bounds of both apart, and tight for copies."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.backward import bound_forms
from relucert.bounding.boxes import box_bounds
from relucert.bounding.interval import Interval
from relucert.bounding.pairs import Halves, pair_bounds, pair_lines
from relucert.branch_and_bound.boxes import BoxVisitor
from relucert.network import Network
from relucert.network.twins import paired_activations, side_by_side
from relucert.query.problem import Problem
from tests.bounding.test_boxes import inside
from tests.nets import twins

PERTURBATIONS = (0.0, 1e-6, 1e-3, 0.1, 2.0)
WIDTHS = (1e-6, 0.1, 1.0, 5.0)
ROWS = torch.tensor([[[-1.0, 0, 1, 0], [0, 1, 0, -1], [1, 1, -0.5, -2], [1, 0, 1, 0]]], dtype=torch.float64)


def _question(perturbation: float, width: float, seed: int) -> tuple[Network, Tensor, Tensor]:
    network = side_by_side(twins(perturbation, seed=seed)).cast(torch.float64)
    middle = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return network, middle - width / 2, middle + width / 2


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("perturbation", PERTURBATIONS)
def test_forms_are_not_below_their_bounds(perturbation: float, width: float, seed: int) -> None:
    network, low, high = _question(perturbation, width, seed)
    bounds = pair_bounds(network, Region.boxes(low, high), paired_activations(network), RIGOROUS)
    assert bounds.pairs
    lower = bounds.lower(ROWS, torch.zeros(len(low), ROWS.shape[1], dtype=torch.float64))
    for box, points in enumerate(inside(low, high)):
        values = network.values(points)
        assert bool((values[-1] @ ROWS[0].T >= lower[box] - 1e-13).all())
        for activation, (lines, _, _) in bounds.pairs.items():
            d = Halves.of(values[network.source(activation)]).difference
            difference = Halves.of(values[activation]).difference
            assert lines.low is not None
            assert bool((difference >= lines.slope_below[box] * d + lines.low[box] - 1e-12).all())
            assert bool((difference <= lines.slope_above[box] * d + lines.high[box] + 1e-12).all())


@pytest.mark.parametrize("perturbation", PERTURBATIONS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.sampled
def test_rows_are_never_bounded_more_loosely_than_apart(perturbation: float, width: float, seed: int) -> None:
    network, low, high = _question(perturbation, width, seed)
    offsets = torch.zeros(1, ROWS.shape[1], dtype=torch.float64)
    region = Region.boxes(low, high)
    visitor = BoxVisitor(Problem(network, region.select(torch.tensor([0])), Property(ROWS, offsets)), lambda _: False)
    together = visitor._bounded(region)[1]
    path = box_bounds(network, region, RIGOROUS).path
    apart = bound_forms(path, network.output, ROWS, offsets=offsets.expand(len(low), -1)).lower
    assert bool((together >= apart - 1e-11 * apart.abs().clamp(min=1)).all())  # what is charged for rounding differs


def test_equal_networks_do_not_differ() -> None:
    """Apart, the difference of two equal networks is as uncertain as either of them."""
    network, low, high = _question(0.0, 1.0, 0)
    region, offsets = Region.boxes(low, high), torch.zeros(len(low), 2, dtype=torch.float64)
    lower = pair_bounds(network, region, paired_activations(network), RIGOROUS).lower(ROWS[:, :2], offsets)
    apart = bound_forms(box_bounds(network, region, RIGOROUS).path, network.output, ROWS[:, :2]).lower
    assert float(lower.min()) > -1e-10
    assert float(apart.max()) < -0.01


@pytest.mark.parametrize("seed", range(20))
def test_lines_enclose_differences_of_relus(seed: int) -> None:
    """Intervals of z, of z' and of their difference, all signs and degenerate ones among them."""
    generator = torch.Generator().manual_seed(seed)
    first, second = torch.randn(2, 2, 400, 50, generator=generator, dtype=torch.float64)
    points = torch.stack([first[0], first[0] + second[0] * second[1].abs()])  # z and z', for 400 pairs
    low, high = points.amin(2), points.amax(2)
    spread = torch.rand(2, 2, 400, generator=generator, dtype=torch.float64).mul(3).sub(1).clamp(min=0)
    low, high = low - spread[0], high + spread[1]
    d = points[1] - points[0]
    interval = Interval(low.reshape(1, -1), high.reshape(1, -1))
    lines, _, _ = pair_lines(interval, Interval(d.amin(1)[None], d.amax(1)[None]), RIGOROUS)
    assert lines.low is not None
    difference = points[1].clamp(min=0) - points[0].clamp(min=0)
    below, above = (slope[0][:, None] * d for slope in (lines.slope_below, lines.slope_above))
    assert bool((difference >= below + lines.low[0][:, None] - 1e-13).all())
    assert bool((difference <= above + lines.high[0][:, None] + 1e-13).all())
