"""Recurrent layers from PyTorch: what is loaded is what they compute, and bounds enclose it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import relucert
from relucert.errors import UnsupportedError
from relucert.inputs.loading import load
from relucert.network.fingerprint import fingerprint
from tests.inputs.loading.image_models import assert_encloses, assert_same

STEPS, INPUTS, SIZE = 3, 2, 3


class Recurrent(nn.Module):
    """A recurrent layer, and scores of its outputs at all steps; it may remember something at first."""

    def __init__(self, layer: nn.Module, first: tuple[Tensor, ...] = ()) -> None:
        super().__init__()
        self.layer, self.last, self.first = layer, nn.Linear(STEPS * SIZE, 3), first

    def forward(self, values: Tensor) -> Tensor:
        states = tuple(state.to(values.dtype).expand(-1, len(values), -1) for state in self.first)
        first: Any = states if len(states) > 1 else states[0] if states else None
        outputs, *_ = self.layer(values, first)
        scores: Tensor = self.last(outputs.flatten(1))
        return scores


def made(kind: Any, first: tuple[Tensor, ...] = (), **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return Recurrent(kind(INPUTS, SIZE, **{"batch_first": True, **options}), first).eval()


REMEMBERED = torch.tensor([[[0.3, -0.2, 0.5]]])
LAYERS: dict[str, tuple[Any, tuple[Tensor, ...], dict[str, Any]]] = {
    "RNN": (nn.RNN, (), {}),
    "RNN of ReLUs": (nn.RNN, (), {"nonlinearity": "relu", "num_layers": 2}),
    "RNN without biases": (nn.RNN, (), {"bias": False}),
    "RNN that remembers": (nn.RNN, (REMEMBERED,), {}),
    "GRU": (nn.GRU, (), {}),
    "GRU of two layers": (nn.GRU, (), {"num_layers": 2, "dropout": 0.5}),
    "GRU without biases": (nn.GRU, (), {"bias": False}),
    "GRU that remembers": (nn.GRU, (REMEMBERED,), {}),
    "LSTM": (nn.LSTM, (), {}),
    "LSTM of two layers": (nn.LSTM, (), {"num_layers": 2}),
    "LSTM without biases": (nn.LSTM, (), {"bias": False}),
    "LSTM that remembers": (nn.LSTM, (REMEMBERED, REMEMBERED / 2), {}),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_network_is_the_module(name: str, tmp_path: Path) -> None:
    kind, first, options = LAYERS[name]
    module = made(kind, first, **options)
    network = load(module, input_shape=(STEPS, INPUTS))
    assert_same(network, module, tolerance=1e-6)  # of squares that products are written in
    relucert.save(network, tmp_path / "kept.safetensors")
    assert fingerprint(load(tmp_path / "kept.safetensors")) == fingerprint(network)


@pytest.mark.parametrize("name", ["RNN of ReLUs", "RNN that remembers", "GRU", "GRU that remembers", "LSTM"])
def test_bounds_enclose_what_happens(name: str) -> None:
    kind, first, options = LAYERS[name]
    assert_encloses(load(made(kind, first, **options), input_shape=(STEPS, INPUTS)))


def test_a_recurrent_network_is_certified() -> None:
    module = made(nn.GRU)
    images = torch.randn(2, STEPS, INPUTS)
    for image, certificate in zip(images, relucert.certify(module, images, method="crown"), strict=True):
        assert certificate.radius is not None
        assert certificate.radius > 1e-3
        moved = image + certificate.radius * (torch.randint(0, 2, (300, STEPS, INPUTS)) * 2 - 1)
        assert bool((module(moved).argmax(1) == certificate.label).all())


REFUSED: dict[str, tuple[nn.Module, str]] = {
    "the batch second": (made(nn.GRU, batch_first=False), "gru .batch_first=False: build it with batch_first=True"),
    "two directions": (Recurrent(nn.GRU(INPUTS, SIZE, batch_first=True, bidirectional=True)), "bidirectional=True"),
    "projections": (Recurrent(nn.LSTM(INPUTS, 4, batch_first=True, proj_size=SIZE)), "proj_size"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_unrolled_is_refused(name: str) -> None:
    module, reason = REFUSED[name]
    if name == "two directions":
        module.last = nn.Linear(2 * STEPS * SIZE, 3)
    with pytest.raises(UnsupportedError, match=reason):
        load(module.eval(), input_shape=(STEPS, INPUTS))
