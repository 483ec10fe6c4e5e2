"""What `load` accepts, what it refuses, and the networks that come with the package."""

import io
import json
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from relucert.errors import InputError, LoadError
from relucert.inputs.loading import load, save, zoo
from relucert.inputs.recipes.plans import find_plan
from relucert.network import Network, Node, Relu
from relucert.network.fingerprint import fingerprint
from tests.inputs.loading.onnx_models import model, node, write

NETWORK = Network((4,), (Node(Relu(), (0,)),), "given")


def test_a_network_is_returned_as_it_is() -> None:
    assert load(NETWORK) is NETWORK
    assert load(NETWORK, input_shape=(4,)) is NETWORK


def test_the_wrong_input_shape_is_refused(tmp_path: Path) -> None:
    save(NETWORK, tmp_path / "kept.safetensors")
    for source in (NETWORK, tmp_path / "kept.safetensors", "mnist-2x20"):
        with pytest.raises(InputError, match="takes inputs of shape"):
            load(source, input_shape=(2, 2))


@pytest.mark.parametrize("shape", [(), 4, (0,), (-1,), (2.0,), (True,), "4", ("4",)])
def test_an_input_shape_is_positive_whole_numbers(shape: Any) -> None:
    with pytest.raises(InputError, match="positive integers"):
        load(NETWORK, input_shape=shape)


@pytest.mark.parametrize("source", [None, 3, b"model.onnx", nn.Linear, {"weight": torch.zeros(1)}])
def test_other_sources_are_refused(source: Any) -> None:
    with pytest.raises(LoadError, match=r"expected a torch\.nn\.Module, .*a path"):
        load(source)


def pickles() -> dict[str, bytes]:
    zipped, legacy = io.BytesIO(), io.BytesIO()
    torch.save(nn.Linear(2, 2).state_dict(), zipped)
    torch.save(nn.Linear(2, 2).state_dict(), legacy, _use_new_zipfile_serialization=False)
    return {
        "zip": zipped.getvalue(),
        "legacy": legacy.getvalue(),
        **{f"protocol {number}": pickle.dumps([0.5], protocol=number) for number in range(2, 6)},
    }


@pytest.mark.parametrize("name", ["model.onnx", "model.safetensors", "model", "model.dat", "model.PT"])
@pytest.mark.parametrize("pickle_format", pickles())
def test_pickles_are_never_opened(pickle_format: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(pickles()[pickle_format])
    with pytest.raises(LoadError, match=r"looks like a pickle.*ONNX"):
        load(path)


@pytest.mark.parametrize("suffix", ["pt", "pth", "pt2", "pkl", "pickle", "ckpt", "bin"])
def test_names_of_pickles_are_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model.{suffix}"
    with pytest.raises(LoadError, match="there is no file"):
        load(path)
    path.write_text("anything")
    with pytest.raises(LoadError, match="looks like a pickle"):
        load(path)


def test_a_refused_pickle_comes_with_the_lines_that_make_it_loadable(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(nn.Linear(2, 2).state_dict(), path)
    with pytest.raises(LoadError, match=r"load_state_dict\(torch.load\(.*weights_only=True\).*relucert.load\(module\)"):
        load(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(nn.Linear(2, 2)), path)
        torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.zeros(1, 2),)), tmp_path / "program.zip")
    with pytest.raises(LoadError, match=r"script module.*relucert.load\(module\)"):
        load(path)
    with pytest.raises(LoadError, match=r"torch.export.load\(.*relucert.load\(program\)"):
        load(tmp_path / "program.zip")


@pytest.mark.parametrize("name", ["model.onnx", "model.safetensors"])
def test_missing_files_and_directories_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="there is no file"):
        load(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(LoadError, match="is a directory"):
        load(str(tmp_path / name))
    with pytest.raises(LoadError, match="is a directory"):
        load(tmp_path)


@pytest.mark.parametrize("source", ["a\0b.onnx", "a\0b", f"{'a' * 5000}.onnx", "a" * 5000, ""])
def test_impossible_paths_are_refused(source: str) -> None:
    with pytest.raises(LoadError):
        load(source)


@pytest.mark.parametrize("suffix", ["onnx", "safetensors", "txt"])
@pytest.mark.parametrize("content", [b"", b"hello\n" * 20, bytes(range(256)), b"\x08\x07" * 50])
def test_files_of_another_kind_are_refused(suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(content)
    with pytest.raises(LoadError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_truncated_onnx_files_are_refused_wherever_they_end(tmp_path: Path) -> None:
    path = write(tmp_path, model([node("Relu", "x")], {}))
    content = path.read_bytes()
    for end in range(len(content)):
        path.write_bytes(content[:end])
        with pytest.raises(LoadError) as caught:
            load(path)
        assert "\n" not in str(caught.value)


def test_saving_needs_the_right_suffix_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.safetensors"):
        save(NETWORK, tmp_path / "model.onnx")
    with pytest.raises(InputError, match="can't write"):
        save(NETWORK, tmp_path / "nowhere" / "model.safetensors")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(LoadError, match=re.escape(", ".join(zoo.names()))):
        load("mnist-9x9")


@pytest.mark.parametrize(
    ("name", "layers", "dtype", "accuracy", "digest"),
    [
        ("mnist-2x20", "784-20-10", torch.float32, 0.95, "ba2c48da72fd71a3"),
        ("mnist-3x20", "784-20-20-10", torch.float32, 0.95, "c11698a4bf54f400"),
        ("mnist-3x1024", "784-1024-1024-10", torch.float16, 0.98, "5a335ed906566610"),
        ("mnist-cnn", "1x28x28 - 8x13x13 - 16x5x5 - 100 - 10", torch.float16, 0.98, "3e18a86d3e1d7c7b"),
    ],
)
def test_bundled_networks(name: str, layers: str, dtype: torch.dtype, accuracy: float, digest: str) -> None:
    assert name in zoo.names()
    network = load(name)
    assert network.name == name
    assert network.describe() == layers
    assert fingerprint(network).startswith(digest)
    assert (network.input_range, network.picture_shape) == ((-0.5, 0.5), (1, 28, 28))
    stored = {tensor.dtype for entry in network.nodes for tensor in entry.operation.tensors().values()}
    assert stored == {dtype}
    about = zoo.about(name)
    assert float(about["test_accuracy"]) > accuracy
    recipe = json.loads(about["recipe"])
    assert recipe.pop("data") == {"name": "mnist", "images": 60000, "sha256": "8380a77590665331"}
    assert recipe == {**find_plan(name).recipe.to_json(), "half": dtype == torch.float16}


def test_what_is_not_used_is_not_imported() -> None:
    code = "import sys, relucert.inputs.loading; print({'onnx', 'onnxruntime', 'torch._dynamo'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
