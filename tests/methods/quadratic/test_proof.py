"""Certificates hold at points, margins hold whatever the dual variables are, and spoilt numbers prove nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.relaxers import CROWN
from relucert.methods.quadratic import composed as composed_module
from relucert.methods.quadratic.composed import Composed
from relucert.methods.quadratic.dual import DualPoint, Weights
from relucert.methods.quadratic.feasible import is_composed
from relucert.methods.quadratic.linearised_network import LinearisedNetwork
from relucert.methods.quadratic.proof import RigorousLinearisation, prove_margins
from relucert.network import find_inference
from tests.methods.quadratic.linearised import (
    NAMES,
    composed_for,
    is_feasible,
    joint_for,
    linearise,
    random_point,
    true_vectors,
)
from tests.nets import NORMS
from tests.regions import LIMITS, samples


def largest_violation(linearised: LinearisedNetwork, weights: Weights, count: int, seed: int) -> float:
    """By how much, relatively, `sum P dz^2` exceeds `D v^2` at the worst of some points and of free vectors."""
    generator = torch.Generator().manual_seed(seed)
    inputs, errors, _ = true_vectors(linearised, samples(linearised.region, 0, count, generator))
    free = torch.randn(count, len(linearised.radii), generator=generator).double()
    loose = {value: torch.randn(count, part.shape[1], generator=generator).double() for value, part in errors.items()}
    worst = -torch.inf
    for vectors, parts in ((inputs, errors), (free, loose)):
        moved = linearised.forward(vectors, parts)
        left = sum((weights.deviations[value] * part.square()).sum(1) for value, part in moved.items())
        right = (weights.inputs * vectors.square()).sum(1)
        right = right + sum((weight * parts[value].square()).sum(1) for value, weight in weights.errors.items())
        worst = max(worst, float(((left - right) / (left + right).clamp(min=1e-30)).max()))
    return worst


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled
def test_no_vector_violates_a_certificate(name: str, norm: float) -> None:
    _, linearised, _ = linearise(name, norm)
    composed, own = composed_for(linearised, 1), joint_for(linearised, 2)
    assert is_composed(linearised, composed)
    assert is_feasible(linearised, own)
    assert is_feasible(linearised, composed.weights) or not all(map(len, linearised.neurons.values()))
    assert largest_violation(linearised, composed.weights, 300, 3) <= 1e-12
    assert largest_violation(linearised, own, 300, 4) <= 1e-12


def exact_norms(linearised: LinearisedNetwork, composed: Composed) -> Composed:
    """The same with norms that are no larger than needed, as far down as the last layer alone decides."""
    from relucert.methods.quadratic.composed import norm, source_columns

    last = linearised.network.preactivations[-1]
    roots = torch.zeros_like(linearised.stable[last])
    roots[linearised.neurons[last].index] = composed.weights.deviations[last][0].sqrt()
    norms = dict(composed.norms)
    for source in linearised.passes.sources(last):
        columns = source_columns(linearised, source, {})
        norms[last, source] = norm(linearised, last, source, roots, columns, torch.Generator().manual_seed(9))
    return replace(composed, norms=norms)


@pytest.mark.parametrize("name", ["three layers", "residual", "convolutional", "image residual"])
def test_norms_too_small_are_refused(name: str) -> None:
    _, linearised, _ = linearise(name, 2.0)
    composed = composed_for(linearised, 1)
    tight = exact_norms(linearised, composed)
    last = linearised.network.preactivations[-1]
    for source in linearised.passes.sources(last):
        for factor, fine in ((1.0001, True), (0.999, False)):
            norms = {**composed.norms, (last, source): tight.norms[last, source] * factor}
            assert is_composed(linearised, replace(composed, norms=norms)) == fine


@cache
def certificates(name: str) -> tuple[LinearisedNetwork, Weights, Composed]:
    """A region, and certificates of it with random weights, which nothing changes."""
    _, linearised, _ = linearise(name, float("inf"))
    return linearised, joint_for(linearised, 2), composed_for(linearised, 1)


def spoilt(weights: Weights, part: str, number: float) -> Weights:
    def first(numbers: Tensor) -> Tensor:
        return numbers.clone().index_fill_(1, torch.tensor([0]), number)

    if part == "inputs":
        return replace(weights, inputs=first(weights.inputs))
    layers = weights.deviations if part == "deviations" else weights.errors
    value = min(value for value, numbers in layers.items() if numbers.numel())
    changed = {**layers, value: first(layers[value])}
    return replace(weights, deviations=changed) if part == "deviations" else replace(weights, errors=changed)


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -1e-12, -1.0])
@pytest.mark.parametrize("part", ["deviations", "errors", "inputs"])
@pytest.mark.parametrize("name", ["three layers", "residual", "convolutional"])
def test_weights_that_are_no_numbers_are_refused(name: str, part: str, number: float) -> None:
    linearised, own, composed = certificates(name)
    assert not is_feasible(linearised, spoilt(own, part, number))
    assert not is_composed(linearised, replace(composed, weights=spoilt(composed.weights, part, number)))


@pytest.mark.parametrize("name", ["three layers", "residual", "convolutional"])
def test_weights_too_small_or_too_large_are_refused(name: str) -> None:
    linearised, own, composed = certificates(name)
    assert is_feasible(linearised, own)
    assert not is_feasible(linearised, own.inflated(torch.tensor([0.98]).double()))
    raised = {value: 1.02 * part for value, part in own.deviations.items()}
    assert not is_feasible(linearised, replace(own, deviations=raised))
    assert is_composed(linearised, composed)
    half = composed.weights.inflated(torch.tensor([0.5]).double())
    assert not is_composed(linearised, replace(composed, weights=half))
    shares = {pair: 1.01 * share for pair, share in composed.shares.items()}
    assert not is_composed(linearised, replace(composed, shares=shares))


@pytest.mark.parametrize("unit", [1.0, 2.0**-500, 2.0**-560])
def test_no_product_that_underflows_makes_a_norm_enough(unit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms of weights without what ReLUs carry on are too small, in whatever unit weights are counted."""
    _, linearised, _ = linearise("five layers", 2.0, radius=2.0)
    with monkeypatch.context() as patch:
        patch.setattr(composed_module, "carried", lambda neurons, total, errors: torch.zeros_like(errors))
        short = composed_for(linearised, 1)
    norms = {pair: norm * unit for pair, norm in short.norms.items()}
    weights = short.weights.times(torch.tensor([unit], dtype=torch.float64))
    assert not is_composed(linearised, replace(short, weights=weights, norms=norms))


@pytest.mark.parametrize("limits", [None, *LIMITS])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled
def test_margins_hold_whatever_the_dual_variables_are(name: str, norm: float, limits: str | None) -> None:
    network, linearised, bounds = linearise(name, norm, limits)
    generator = torch.Generator().manual_seed(6)
    forms, offsets = (
        torch.randn(3, network.classes, generator=generator).double(),
        torch.tensor([0.0, -0.5, 2.0]).double(),
    )
    points = samples(linearised.region, 0, 400, generator)
    values = (network(points) @ forms.T + offsets).amin(0)
    rigorous, weights = RigorousLinearisation.of(linearised, bounds), joint_for(linearised, 2)
    assert is_feasible(linearised, weights)
    best = torch.full((3,), -torch.inf).double()
    for size in (0.0, 1e-3, 0.1, 1.0, 1e3):
        for factor in (1e-6, 1e-2, 1.0):
            point = random_point(linearised, 3, size, generator)
            scaled = weights.times(torch.tensor([factor]).double())
            found = prove_margins(rigorous, forms, offsets, scaled, point).bounds
            assert bool((found <= values).all())
            best = torch.maximum(best, found)
    assert bool((best > -torch.inf).all())


@pytest.mark.parametrize("name", ["three layers", "convolutional", "residual"])
def test_noise_of_an_evaluation_costs_a_little(name: str) -> None:
    network, linearised, _ = linearise(name, float("inf"))
    noisy = network.cast(torch.float32).evaluated_in(find_inference("float32")).cast(torch.float64)
    wide = hidden_bounds(noisy, linearised.region, CROWN, RIGOROUS)
    other = LinearisedNetwork.of(noisy, linearised.region, wide)
    generator = torch.Generator().manual_seed(7)
    forms, offsets = torch.randn(2, network.classes, generator=generator).double(), torch.zeros(2).double()
    weights, point = joint_for(other, 2), random_point(other, 2, 0.0, generator)
    exact = prove_margins(
        RigorousLinearisation.of(LinearisedNetwork.of(network, linearised.region, wide), wide),
        forms,
        offsets,
        weights,
        point,
    ).bounds
    found = prove_margins(RigorousLinearisation.of(other, wide), forms, offsets, weights, point).bounds
    assert bool((found < exact).all())
    assert bool((found > exact - 0.01 * (1 + exact.abs())).all())


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_spoilt_dual_variables_prove_nothing(number: float) -> None:
    network, linearised, bounds = linearise("three layers", float("inf"))
    forms, offsets = torch.ones(1, network.classes).double(), torch.zeros(1).double()
    rigorous, weights = RigorousLinearisation.of(linearised, bounds), joint_for(linearised, 2)
    fine = random_point(linearised, 1, 0.0, torch.Generator())
    assert float(prove_margins(rigorous, forms, offsets, weights, fine).bounds) > -torch.inf
    value = min(value for value, part in fine.errors.items() if part.numel())

    def spoil(part: Tensor) -> Tensor:
        return part.clone().index_fill_(1, torch.tensor([0]), number)

    points = (
        DualPoint({**fine.shares, value: spoil(fine.shares[value])}, fine.inputs, fine.errors),
        DualPoint(fine.shares, spoil(fine.inputs), fine.errors),
        DualPoint(fine.shares, fine.inputs, {**fine.errors, value: spoil(fine.errors[value])}),
    )
    for point in points:
        assert float(prove_margins(rigorous, forms, offsets, weights, point).bounds) == -torch.inf
