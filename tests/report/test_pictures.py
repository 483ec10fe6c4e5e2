from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from relucert.errors import InputError
from relucert.report.pictures import limits, recorded, shape_of
from tests.nets import mlp

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


def test_the_shape_is_what_the_network_says() -> None:
    assert shape_of(mlp(48, 3)) == (3, 4, 4)
    wide = replace(mlp(48, 3), picture_shape=(1, 4, 12))
    assert shape_of(wide) == (1, 4, 12)
    point = torch.linspace(0, 1, 48)
    assert recorded(wide, point, point.flip(0), None)["picture"]["shape"] == [4, 12]
    assert recorded(wide, point, None, None) == {}
    with pytest.raises(InputError, match="can't draw"):
        shape_of(mlp(7, 3))
    assert recorded(mlp(7, 3), point[:7], point[:7], None) == {}
