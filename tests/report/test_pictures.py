from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import image as matplotlib_image
from numpy.typing import NDArray

import relucert
from relucert.errors import InputError
from relucert.network import Network, Reshape
from relucert.report import pictures
from relucert.report.pairs import Album
from relucert.report.pictures import limits, recorded, shape_of
from tests.nets import chain, mlp

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


RED, GREEN, BLUE, WHITE = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 1.0, 1.0)
FLAG = torch.tensor([[RED, GREEN, BLUE], [WHITE, RED, RED]]).movedim(-1, 0)  # (colours, rows, columns)


def coloured() -> Network:
    """Two scores of a picture of three colours, two rows and three columns."""
    return chain((3, 2, 3), Reshape((3, 2, 3), (18,)), mlp(18, 2).nodes[0].operation)


def decoded(address: str) -> NDArray[Any]:
    content = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    pixels: NDArray[Any] = matplotlib_image.imread(io.BytesIO(content), format="png")
    return pixels


@pytest.mark.parametrize("box", [(0.0, 1.0), (torch.zeros(3, 2, 3), torch.ones(3, 2, 3)), None])
def test_colours_are_those_of_the_image(box: Sequence[Any] | None) -> None:
    picture = recorded(coloured(), FLAG.flatten(), FLAG.flip(0), box)["picture"]
    assert picture["shape"] == [2, 3, 3]
    for key, expected in (("original", FLAG), ("adversarial", FLAG.flip(0))):
        pixels = decoded(pictures.address(picture["shape"], base64.b64decode(picture[key])))
        assert np.array_equal(pixels[..., :3], expected.movedim(0, -1).numpy())


def test_a_drawn_pair_has_the_colours_of_the_image(tmp_path: Path) -> None:
    network = coloured()
    (answer,) = relucert.attack(network, FLAG[None], box=(0, 1))
    assert answer.witness is not None
    Album(tmp_path, network, "0123456789abcdef", False).add(FLAG.flatten(), answer)
    (file,) = tmp_path.glob("*.png")
    pixels = matplotlib_image.imread(file)[..., :3]
    left = pixels[:, : pixels.shape[1] // 3].reshape(-1, 3)  # the image, before the perturbation
    for colour in (RED, GREEN, BLUE):
        assert (np.abs(left - colour).max(1) < 0.01).sum() > 100
