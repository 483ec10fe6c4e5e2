"""Layered certificates are feasible whatever their plan is, their gradient is one, and their ascent gains."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from relucert.methods.passes import THE_INPUT
from relucert.methods.quadratic import layered, solve
from relucert.methods.quadratic.ascent import VariableLayout
from relucert.methods.quadratic.composed import Composed, compose
from relucert.methods.quadratic.dual import evaluate, gradient
from relucert.methods.quadratic.feasible import is_composed
from relucert.methods.quadratic.layered import LayeredAscent, PerNeuronPlan
from relucert.methods.quadratic.linearised_network import LinearisedNetwork
from relucert.methods.quadratic.solve import CertificateSolver
from tests.methods.quadratic.linearised import NAMES, composed_for, is_feasible, linearise, random_point
from tests.methods.quadratic.test_proof import largest_violation
from tests.nets import NORMS


def random_plan(linearised: LinearisedNetwork, seed: int) -> PerNeuronPlan:
    generator = torch.Generator().manual_seed(seed)
    plan = PerNeuronPlan.of(linearised, composed_for(linearised, seed))
    for part in plan.tensors():
        part.add_(torch.randn(part.shape, generator=generator, dtype=part.dtype))
    return plan


def layered_for(linearised: LinearisedNetwork, seed: int) -> Composed:
    return compose(linearised, linearised.quick(), random_plan(linearised, seed))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled
def test_no_vector_violates_a_layered_certificate(name: str, norm: float) -> None:
    _, linearised, _ = linearise(name, norm)
    certificate = layered_for(linearised, 1)
    assert is_composed(linearised, certificate)
    assert is_feasible(linearised, certificate.weights) or not all(map(len, linearised.neurons.values()))
    assert largest_violation(linearised, certificate.weights, 300, 3) <= 1e-12
    assert (certificate.weights.inputs.shape[1] > 1) == (norm > 2)


@dataclass(frozen=True, eq=False)
class Spoilt:
    """A plan with other profiles."""

    profiles: dict[int, Tensor]
    weights = PerNeuronPlan.weights


@pytest.mark.parametrize("number", [torch.nan, torch.inf, 0.0, -1.0, 0.9, 1.1])
@pytest.mark.parametrize("name", ["three layers", "residual", "convolutional"])
def test_profiles_that_are_not_those_of_the_norms_are_refused(name: str, number: float) -> None:
    _, linearised, _ = linearise(name, float("inf"))
    certificate = layered_for(linearised, 1)
    profiles = {source: number * part for source, part in certificate.plan.profiles.items()}
    assert is_composed(linearised, replace(certificate, plan=Spoilt(certificate.plan.profiles)))  # type: ignore[arg-type]
    assert not is_composed(linearised, replace(certificate, plan=Spoilt(profiles)))


@pytest.mark.parametrize(("name", "norm"), [("five layers", 2.0), ("residual", float("inf"))])
def test_the_gradient_is_that_of_the_bounds(name: str, norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once norms have settled, so that one leading vector is all of the gradient."""
    monkeypatch.setattr(layered, "SHARPNESS", 1e6)
    network, linearised, _ = linearise(name, norm)
    generator = torch.Generator().manual_seed(2)
    forms = torch.randn(3, network.classes, generator=generator, dtype=torch.float64)
    layout, point = VariableLayout(linearised, own=False), random_point(linearised, 3, 0.1, generator)
    table = torch.cat([*point.shares.values(), point.inputs, *point.errors.values(), torch.zeros(3, 1)], 1).double()
    ascent = LayeredAscent(layout, forms, torch.zeros(3).double(), table, random_plan(linearised, 3))

    def evaluated(iterations: int = 20) -> tuple[Tensor, list[Tensor]]:
        for _ in range(iterations):
            layers, weights = ascent.layers()
        found = evaluate(linearised, forms, ascent.heights, weights.times(torch.ones(3).double()), layout.point(table))
        slope = gradient(linearised, weights.times(torch.ones(3).double()), layout.point(table), found)
        return found.bounds.sum(), ascent.plan_gradient(layers, weights, slope.shared_weights)

    _, slopes = evaluated(300)
    for part, slope in list(zip(ascent.plan.tensors(), slopes, strict=True))[::2]:
        if not len(part):
            continue
        place, step = int(slope.abs().argmax()), 1e-5
        part[place] += step
        above, _ = evaluated()
        part[place] -= 2 * step
        below, _ = evaluated()
        part[place] += step
        assert float(slope[place]) == pytest.approx(float(above - below) / (2 * step), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(("name", "norm"), [("five layers", 2.0), ("convolutional", float("inf"))])
def test_weights_that_climb_bound_more(name: str, norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what weights that stay come to; and what is found is proven to be feasible."""
    monkeypatch.setattr(solve, "STEPS", 40)
    monkeypatch.setattr(solve, "STEPS_OWN", 80)
    network, linearised, _ = linearise(name, norm)
    forms = torch.eye(network.classes, dtype=torch.float64)[:2]
    heights = forms @ linearised.values[network.output][0]
    solver, every = CertificateSolver(linearised, forms, heights), torch.arange(2)
    endless = torch.full((2,), torch.inf)
    solver.start()
    solver.ascend(every, endless)
    before = solver.bounds.clone()
    solver.ascend_layered(every, endless)
    after = solver.bounds
    assert bool((after >= before).all())
    assert bool((after > before + 0.02 * before.abs()).any())
    for solution in solver.solutions:
        assert solution is not None
        assert isinstance(solution.certificate, Composed)
        assert is_composed(linearised, solution.certificate)
    assert any(solution.certificate is not solver.composed for solution in solver.solutions if solution)


def test_only_norms_beyond_2_have_a_profile_of_inputs() -> None:
    for norm in NORMS:
        _, linearised, _ = linearise("three layers", norm)
        assert (THE_INPUT in PerNeuronPlan.of(linearised, composed_for(linearised, 1)).sources) == (norm > 2)
