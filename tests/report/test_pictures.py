from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from relucert.report.pictures import limits

IMAGE, WITNESS = torch.tensor([-1.0, 0.0, 3.0]), torch.tensor([-1.0, 4.0, 3.0])


@pytest.mark.parametrize(
    ("box", "low", "high"),
    [
        (None, [-1.0], [4.0]),
        ((-2, 5), [-2.0], [5.0]),
        ((-math.inf, 5.0), [-1.0], [5.0]),
        (([-1.0, 0.0, 3.0], [2.0, 4.0, math.inf]), [-1.0, 0.0, 3.0], [2.0, 4.0, 4.0]),
        ((torch.tensor([[-1.0, 0.0, 3.0]]), torch.tensor([[2.0, 4.0, 3.0]])), [-1.0, 0.0, 3.0], [2.0, 4.0, 4.0]),
    ],
)
def test_black_and_white(box: Sequence[Any] | None, low: list[float], high: list[float]) -> None:
    black, white = limits(IMAGE, WITNESS, box)
    assert (black.flatten().tolist(), white.flatten().tolist()) == (low, high)
    assert bool(((WITNESS.double() - black) / (white - black)).isfinite().all())
