"""`relucert.lipschitz`: constants that hold between points of the region, and questions that are refused."""

import dataclasses
import math
import re
from typing import Any

import pytest
import torch

import relucert
from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.common.names import LipschitzName
from relucert.errors import InputError
from relucert.network import Linear, Relu
from tests.method_tables import LIPSCHITZ, SHELLED
from tests.nets import NETWORKS, NORMS, centres, chain, mlp


@pytest.mark.parametrize("method", LIPSCHITZ)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_no_two_points_of_the_ball_are_further_apart(name: str, norm: float, method: LipschitzName) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    points = centres(network, 2)
    prop = Property.margins(torch.tensor([0, 1]), torch.tensor([[1, 2], [0, 2]]), network.classes)
    answers = relucert.lipschitz(network, Region.around(points, 0.2, norm), prop, method=method)
    generator = torch.Generator().manual_seed(0)
    for centre, row, answer in zip(points, prop.rows, answers, strict=True):
        assert (answer.norm, answer.method, answer.radius, answer.proven) == (norm, method, 0.2, True)
        one, other = (Norm(norm).sample(centre, 0.2, 500, generator) for _ in range(2))
        change = ((network(one) - network(other)) @ row.T).abs()
        steepest = (change / Norm(norm).distance(one, other)[:, None]).amax(0)
        assert all(steep <= value for steep, value in zip(steepest.tolist(), answer.values, strict=True))


@pytest.mark.parametrize("method", SHELLED)
def test_a_smaller_ball_is_no_steeper(method: LipschitzName) -> None:
    network, prop = NETWORKS["three layers"](), Property.margins(torch.tensor([0] * 3), torch.tensor([[1]] * 3), 4)
    (small, medium, large) = relucert.lipschitz(
        network, Region.around(centres(network, 1).expand(3, 6), torch.tensor([0.01, 0.2, 1.0]), 2), prop, method=method
    )
    assert small.values < medium.values < large.values


def test_only_rigorous_constants_are_proven() -> None:
    prop = Property.margins(torch.tensor([0]), torch.tensor([[1]]), 4)
    question = (mlp(6, 8, 4), Region.around(torch.ones(1, 6), 0.2, 1), prop)
    (proven,), (guessed,) = (relucert.lipschitz(*question, arithmetic=name) for name in ("rigorous", "float"))
    assert (proven.proven, guessed.proven) == (True, False)
    assert guessed.values < proven.values < (guessed.values[0] * (1 + 1e-9),)
    with pytest.raises(dataclasses.FrozenInstanceError):
        proven.values = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "fast-lin"}, f"unknown method of Lipschitz constants 'fast-lin'; known are {', '.join(LIPSCHITZ)}"),
        ({"arithmetic": "exact"}, "unknown arithmetic"),
        ({"region": Region.around(torch.ones(1, 5), 0.2, 1)}, "5 coordinates"),
        ({"region": Region.around(torch.ones(1, 6), 0.0, 1)}, "radius > 0"),
        ({"region": Region(torch.ones(1, 6), torch.tensor([torch.inf]), Norm(1))}, "finite radius"),
        ({"region": Region.around(torch.ones(2, 6), 0.1, 1)}, "2 regions need"),
        ({"prop": Property.margins(torch.tensor([0]), torch.tensor([[4]]), 5)}, "not (1, 1, 5)"),
        ({"prop": Property(torch.zeros(1, 0, 4), torch.zeros(1, 0))}, "one row at least"),
        ({"prop": Property(torch.full((1, 1, 4), torch.nan), torch.zeros(1, 1))}, "NaN"),
        ({"prop": None}, "relucert.Property"),
    ],
)
def test_bad_questions_are_refused(change: dict[str, Any], message: str) -> None:
    region, prop = Region.around(torch.ones(1, 6), 0.2, 1), Property.margins(torch.tensor([0]), torch.tensor([[1]]), 4)
    with pytest.raises(InputError, match=re.escape(message)):
        relucert.lipschitz(mlp(6, 8, 4), **{"region": region, "prop": prop, **change})


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("method", LIPSCHITZ)
def test_what_overflows_has_no_finite_constant(method: LipschitzName, norm: float) -> None:
    steep = Linear(torch.full((2, 2), 1e200, dtype=torch.float64), torch.ones(2, dtype=torch.float64))
    last = Linear(torch.tensor([[1e200, 0.0], [0.0, 1.0]], dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
    network = chain((2,), steep, Relu(), last)
    question = (Region.around(torch.ones(1, 2), 0.2, norm), Property.margins(torch.tensor([0]), torch.tensor([[1]]), 2))
    assert relucert.lipschitz(network, *question, method=method)[0].values == (math.inf,)
