"""Modules that return more than class scores, and modules that were left in training mode."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import relucert
from relucert.errors import InputError, OutputsError
from relucert.inputs.loading.torch_module import TRAINING


class Named(NamedTuple):
    features: Tensor
    scores: Tensor


@dataclass
class Plain:
    scores: Tensor
    loss: Tensor | None = None


@dataclass
class ModelOutput(OrderedDict):  # type: ignore[type-arg]
    """As libraries of pretrained models have it: a dictionary whose entries are attributes, too."""

    logits: Any = None
    hidden_states: Any = None

    def __post_init__(self) -> None:
        for name in ("logits", "hidden_states"):
            if getattr(self, name) is not None:
                self[name] = getattr(self, name)

    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__(place) if isinstance(place, str) else list(self.values())[place]


class Classifier(nn.Module):
    """Linear, ReLU and linear layers, whose outputs are packed somehow; scores are those of 3 classes."""

    def __init__(self, pack: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.pack = nn.Linear(4, 6), nn.Linear(6, 3), pack

    def forward(self, images: Tensor) -> Any:
        hidden = torch.relu(self.first(images))
        return self.pack(hidden, self.last(hidden))


PACKED: dict[str, tuple[Callable[[Tensor, Tensor], Any], str | int]] = {
    "dict": (lambda hidden, scores: {"embedding": hidden[None], "scores": scores}, "scores"),
    "dict, counted": (lambda hidden, scores: {"embedding": hidden, "scores": scores}, 1),
    "tuple": (lambda hidden, scores: (scores, hidden), 0),
    "tuple, from the end": (lambda hidden, scores: (hidden, scores), -1),
    "list": (lambda hidden, scores: [scores], 0),
    "named tuple": (Named, "scores"),
    "dataclass": (lambda hidden, scores: Plain(scores), "scores"),
    "model output": (lambda hidden, scores: ModelOutput(logits=scores, hidden_states=hidden), "logits"),
}


@pytest.mark.parametrize("name", PACKED)
def test_one_of_several_outputs(name: str) -> None:
    pack, output = PACKED[name]
    module = Classifier(pack)
    network = relucert.load(module, output=output)
    images = torch.rand(5, 4)
    plain = relucert.load(Classifier(lambda hidden, scores: scores))
    torch.testing.assert_close(network(images), plain(images))
    assert relucert.certify(network, images)[0].radius == relucert.certify(plain, images)[0].radius


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("call", [relucert.load, lambda module: relucert.certify(module, torch.rand(2, 4))])
def test_it_is_said_first_that_there_are_several(name: str, call: Callable[[nn.Module], Any]) -> None:
    pack, output = PACKED[name]
    with pytest.raises(OutputsError) as caught:
        call(Classifier(pack))
    assert str(caught.value).startswith("Classifier must return one tensor of class scores, not a ")
    assert "relucert.load(module, output=" in str(caught.value)
    if isinstance(output, str) and name != "named tuple":
        assert f"output={output!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("pack", "output", "message"),
    [
        (lambda hidden, scores: {"scores": scores}, "logits", "has no output 'logits'; it returns a dict of scores"),
        (lambda hidden, scores: (scores, hidden), 2, "has no output 2; it returns a tuple of 0, 1"),
        (lambda hidden, scores: (scores, hidden), "logits", "has no output 'logits'"),
        (lambda hidden, scores: scores, "logits", "returns one tensor: leave output='logits' out"),
        (lambda hidden, scores: (scores, None), 1, "must return one tensor of class scores, not a NoneType"),
        (lambda hidden, scores: None, "logits", "has no output 'logits'; it returns a NoneType"),
    ],
)
def test_outputs_that_are_not_there(pack: Callable[[Tensor, Tensor], Any], output: Any, message: str) -> None:
    with pytest.raises(OutputsError, match=message):
        relucert.load(Classifier(pack), output=output)


@pytest.mark.parametrize(
    ("source", "output"), [("mnist-2x20", "logits"), (Classifier(Named), True), (Classifier(Named), 1.5)]
)
def test_wrong_outputs_are_refused(source: Any, output: Any) -> None:
    with pytest.raises(InputError, match="output"):
        relucert.load(source, output=output)


def test_exported_programs() -> None:
    module = Classifier(lambda hidden, scores: {"embedding": hidden, "scores": scores}).eval()
    program = torch.export.export(module, (torch.rand(3, 4),))
    images = torch.rand(3, 4)
    torch.testing.assert_close(relucert.load(program, output="scores")(images), module(images)["scores"])


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.layer(nn.functional.dropout(images, 0.5, training=self.training))
        return scores


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


@pytest.mark.parametrize("make", [Dropping, normalised])
def test_modules_in_training_mode_are_told_of_and_left_so(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(1)
    module = make().train()
    state = torch.random.get_rng_state()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with pytest.warns(relucert.RemarkWarning, match="it is in training mode; answers are about evaluation mode"):
        network = relucert.load(module)
    assert TRAINING in network.remarks
    assert all(layer.training for layer in module.modules())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    images = torch.rand(2, 4)
    assert relucert.load(module.eval()).remarks == ()
    torch.testing.assert_close(network(images), module(images))


def test_a_module_that_computes_the_same_in_both_modes_is_not_told_of() -> None:
    assert relucert.load(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).train()).remarks == ()
