"""Cuts at the inputs: verdicts agree with mixed-integer programs, and nothing false is proven."""

import math
import time

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.box import Box
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.bounding.boxes import suits_cuts
from relucert.branch_and_bound.box_tree import BoxProver
from relucert.branch_and_bound.slope_ascent import SlopeAscent
from relucert.network import Network, Relu, Reshape, Sigmoid
from relucert.query.problem import Problem
from tests.milp import nearest
from tests.nets import centres, chain, convolution_of, linear_of, mlp, residual

CASES = [(mlp(3, 8, 8, 3, seed=seed), seed) for seed in (0, 1, 2, 5)] + [(residual(seed), seed) for seed in range(2)]


def attempt(network: Network, prop: Property, centre: Tensor, radius: float) -> tuple[bool, str | None, list[Tensor]]:
    """Whether it is proven, why not, and the violations that the search came upon."""
    points: list[Tensor] = []

    def violates(point: Tensor) -> bool:
        points.append(point)
        return True

    problem = Problem(network, Region.around(centre[None], radius, "inf"), prop)
    prover = BoxProver(problem, violates, time.monotonic() + 20)
    with torch.no_grad():
        proven, failure = prover.run()
    return proven, failure, points


@pytest.mark.parametrize(("network", "seed"), CASES)
def test_agrees_with_a_mixed_integer_program(network: Network, seed: int) -> None:
    centre = centres(network, 1)[0].double()
    order = network.cast(torch.float64)(centre[None])[0].argsort(descending=True).tolist()
    answer = nearest(network, centre, order[0], order[1], math.inf, 5.0)
    assert answer is not None
    prop = Property.margins(torch.tensor(order[:1]), torch.tensor([order[1:2]]), network.classes)
    proven, failure, _ = attempt(network, prop, centre, 0.98 * answer[0])
    assert proven
    assert failure is None
    proven, failure, points = attempt(network, prop, centre, 1.02 * answer[0])
    assert not proven
    assert failure is None
    margin = prop.values(network.cast(torch.float64)(points[-1][None]))
    assert float(margin.min()) <= 0
    assert float((points[-1] - centre).abs().max()) <= 1.02 * answer[0] * (1 + 1e-12)


def test_all_rows_are_proven_and_not_only_the_first() -> None:
    network = mlp(3, 8, 8, 4, seed=7)
    centre = centres(network, 1)[0].double()
    order = network.cast(torch.float64)(centre[None])[0].argsort(descending=True).tolist()
    distances = []
    for rival in order[1:]:
        answer = nearest(network, centre, order[0], rival, math.inf, 5.0)
        distances.append(math.inf if answer is None else answer[0])
    prop = Property.margins(torch.tensor(order[:1]), torch.tensor([order[1:]]), network.classes)
    assert attempt(network, prop, centre, 0.98 * min(distances))[0]
    assert not attempt(network, prop, centre, 1.02 * min(distances))[0]


def test_slopes_that_lie_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ascent only proposes: whatever it says, a violation in the box stays unproven."""
    network = mlp(3, 8, 8, 3, seed=1)
    centre = centres(network, 1)[0].double()
    order = network.cast(torch.float64)(centre[None])[0].argsort(descending=True).tolist()
    answer = nearest(network, centre, order[0], order[1], math.inf, 5.0)
    assert answer is not None
    generator = torch.Generator().manual_seed(0)
    honest = SlopeAscent.run

    def faulty(ascent: SlopeAscent) -> None:
        honest(ascent)
        ascent.highest = torch.full_like(ascent.highest, torch.inf)
        for table in ascent.slopes.values():
            table.copy_(3 * torch.rand(table.shape, generator=generator, dtype=table.dtype) - 1)
            table[..., 0] = torch.nan

    monkeypatch.setattr(SlopeAscent, "run", faulty)
    prop = Property.margins(torch.tensor(order[:1]), torch.tensor([order[1:2]]), network.classes)
    assert not attempt(network, prop, centre, 1.02 * answer[0])[0]


def test_a_violation_that_nobody_believes_is_never_proven_away() -> None:
    network = mlp(2, 4, 2, seed=3)
    centre = centres(network, 1)[0].double()
    order = network.cast(torch.float64)(centre[None])[0].argsort(descending=True).tolist()
    prop = Property.margins(torch.tensor(order[1:]), torch.tensor([order[:1]]), network.classes)
    problem = Problem(network, Region.around(centre[None], 1e-3, "inf"), prop)
    prover = BoxProver(problem, lambda point: False, time.monotonic() + 1)
    with torch.no_grad():
        proven, failure = prover.run()
    assert not proven
    assert failure is not None


@pytest.mark.parametrize("activation", [Relu(), Sigmoid()], ids=["relu", "sigmoid"])
def test_images_made_from_few_inputs(activation: Relu | Sigmoid) -> None:
    """A generator of images: its convolutions have so many neurons that zonotopes bound boxes."""
    generator, double = torch.Generator().manual_seed(4), torch.float64
    network = chain(
        (3,),
        linear_of(3, 2 * 8 * 8, generator, torch.float32),
        Reshape((128,), (2, 8, 8)),
        activation,
        convolution_of(generator, (4, 2, 3, 3), (8, 8)),
        activation,
        convolution_of(generator, (2, 4, 3, 3), (6, 6), stride=(2, 2)),
        activation,
        Reshape((2, 2, 2), (8,)),
        linear_of(8, 1, generator, torch.float32),
    )
    assert not network.suits_forward
    centre, row = torch.zeros(3, dtype=double), torch.ones(1, 1, 1, dtype=double)
    inputs = 0.5 * (2 * torch.rand(20_000, 3, generator=generator, dtype=double) - 1)
    outputs = network.cast(double)(torch.cat([inputs, (2 * inputs).round() / 2]))
    least, spread = float(outputs.min()), float(outputs.max() - outputs.min())
    proven, failure, _ = attempt(network, Property(row, torch.full((1, 1), 0.03 * spread - least)), centre, 0.5)
    assert proven
    assert failure is None
    proven, failure, points = attempt(network, Property(row, torch.full((1, 1), -0.03 * spread - least)), centre, 0.5)
    assert not proven
    assert failure is None
    assert float(network.cast(double)(points[-1][None])) <= least + 0.03 * spread


def test_few_inputs_of_a_box_are_cut_and_others_are_not() -> None:
    few = torch.zeros(1, 5)
    assert suits_cuts(mlp(5, 50, 50, 5), Region.around(few, 1.0, "inf"))
    assert not suits_cuts(mlp(5, 6, 5), Region.around(few, 1.0, "inf"))
    assert not suits_cuts(mlp(5, 50, 50, 5), Region.around(few, 1.0, "2"))
    wide, many = mlp(784, 1000, 10), torch.zeros(1, 784)
    assert not suits_cuts(wide, Region.around(many, 1.0, "inf"))
    fixed = torch.zeros(784, dtype=torch.float64)
    fixed[3] = 1
    assert suits_cuts(wide, Region.around(many, 1.0, "inf", Box(torch.zeros_like(fixed), fixed)))
