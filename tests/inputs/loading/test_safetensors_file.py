"""Safetensors files: networks come back bit for bit, and no damage goes unnoticed."""

import json
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from relucert.errors import InputError, LoadError, NetworkError, RelucertError, RemarkWarning
from relucert.inputs.loading import load, safetensors_file, save
from relucert.network import (
    Add,
    BatchScale,
    Convolution,
    IndexMap,
    Layer,
    Linear,
    Network,
    Node,
    Relu,
    Reshape,
    Scale,
    Shift,
    find_inference,
)
from relucert.network.fingerprint import fingerprint
from relucert.network.registry import _REGISTRY
from tests.nets import mlp
from tests.smooth import SMOOTH

PRECISIONS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


PADS = (2, 0, 0, 0)


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)


def example(dtype: torch.dtype = torch.float32) -> Network:
    """Every operation, a shared weight, a constant without axes, and a transposed (so not contiguous) weight."""
    weight = numbers(6, 6, dtype=dtype)
    operations: list[tuple[Layer, tuple[int, ...]]] = [
        (Shift(numbers(2, 1, dtype=dtype)), (0,)),
        (Scale(torch.tensor(0.3, dtype=torch.float64), divide=True), (1,)),
        (Reshape((2, 3), (6,)), (2,)),
        (Linear(weight, numbers(6, dtype=dtype)), (3,)),
        (Relu(), (4,)),
        (Linear(weight, numbers(6, dtype=dtype)), (5,)),
        (Add(), (6, 3)),
        (Linear(numbers(6, 4, dtype=dtype).T, numbers(4, dtype=dtype)), (7,)),
        (Reshape((4,), (1, 2, 2)), (8,)),
        (Convolution(numbers(2, 1, 2, 1, dtype=dtype), numbers(2, dtype=dtype), (2, 2), (1, 2), PADS, (1, 1), 1), (9,)),
        (BatchScale(numbers(2, 1, 1, dtype=dtype), numbers(2, 1, 1, dtype=dtype).abs(), 0.1), (10,)),
        (IndexMap.of(torch.tensor([5, -1, 0, 3]), (2, 3, 1)), (11,)),
        *((activation, (place,)) for place, activation in enumerate(SMOOTH.values(), start=12)),
        (Scale(numbers(4, dtype=dtype), divide=False), (12 + len(SMOOTH),)),
    ]
    return Network((2, 3), tuple(Node(operation, inputs) for operation, inputs in operations), "example")


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_the_same_network_gives_the_same_bytes(tmp_path: Path) -> None:
    """And any reader of such files reads them."""
    about = {f"entry {number}": 'ä "quoted" \\ \n text' * number for number in range(9)}
    contents = []
    for number in range(4):
        path = tmp_path / f"{number}.safetensors"
        save(example(), path, dict(sorted(about.items(), reverse=number % 2 == 1)))
        contents.append(path.read_bytes())
    assert len(set(contents)) == 1
    assert int.from_bytes(contents[0][:8], "little") % 8 == 0
    with safe_open(path, framework="pt") as file:
        assert {name: text for name, text in file.metadata().items() if name != "relucert"} == about
        for value, node in example().steps():
            for name, tensor in node.operation.tensors().items():
                assert bits(file.get_tensor(f"{value}.{name}")) == bits(tensor)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_every_operation_comes_back_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    network = example(dtype)
    assert {node.operation.name for node in network.nodes} >= set(_REGISTRY)
    path = tmp_path / "kept.safetensors"
    save(network, path)
    loaded = load(path)
    assert loaded.name == "kept"
    assert loaded.input_shape == network.input_shape
    assert len(loaded.nodes) == len(network.nodes)
    for node, kept in zip(network.nodes, loaded.nodes, strict=True):
        assert type(kept.operation) is type(node.operation)
        assert kept.inputs == node.inputs
        assert kept.operation.settings() == node.operation.settings()
        assert kept.operation.tensors().keys() == node.operation.tensors().keys()
        for name, tensor in node.operation.tensors().items():
            assert kept.operation.tensors()[name].dtype == tensor.dtype
            assert kept.operation.tensors()[name].shape == tensor.shape
            assert bits(kept.operation.tensors()[name]) == bits(tensor)


def test_what_is_known_about_inputs_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "kept.safetensors"
    save(replace(example(), input_range=(0, 255), picture_shape=(1, 2, 3)), path)
    assert (load(path).input_range, load(path).picture_shape) == ((0.0, 255.0), (1, 2, 3))
    save(example(), path)
    assert (load(path).input_range, load(path).picture_shape) == (None, None)


def test_what_is_said_about_evaluations_is_kept(tmp_path: Path) -> None:
    """So that what is refused before a round trip is refused after it, and what is charged is charged."""
    path, network = tmp_path / "kept.safetensors", example()
    nodes = tuple(replace(node, roundings=100) if place in (0, 3) else node for place, node in enumerate(network.nodes))
    save(replace(network, nodes=nodes, remarks=("one", "two"), real_only=("it casts",)), path)
    with pytest.warns(RemarkWarning):
        loaded = load(path)
    assert [node.roundings for node in loaded.nodes] == [node.roundings for node in nodes]
    assert (loaded.remarks, loaded.real_only) == (("one", "two"), ("it casts",))
    with pytest.raises(InputError, match="float32': it casts"):
        loaded.evaluated_in(find_inference("float32"))


def older(graph: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    graph["format"] = 1


def test_sums_of_older_files_count_as_one(tmp_path: Path) -> None:
    """They do not say whether a sum over two axes is two layers: then 12 numbers meet as many roundings."""
    path = tmp_path / "older.safetensors"
    down = Convolution(torch.ones(1, 1, 3, 1), torch.zeros(1), (3, 4), (1, 1), (0,) * 4, (1, 1), 1)
    across = Convolution(torch.ones(1, 1, 1, 4), torch.zeros(1), (1, 4), (1, 1), (0,) * 4, (1, 1), 1)
    last = Linear(torch.ones(2, 1), torch.zeros(2))
    steps: tuple[Layer, ...] = (down, across, Reshape((1, 1, 1), (1,)), Shift(torch.ones(1)), Relu(), last)
    network = Network((1, 3, 4), tuple(Node(step, (place,)) for place, step in enumerate(steps)))
    write(path, network, older)
    loaded = load(path)
    assert [node.roundings for node in loaded.nodes] == [28, 28, None, 28, None, None]
    assert fingerprint(loaded) == fingerprint(network)
    write(path, chained := mlp(3, 4, 2), older)
    assert fingerprint(load(path), rounds=True) == fingerprint(chained, rounds=True)


def test_texts_about_the_network_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "kept.safetensors"
    save(example(), path, {"recipe": '{"seed": 0}', "test_accuracy": "0.9525"})
    assert safetensors_file.about(path) == {"recipe": '{"seed": 0}', "test_accuracy": "0.9525"}
    save(example(), path)
    assert safetensors_file.about(path) == {}


@pytest.mark.parametrize("about", [{"relucert": "x"}, {"accuracy": 0.5}, {1: "x"}])
def test_texts_that_do_not_fit_are_refused(about: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="about must map strings"):
        save(example(), tmp_path / "kept.safetensors", about)


def test_a_file_appears_complete_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept.safetensors"
    save(example(), path)
    before = path.read_bytes()

    def failing(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(InputError, match="No space left"):
        save(example(torch.float64), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept.safetensors"]


def test_a_loaded_network_does_not_follow_its_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.safetensors"
    save(example(), path)
    network = load(path)
    before = [bits(tensor) for node in network.nodes for tensor in node.operation.tensors().values()]
    with path.open("r+b") as file:
        file.seek(-400, 2)
        file.write(b"\x11" * 400)
    assert [bits(tensor) for node in network.nodes for tensor in node.operation.tensors().values()] == before


def write(path: Path, network: Network, change: Callable[[dict[str, Any], dict[str, Tensor]], None]) -> None:
    """Writes a file whose graph and tensors are changed first."""
    graph = safetensors_file._graph(network)
    tensors = {
        f"{value}.{name}": tensor.contiguous().clone()
        for value, node in network.steps()
        for name, tensor in node.operation.tensors().items()
    }
    change(graph, tensors)
    save_file(tensors, path, {"relucert": json.dumps(graph)})


def changed(*keys: str | int, to: object) -> Callable[[dict[str, Any], dict[str, Tensor]], None]:
    def change(graph: Any, tensors: dict[str, Tensor]) -> None:
        for key in keys[:-1]:
            graph = graph[key]
        graph[keys[-1]] = to

    return change


DAMAGES: dict[str, Callable[[dict[str, Any], dict[str, Tensor]], object]] = {
    "no format": lambda graph, tensors: graph.pop("format"),
    "newer format": changed("format", to=3),
    "no nodes": lambda graph, tensors: graph.pop("nodes"),
    "nodes no list": changed("nodes", to={}),
    "nodes empty": changed("nodes", to=[]),
    "node no map": changed("nodes", 0, to="relu"),
    "node cut": lambda graph, tensors: graph["nodes"][0].pop("inputs"),
    "node with more": changed("nodes", 0, "color", to="red"),
    "node left out": lambda graph, tensors: graph["nodes"].pop(),
    "unknown entry": changed("extra", to=1),
    "name no text": changed("name", to=3),
    "shape no list": changed("input_shape", to=6),
    "shape of text": changed("input_shape", to=["2", "3"]),
    "shape of fractions": changed("input_shape", to=[2.0, 3.0]),
    "shape of truths": changed("input_shape", to=[True, 6]),
    "shape negative": changed("input_shape", to=[-2, -3]),
    "shape empty": changed("input_shape", to=[]),
    "shape other": changed("input_shape", to=[3, 2]),
    "range no list": changed("input_range", to=0.5),
    "range of text": changed("input_range", to=["0", "1"]),
    "range of three": changed("input_range", to=[0.0, 0.5, 1.0]),
    "range backwards": changed("input_range", to=[0.5, -0.5]),
    "range endless": changed("input_range", to=[0.0, float("inf")]),
    "range no number": changed("input_range", to=[0.0, float("nan")]),
    "picture no list": changed("picture_shape", to="2x3"),
    "picture other": changed("picture_shape", to=[2, 4]),
    "remarks no list": changed("remarks", to="text"),
    "remarks of numbers": changed("remarks", to=[1]),
    "reasons no list": changed("real_only", to={"a": "b"}),
    "exact no truth": changed("nodes", 3, "exact", to=1),
    "roundings no number": changed("nodes", 3, "roundings", to="9"),
    "roundings a truth": changed("nodes", 3, "roundings", to=True),
    "roundings none": changed("nodes", 3, "roundings", to=None),
    "roundings zero": changed("nodes", 3, "roundings", to=0),
    "roundings too few": changed("nodes", 3, "roundings", to=6),
    "roundings its own": changed("nodes", 3, "roundings", to=7),
    "roundings of a ReLU": changed("nodes", 4, "roundings", to=9),
    "operation unknown": changed("nodes", 4, "operation", to="softmax"),
    "operation no text": changed("nodes", 4, "operation", to=["relu"]),
    "operation other": changed("nodes", 0, "operation", to="linear"),
    "inputs no list": changed("nodes", 4, "inputs", to=4),
    "inputs of text": changed("nodes", 4, "inputs", to=["4"]),
    "inputs ahead": changed("nodes", 4, "inputs", to=[5]),
    "inputs negative": changed("nodes", 4, "inputs", to=[-1]),
    "inputs too many": changed("nodes", 4, "inputs", to=[3, 4]),
    "settings no map": changed("nodes", 4, "settings", to=[]),
    "setting missing": changed("nodes", 1, "settings", to={}),
    "setting too many": changed("nodes", 4, "settings", to={"slope": 0.1}),
    "setting no truth": changed("nodes", 1, "settings", "divide", to=1),
    "setting of text": changed("nodes", 2, "settings", "after", to="six"),
    "setting of texts": changed("nodes", 2, "settings", "after", to=["6"]),
    "setting for tensor": changed("nodes", 0, "settings", "offset", to=1.0),
    "tensor missing": lambda graph, tensors: tensors.pop("4.weight"),
    "tensor too many": lambda graph, tensors: tensors.update({"4.more": torch.zeros(1)}),
    "tensor of no node": lambda graph, tensors: tensors.update({"77.weight": torch.zeros(1)}),
    "tensor unnamed": lambda graph, tensors: tensors.update({"weight": torch.zeros(1)}),
    "tensor of whole numbers": lambda graph, tensors: tensors.update({"4.bias": torch.zeros(6, dtype=torch.int64)}),
    "tensor of other shape": lambda graph, tensors: tensors.update({"4.bias": torch.zeros(5)}),
    "tensor of small floats": lambda graph, tensors: tensors.update({"4.bias": torch.zeros(6).to(torch.float8_e4m3fn)}),
    "tensor with nan": lambda graph, tensors: tensors["4.bias"].fill_(torch.nan),
    "divisor zero": lambda graph, tensors: tensors["2.factor"].zero_(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damage_goes_unnoticed(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.safetensors"
    write(path, example(), DAMAGES[damage])  # type: ignore[arg-type]
    with pytest.raises((LoadError, NetworkError)) as caught:
        load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '{"format": 1}', "[" * 100_000])
def test_a_garbled_graph_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "garbled.safetensors"
    save_file({"1.weight": torch.zeros(2)}, path, {"relucert": text})
    with pytest.raises(LoadError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(LoadError):
        safetensors_file.about(path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_weights_without_a_graph_say_what_is_missing(metadata: dict[str, str] | None, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"layer.weight": torch.zeros(2, 2)}, path, metadata)
    with pytest.raises(LoadError, match=r"relucert\.save writes the graph"):
        load(path)


def test_truncated_files_are_refused_wherever_they_end(tmp_path: Path) -> None:
    path = tmp_path / "whole.safetensors"
    save(example(), path)
    content = path.read_bytes()
    for end in (0, 1, 7, 8, 9, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end])
        with pytest.raises(RelucertError) as caught:
            load(path)
        assert "\n" not in str(caught.value)


def test_a_header_that_begins_like_a_pickle_is_no_pickle(tmp_path: Path) -> None:
    network = Network((1,), (Node(Relu(), (0,)),), "relu")
    path = tmp_path / "relu.safetensors"
    save(network, path)
    header = path.read_bytes()[8:].rstrip(b" ")
    path.write_bytes(struct.pack("<Q", 0x0280) + header.ljust(0x0280, b" "))
    assert path.read_bytes()[:2] == b"\x80\x02"
    assert len(load(path).nodes) == 1
