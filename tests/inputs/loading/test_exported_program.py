"""A program of `torch.export` loads as the module that it came from does."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from relucert.errors import InputError, LoadError, UnsupportedError
from relucert.inputs.loading import load
from relucert.network.fingerprint import fingerprint

OPEN = Dim.DYNAMIC


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.dropout = nn.Dropout()

    def forward(self, images: Tensor) -> Any:
        hidden = torch.relu(self.first((images.flatten(1) - 0.5) / 0.25))
        return self.last(self.dropout(hidden + self.second(hidden)))


def export(module: nn.Module, *shape: int, dynamic: Any = None) -> ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module, (torch.zeros(*shape),), dynamic_shapes=dynamic)


@pytest.fixture(name="module")
def make_module() -> nn.Module:
    torch.manual_seed(0)
    return Residual().eval()


@pytest.mark.parametrize("batch", [1, 2, 20])
def test_a_program_of_a_fixed_batch(module: nn.Module, batch: int) -> None:
    network = load(export(module, batch, 2, 3))
    expected = load(module, input_shape=(2, 3))
    assert network.name == expected.name == "Residual"
    assert network.input_shape == (2, 3)
    assert fingerprint(network) == fingerprint(expected)


def test_a_program_of_an_open_batch(module: nn.Module) -> None:
    network = load(export(module, 2, 2, 3, dynamic=({0: OPEN},)))
    assert fingerprint(network) == fingerprint(load(module, input_shape=(2, 3)))


def test_a_decomposed_program(module: nn.Module) -> None:
    program = export(module, 2, 2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = program.run_decompositions()
    assert fingerprint(load(program)) == fingerprint(load(module, input_shape=(2, 3)))


def test_open_axes_are_asked_for() -> None:
    program = export(nn.Sequential(nn.ReLU(), nn.Flatten()), 2, 1, 4, 3, dynamic=({0: OPEN, 2: OPEN},))
    with pytest.raises(InputError, match=r"\(1, \?, 3\); pass such an input_shape"):
        load(program)
    with pytest.raises(InputError, match=r"\(1, \?, 3\)"):
        load(program, input_shape=(2, 5, 3))
    assert load(program, input_shape=(1, 5, 3)).input_shape == (1, 5, 3)


def test_a_program_in_training_mode_says_what_to_do(module: nn.Module) -> None:
    with pytest.raises(UnsupportedError, match=r"dropout at layer dropout \(Dropout\).*call eval\(\) before"):
        load(export(module.train(), 2, 2, 3))


def test_a_program_is_left_alone(module: nn.Module) -> None:
    program = export(module, 2, 2, 3)
    graph, weights = str(program.graph), {name: tensor.clone() for name, tensor in program.state_dict.items()}
    load(program)
    assert str(program.graph) == graph
    assert all(torch.equal(tensor, weights[name]) for name, tensor in program.state_dict.items())


def test_a_program_of_several_inputs_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(nn.Bilinear(3, 3, 2), (torch.zeros(2, 3), torch.zeros(2, 3)))
    with pytest.raises(LoadError, match=r"one tensor, .*not 2"):
        load(program)
