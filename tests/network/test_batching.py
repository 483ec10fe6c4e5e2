"""How much memory a question needs, and what an error says about it."""

import re

import pytest
import torch

from relucert.errors import BudgetError
from relucert.network import Convolution, Layer, Linear, Network, Relu, Reshape
from relucert.network.batching import batch_size, question_bytes
from tests.nets import chain, mlp


def images(size: int = 64) -> Network:
    """A convolution of large images, whose weights do not matter."""
    layers: list[Layer] = [
        Convolution(torch.zeros(16, 3, 3, 3), torch.zeros(16), (size, size), (1, 1), (1, 1, 1, 1), (1, 1), 1),
        Relu(),
        Reshape((16, size, size), (16 * size * size,)),
        Linear(torch.zeros(100, 16 * size * size), torch.zeros(100)),
    ]
    return chain((3, size, size), *layers)


def test_an_image_that_does_not_fit_says_what_would() -> None:
    network = images()
    with pytest.raises(BudgetError, match=r"about 0.*GB for its bounds, and the memory budget is 0.01 GB") as caught:
        batch_size(network, 99, 10**7, "fast-lin")
    message = str(caught.value)
    assert "\n" not in message
    named = re.search(r"memory=(\d+) \* 2\*\*20, or --memory (\d+)M", message)
    assert named is not None
    assert named[1] == named[2]
    assert batch_size(network, 99, int(named[1]) * 2**20, "fast-lin") == 1
    assert "; the method 'interval' needs about 0.02 GB" in message
    with pytest.raises(BudgetError) as without:
        batch_size(network, 99, 10**6, "interval")
    assert "method" not in str(without.value)


def test_intervals_need_a_few_values_whatever_the_rows() -> None:
    network = images()
    assert question_bytes(network, 99, "interval") < 400 * sum(network.sizes)
    assert question_bytes(network, 99, "interval") - question_bytes(network, 1, "interval") < 10**6
    assert question_bytes(network, 99, "fast-lin") > 10 * question_bytes(network, 99, "interval")


def test_small_networks_go_in_large_batches() -> None:
    assert batch_size(mlp(6, 10, 4), 3, 2**30, "interval") == 512
