"""Against the paper's own network and published numbers; skipped where the network is not at hand."""

from pathlib import Path

import numpy as np
import pytest
import torch

import relucert
from relucert.data import bundled
from relucert.network import Linear, Network, Relu
from tests.nets import chain

MODEL = Path(__file__).parents[2] / "shared" / "models" / "paper-mnist-2x20.npz"
AVERAGES = {
    ("inf", "runner-up"): 0.019086,
    ("inf", "least-likely"): 0.044781,
    ("2", "runner-up"): 0.38812,
    ("2", "least-likely"): 0.91063,
    ("1", "runner-up"): 2.38142,
    ("1", "least-likely"): 5.73289,
}
PUBLISHED_FAST_LIP = {
    ("inf", "runner-up"): 0.0167,
    ("inf", "least-likely"): 0.0398,
    ("2", "runner-up"): 0.3677,
    ("2", "least-likely"): 0.8946,
    ("1", "runner-up"): 2.8086,
    ("1", "least-likely"): 7.3879,
}
PUBLISHED_CLEVER = {
    ("inf", "runner-up"): 0.0235,
    ("inf", "least-likely"): 0.0662,
    ("2", "runner-up"): 0.4615,
    ("2", "least-likely"): 1.315,
    ("1", "runner-up"): 3.168,
    ("1", "least-likely"): 9.250,
}


@pytest.fixture(scope="module")
def network() -> Network:
    if not MODEL.exists():
        pytest.skip("the paper's 2x[20] network is not beside the project (shared/models/paper-mnist-2x20.npz)")
    with np.load(MODEL, allow_pickle=False) as file:
        w1, b1, w2, b2 = (torch.from_numpy(file[name]) for name in ("W1", "b1", "W2", "b2"))
    return chain((784,), Linear(w1, b1), Relu(), Linear(w2, b2))


@pytest.mark.parametrize(("norm", "target"), AVERAGES)
def test_the_published_averages(network: Network, norm: str, target: str) -> None:
    data = bundled()
    answers = relucert.certify(network, data.images, data.labels, norm=norm, target=target)
    assert [answer.image for answer in answers if answer.radius is None] == [61]
    mean = np.mean([answer.radius for answer in answers if answer.radius is not None])
    rounding = 5e-6 / AVERAGES[norm, target] if norm == "1" else 5e-7 / AVERAGES[norm, target]
    assert AVERAGES[norm, target] * (1 - 5e-4) <= mean <= AVERAGES[norm, target] * (1 + 10 * rounding)


@pytest.mark.parametrize(("norm", "target"), PUBLISHED_FAST_LIP)
def test_fast_lip_gains_on_the_published_averages(network: Network, norm: str, target: str) -> None:
    data = bundled()
    answers = relucert.certify(network, data.images, data.labels, norm=norm, target=target, method="fast-lip")
    assert all(answer.proven for answer in answers if answer.image != 61)
    mean = np.mean([answer.radius for answer in answers if answer.radius is not None])
    assert 0.98 < mean / PUBLISHED_FAST_LIP[norm, target] < 1.1


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "target"), PUBLISHED_CLEVER)
def test_clever_is_near_the_published_averages(network: Network, norm: str, target: str) -> None:
    """With the original's radii and box and a tenth of its batches; without a fit it takes the largest sample."""
    data = bundled()
    answers = relucert.estimate(
        network, data.images, data.labels, norm=norm, target=target, batches=50, box=(-0.5, 0.5)
    )  # fmt: skip
    values = [answer.sampled if answer.value is None else answer.value for answer in answers]
    assert [answer.image for answer in answers if answer.sampled is None] == [61]
    mean = np.mean([value for value in values if value is not None])
    assert 0.9 < mean / PUBLISHED_CLEVER[norm, target] < 1.1
