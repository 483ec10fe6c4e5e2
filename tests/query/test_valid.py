from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from relucert.common.valid import valid_inputs


@pytest.mark.parametrize(
    ("box", "words"),
    [
        (None, "every input valid"),
        ((-0.5, 0.5), "pixels from -0.5 to 0.5"),
        ([-0.5, 0.5], "pixels from -0.5 to 0.5"),
        ((0, 1), "pixels from 0 to 1"),
        ((0, 1e-5), "pixels from 0 to 1e-05"),
        ((-math.inf, 0.5), "pixels from -inf to 0.5"),
        ((np.float32(0.1), np.float64(0.9)), "pixels from 0.1 to 0.9"),
        ((np.array(0.0), torch.tensor(255.0)), "pixels from 0 to 255"),
        (np.array([0.0, 1.0]), "pixels from 0 to 1"),
        (torch.tensor([0.0, 1.0]), "pixels from 0 to 1"),
        (([0.0, 0.0], [1.0, 2.0]), "valid range given per coordinate"),
        (((0.0,), (1.0,)), "valid range given per coordinate"),
        ((np.zeros(3), np.ones(3)), "valid range given per coordinate"),
        ((torch.zeros(1, 2, 2), torch.ones(1, 2, 2)), "valid range given per coordinate"),
        ((0.0, torch.ones(4)), "valid range given per coordinate"),
        (torch.zeros(2, 4), "valid range given per coordinate"),
    ],
)
def test_words(box: Sequence[Any] | None, words: str) -> None:
    assert valid_inputs(box) == words


def test_the_words_need_no_torch() -> None:
    """The command line says them before it loads anything."""
    code = "import sys, relucert.common.valid; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
