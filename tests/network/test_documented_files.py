"""Networks in files as docs/formats.md defines them, their SHA-256 and their values: by code of this file alone."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import erf
from torch import nn

import relucert
from relucert.checker.document import read
from relucert.inputs.loading import safetensors_file
from relucert.network import Linear, Network, Node, Power, Scale, Shift
from relucert.network.fingerprint import fingerprint
from relucert.network.registry import _REGISTRY
from tests.nets import NETWORKS
from tests.smooth import SMOOTH

FORMATS = Path(__file__).parents[2] / "docs" / "formats.md"
Array = np.ndarray[Any, Any]
TYPES = {"F16": "torch.float16", "BF16": "torch.bfloat16", "F32": "torch.float32", "F64": "torch.float64"}


def text(entry: Any) -> bytes:
    """An entry as it is hashed, written out character by character."""
    if isinstance(entry, dict):
        return b"{" + b", ".join(text(key) + b": " + text(entry[key]) for key in sorted(entry)) + b"}"
    if isinstance(entry, list):
        return b"[" + b", ".join(map(text, entry)) + b"]"
    if isinstance(entry, str):
        return b'"' + entry.encode("ascii") + b'"'
    if isinstance(entry, bool):
        return b"true" if entry else b"false"
    return repr(entry).encode()


def documented(path: Path, rounds: bool) -> str:
    """The SHA-256 of the network in a .safetensors file.

    rounds: whether it is that of claims about evaluations in floating point.
    """
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    network = json.loads(header.pop("__metadata__")["relucert"])
    parts = [text(network["input_shape"])]
    for number, node in enumerate(network["nodes"], start=1):
        entry = [node["operation"], node["inputs"], node["settings"]]
        marks = {key: node[key] for key in ("exact", "roundings") if key in node}
        parts.append(text([*entry, marks] if rounds and marks else entry))
        for key in sorted(key for key in header if key.startswith(f"{number}.")):
            tensor = header[key]
            first, end = tensor["data_offsets"]
            parts.append(text([key.removeprefix(f"{number}."), TYPES[tensor["dtype"]], tensor["shape"]]))
            parts.append(content[begin + first : begin + end])
    return hashlib.sha256(b"".join(parts)).hexdigest()


def values(path: Path, image: Array) -> Array:
    """The output at an image, number by number as the document says, in float64; not of bfloat16."""
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    network = json.loads(header.pop("__metadata__")["relucert"])
    known: list[Array] = [image.reshape(network["input_shape"])]
    for number, node in enumerate(network["nodes"], start=1):
        tensors = {}
        for key in (key for key in header if key.startswith(f"{number}.")):
            tensor, kind = header[key], {"F16": "<f2", "F32": "<f4", "F64": "<f8"}[header[key]["dtype"]]
            first, end = (begin + offset for offset in tensor["data_offsets"])
            numbers = np.frombuffer(content[first:end], kind).reshape(tensor["shape"])
            tensors[key.removeprefix(f"{number}.")] = numbers.astype(np.float64)
        inputs = [known[source] for source in node["inputs"]]
        known.append(OPERATIONS[node["operation"]](*inputs, **tensors, **node["settings"]))
    return known[-1]


def convolved(x: Array, bias: Array, weight: Array, **settings: Any) -> Array:
    size, stride, padding, dilation = (settings[key] for key in ("size", "stride", "padding", "dilation"))
    assert x.shape[1:] == tuple(size)
    outputs, channels, *kernel = weight.shape
    high, wide = (
        (size[axis] + padding[axis] + padding[axis + 2] - dilation[axis] * (kernel[axis] - 1) - 1) // stride[axis] + 1
        for axis in (0, 1)
    )
    value = np.zeros((outputs, high, wide))
    for o, i, j in np.ndindex(outputs, high, wide):
        value[o, i, j] = bias[o]
        for c, a, b in np.ndindex(channels, *kernel):
            row = i * stride[0] + a * dilation[0] - padding[0]
            column = j * stride[1] + b * dilation[1] - padding[1]
            if 0 <= row < size[0] and 0 <= column < size[1]:
                group = o * settings["groups"] // outputs
                value[o, i, j] += weight[o, c, a, b] * x[group * channels + c, row, column]
    return value


OPERATIONS: dict[str, Callable[..., Array]] = {
    "linear": lambda x, bias, weight: weight @ x + bias,
    "convolution": convolved,
    "index map": lambda x, after, before, indices: np.append(x.ravel(), 0)[indices].reshape(after),
    "scale": lambda x, factor, divide: x / factor if divide else x * factor,
    "batch scale": lambda x, gain, variance, epsilon: x * gain / np.sqrt(variance + epsilon),
    "shift": lambda x, offset: x + offset,
    "reshape": lambda x, after, before: x.reshape(after),
    "add": lambda x, y: x + y,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "erf": erf,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "softplus": lambda x: np.log(1 + np.exp(x)),
    "exp": np.exp,
    "elu": lambda x, alpha: np.where(x > 0, x, alpha * (np.exp(x) - 1)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
    "gelu tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "mish": lambda x: x * np.tanh(np.log(1 + np.exp(x))),
    "hard swish": lambda x: x * np.minimum(np.maximum(x + 3, 0), 6) / 6,
    "power": lambda x, exponent: x**exponent,
    "reciprocal": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
}


def imported() -> Network:
    """With batch normalisation, and a pooling whose nodes are exact."""
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=(1, 0), groups=2), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(8, 3),
    ).eval()  # fmt: skip
    return relucert.load(module, input_shape=(2, 8, 6))


def summed() -> Network:
    """A sum of several nodes, which says how many roundings meet in it."""
    first = Node(Linear(torch.eye(3), torch.zeros(3)), (0,), roundings=9)
    return Network((3,), (first, Node(Linear(torch.ones(2, 3), torch.zeros(2)), (1,))))


def every_activation() -> Network:
    """One after the other, each of a positive number."""
    nodes: list[Node] = []
    for activation in SMOOTH.values():
        nodes.append(Node(Scale(torch.tensor(0.3).double(), divide=False), (len(nodes),)))
        nodes.append(Node(Power(2), (len(nodes),)))
        nodes.append(Node(Shift(torch.tensor(0.4).double()), (len(nodes),)))
        nodes.append(Node(activation, (len(nodes),)))
    return Network((3,), tuple(nodes))


CASES: dict[str, Callable[[], Network]] = {
    **NETWORKS,
    "smooth": every_activation,
    "imported": imported,
    "summed": summed,
    "float16": lambda: NETWORKS["convolutional"]().cast(torch.float16),
    "bfloat16": lambda: NETWORKS["residual"]().cast(torch.bfloat16),
    "float64": lambda: NETWORKS["normalised"]().cast(torch.float64),
    "bundled": lambda: relucert.load("mnist-2x20"),
}


@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_definition_is_what_is_computed(name: str, rounds: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = CASES[name]()
    path = tmp_path / "network.safetensors"
    relucert.save(network, path)
    loaded = safetensors_file.load_safetensors(path)
    assert documented(path, rounds) == fingerprint(network, rounds) == fingerprint(loaded, rounds)


@pytest.mark.parametrize("name", sorted({*CASES} - {"bfloat16"}))
def test_operations_compute_what_the_document_says(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = CASES[name]()
    path = tmp_path / "network.safetensors"
    relucert.save(network, path)
    image = torch.randn(1, network.sizes[0], dtype=torch.float64)
    expected = network.cast(torch.float64)(image)[0].numpy()
    np.testing.assert_allclose(values(path, image[0].numpy()), expected, rtol=1e-9, atol=1e-9)


def test_marks_and_all_operations_are_among_the_cases() -> None:
    networks = [make() for make in CASES.values()]
    assert {node.operation.name for network in networks for node in network.nodes} == set(_REGISTRY)
    assert any(node.exact for network in networks for node in network.nodes)
    assert fingerprint(summed(), rounds=True) != fingerprint(summed())


def test_a_proof_names_its_network_by_it(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    network = NETWORKS["residual"]()
    relucert.save(network, tmp_path / "net" / "network.safetensors")
    image = torch.zeros(1, network.sizes[0])
    for inference in ("real", "float32"):
        folder = tmp_path / inference
        relucert.certify(network, image, method="crown", inference=inference, proofs=folder)
        (path,) = folder.iterdir()
        assert read(path).sha256 == documented(tmp_path / "net" / "network.safetensors", inference != "real")


def test_the_example_of_the_document() -> None:
    document = FORMATS.read_text()
    (line,) = re.findall(r"^(\[1\]\[\"linear\".*)$", document, re.MULTILINE)
    parts = re.split(r" ((?:[0-9a-f]{2} ?){4})(?: |$)", line)
    content = b"".join(bytes.fromhex(part) if place % 2 else part.encode() for place, part in enumerate(parts))
    sha256 = hashlib.sha256(content).hexdigest()
    assert f"`{sha256}`" in document
    network = Network((1,), (Node(Linear(torch.tensor([[2.0]]), torch.tensor([0.5])), (0,)),))
    assert fingerprint(network) == sha256


def test_every_field_of_every_operation_is_documented() -> None:
    section = FORMATS.read_text().split("### Operations")[1].split("####")[0]
    rows = re.findall(r"^\| `([a-z ]+)` \|([^|]*)\|([^|]*)\|([^|]*)\|", section, re.MULTILINE)
    names = {name: [re.findall(r"`(\w+)`", cell) for cell in cells] for name, _, *cells in rows}
    assert names == {
        name: [
            sorted(field.name for field in fields(operation) if (field.type in ("Tensor", torch.Tensor)) == is_tensor)  # type: ignore[arg-type]
            for is_tensor in (True, False)
        ]
        for name, operation in _REGISTRY.items()
    }
