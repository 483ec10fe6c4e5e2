"""Random small networks at radii just below and just above the exact distance: no verdict is wrong."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import relucert
from relucert.arithmetic.norm import Norm
from relucert.network import Network
from tests.adversaries import nearest_distance
from tests.milp import nearest
from tests.nets import mlp, residual, tiny_image

BATCH = 20
BATCHES = 100
NEAR = 1e-3
FARTHEST = 4.0
FAMILIES: list[Callable[[int], Network]] = [
    lambda seed: mlp(5, 8, 3, seed=seed),
    lambda seed: mlp(4, 6, 6, 3, seed=seed),
    lambda seed: residual(seed),
    lambda seed: tiny_image(seed=seed),
]


def distance(network: Network, centre: Tensor, order: list[int], norm: float, box: tuple[float, float] | None) -> float:
    """How far the nearest violation by the runner-up is: exact for p = inf and 1, for p = 2 at least what an attack
    finds. Infinite where the solver breaks down."""
    if norm == 2:
        return nearest_distance(network, centre, order[0], Norm(norm))
    try:
        answer = nearest(network, centre, order[0], order[1], norm, FARTHEST, box)
    except ArithmeticError:
        return math.inf
    return math.inf if answer is None else answer[0]


@pytest.mark.parametrize("batch", [0, *(pytest.param(batch, marks=pytest.mark.slow) for batch in range(1, BATCHES))])
def test_no_verdict_is_wrong(batch: int) -> None:
    decided = asked = 0
    for number in range(batch * BATCH, (batch + 1) * BATCH):
        network = FAMILIES[number % len(FAMILIES)](number)
        generator = torch.Generator().manual_seed(number)
        norm = (math.inf, 1.0, 2.0)[number // len(FAMILIES) % 3]
        box = (-1.0, 1.0) if norm != 2 and number % 2 else None
        centre = 2 * torch.rand(network.sizes[0], generator=generator, dtype=torch.float64) - 1
        centre = centre.float().double()
        order = network.cast(torch.float64)(centre[None])[0].argsort(descending=True).tolist()
        farthest = distance(network, centre, order, norm, box)
        target = "untargeted" if norm == 2 else "runner-up"
        for radius, wrong in ((farthest * (1 - NEAR), "violated"), (farthest * (1 + NEAR), "holds")):
            if not 1e-3 < radius < FARTHEST / 2:
                continue
            (verdict,) = relucert.robust_at(
                network, centre[None], radius=radius, norm=norm, target=target, box=box, time_limit=10
            )
            if norm != 2 or wrong == "holds":  # an attack's distance is no lower bound
                assert verdict.status != wrong, (number, radius, verdict)
            asked, decided = asked + 1, decided + (verdict.status != "unknown")
    assert decided >= 0.9 * asked, (decided, asked)
    assert asked > BATCH / 2
