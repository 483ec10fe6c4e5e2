"""The dual bound's gradient is that of its value, and an ascent only rises where it says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from relucert.methods.quadratic.dual import DualPoint, Weights, evaluate, gradient
from tests.methods.quadratic.linearised import joint_for, linearise, random_point

STEP = 1e-6


@pytest.mark.parametrize("norm", [2.0, 3.0, float("inf")])
@pytest.mark.parametrize("name", ["three layers", "residual", "image residual", "rectified input"])
@pytest.mark.sampled
def test_gradients_are_those_of_differences(name: str, norm: float) -> None:
    network, linearised, _ = linearise(name, norm)
    generator = torch.Generator().manual_seed(5)
    forms = torch.randn(2, network.classes, generator=generator).double()
    heights, weights = torch.zeros(2).double(), joint_for(linearised, 1).map(lambda part: part.repeat(2, 1))
    point = random_point(linearised, 2, 0.1, generator)
    slope = gradient(linearised, weights, point, evaluate(linearised, forms, heights, weights, point))

    def bounds(moved: DualPoint, by: Weights = weights) -> Tensor:
        return evaluate(linearised, forms, heights, by, moved).bounds

    def check(part: Tensor, derivative: Tensor, change: Callable[[Tensor], Tensor]) -> None:
        way = torch.randn(part.shape, generator=generator).double()
        rise = (change(way * STEP) - change(-way * STEP)) / (2 * STEP)
        torch.testing.assert_close(rise, (way * derivative).sum(1), rtol=1e-3, atol=1e-4)

    check(point.inputs, slope.point.inputs, lambda by: bounds(DualPoint(point.shares, point.inputs + by, point.errors)))
    for value in linearised.neurons:
        check(
            point.shares[value], slope.point.shares[value],
            lambda by, value=value: bounds(  # type: ignore[misc]
                DualPoint({**point.shares, value: point.shares[value] + by}, point.inputs, point.errors)
            ),
        )  # fmt: skip
        check(
            weights.deviations[value], slope.weights.deviations[value],
            lambda by, value=value: bounds(point, Weights(  # type: ignore[misc]
                {**weights.deviations, value: weights.deviations[value] * by.exp()}, weights.errors, weights.inputs
            )),
        )  # fmt: skip
    for value in point.errors:
        check(
            point.errors[value], slope.point.errors[value],
            lambda by, value=value: bounds(  # type: ignore[misc]
                DualPoint(point.shares, point.inputs, {**point.errors, value: point.errors[value] + by})
            ),
        )  # fmt: skip
        check(
            weights.errors[value], slope.weights.errors[value],
            lambda by, value=value: bounds(point, Weights(  # type: ignore[misc]
                weights.deviations, {**weights.errors, value: weights.errors[value] * by.exp()}, weights.inputs
            )),
        )  # fmt: skip
