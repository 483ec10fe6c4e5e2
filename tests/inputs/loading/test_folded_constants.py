"""Weights that a file or a module computes from others: runtimes round them, each in its own way."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import NodeProto, TensorProto
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import relucert
from relucert.checker.document import Rejected
from relucert.checker.noise import PRECISIONS, check_evaluation
from relucert.errors import InputError
from relucert.network import Network, find_inference
from tests.inputs.loading.image_models import Function
from tests.inputs.loading.onnx_models import Array, model, node, numbers, write

FLOAT32 = find_inference("float32")
NUMBERS = {"b": numbers(4), "c": numbers(4, seed=1), "two": np.array([2.0], np.float32)}

ROUNDED: dict[str, Sequence[NodeProto]] = {
    "mean": [node("ReduceMean", "b", "m", axes=[0])],
    "quotient": [node("Div", "b c", "m")],
    "product": [node("Mul", "b c", "m")],
    "sum": [node("Add", "b c", "m")],
    "root": [node("Abs", "b", "positive"), node("Sqrt", "positive", "m")],
    "moved afterwards": [node("Div", "b c", "d"), node("Identity", "d", "e"), node("Neg", "e", "m")],
    "cast to less": [node("Cast", "b", "h", to=TensorProto.FLOAT16), node("Cast", "h", "m", to=TensorProto.FLOAT)],
}
EXACT: dict[str, Sequence[NodeProto]] = {
    "negated": [node("Neg", "b", "m")],
    "largest": [node("Max", "b c", "m")],
    "transposed": [node("Unsqueeze", "b axis", "u"), node("Transpose", "u", "t"), node("Squeeze", "t axis1", "m")],
    "joined": [node("Split", "b", "p q", axis=0), node("Concat", "q p", "m", axis=0)],
    "cast to more": [node("Cast", "b", "h", to=TensorProto.DOUBLE), node("Cast", "h", "m", to=TensorProto.FLOAT)],
    "whole numbers": [node("Constant", "", "w", value_ints=[1, 2, 3, 4]), node("Cast", "w", "m", to=TensorProto.FLOAT)],
}


def loaded(folder: Path, nodes: Sequence[NodeProto], constants: Mapping[str, Array] = NUMBERS) -> Network:
    more = {"axis": np.array([0]), "axis1": np.array([1])}
    path = write(folder, model([*nodes, node("Add", "x m")], {**constants, **more}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", relucert.RemarkWarning)
        return relucert.load(path)


@pytest.mark.parametrize("name", ROUNDED)
def test_computed_weights_say_nothing_about_floats(name: str, tmp_path: Path) -> None:
    network = loaded(tmp_path, ROUNDED[name])
    with pytest.raises(InputError, match="in its own way") as caught:
        network.evaluated_in(FLOAT32)
    assert "\n" not in str(caught.value)
    precision = PRECISIONS["float32"]
    assert precision is not None
    with pytest.raises(Rejected, match="in its own way"):
        check_evaluation(network, "float32", precision)
    relucert.save(network, tmp_path / "kept.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", relucert.RemarkWarning)
        kept = relucert.load(tmp_path / "kept.safetensors")
    with pytest.raises(InputError, match="in its own way"):
        relucert.certify(kept, torch.zeros(1, 4), [0], inference="float32")


@pytest.mark.parametrize("name", EXACT)
def test_weights_that_are_only_moved_or_selected_do(name: str, tmp_path: Path) -> None:
    assert loaded(tmp_path, EXACT[name]).evaluated_in(FLOAT32).real_only == ()


def test_what_sizes_are_computed_from_does_not_matter(tmp_path: Path) -> None:
    """A shape by way of floating-point numbers is no weight."""
    nodes = [
        node("Div", "four two", "half"), node("Cast", "half", "whole", to=TensorProto.INT64),
        node("Concat", "one whole whole", "shape", axis=0), node("Reshape", "x shape", "r"),
        node("Flatten", "r", "f"), node("Relu", "f"),
    ]  # fmt: skip
    constants = {"four": np.array([4.0], np.float32), "one": np.array([-1]), "two": NUMBERS["two"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", relucert.RemarkWarning)
        network = relucert.load(write(tmp_path, model([*nodes], constants)))
    assert network.real_only == ()


def test_modules(tmp_path: Path) -> None:
    """Weight normalisation computes, a transposed weight does not."""
    with pytest.warns(relucert.RemarkWarning):
        computed = relucert.load(parametrizations.weight_norm(nn.Linear(4, 3)))
    with pytest.raises(InputError, match="in its own way"):
        computed.evaluated_in(FLOAT32)
    weight = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))

    def forward(values: Tensor) -> Tensor:
        return values @ (-weight.double().float()).flip(0).T.T.clamp(-1, 1)

    assert relucert.load(Function(forward), input_shape=(4,)).real_only == ()
