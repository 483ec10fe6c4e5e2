"""Small networks with known answers, and the fields' own files where they are beside the project."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from relucert.network import Linear, Network, Relu
from tests.nets import chain
from tests.shared import SHARED

VNNCOMP = SHARED / "vnncomp"


def absolute() -> Network:
    """`|x|`, and `x` itself."""
    first = Linear(torch.tensor([[1.0], [-1.0]]), torch.zeros(2))
    return chain((1,), first, Relu(), Linear(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), torch.zeros(2)))


def as_onnx(network: Network, path: Path, half: bool = False) -> Path:
    """A chain of linear layers and ReLUs as an ONNX file, in float32 or in float16."""
    dtype, code = (torch.float16, TensorProto.FLOAT16) if half else (torch.float32, TensorProto.FLOAT)
    nodes, constants, value = [], [], "x"
    for place, node in enumerate(network.nodes):
        result = "y" if place == len(network.nodes) - 1 else f"v{place}"
        if isinstance(node.operation, Linear):
            stored = {"w": node.operation.weight.T.contiguous(), "b": node.operation.bias}
            constants += [
                numpy_helper.from_array(one.to(dtype).numpy(), f"{name}{place}") for name, one in stored.items()
            ]
            nodes.append(helper.make_node("Gemm", [value, f"w{place}", f"b{place}"], [result]))
        else:
            nodes.append(helper.make_node("Relu", [value], [result]))
        value = result
    ends = [
        helper.make_tensor_value_info(name, code, (1, size))
        for name, size in (("x", network.sizes[0]), ("y", network.classes))
    ]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


class Published(NamedTuple):
    """A line of the list of published instances."""

    onnx: Path
    vnnlib: Path
    seconds: float
    verdict: str


def published(benchmark: str) -> list[Published]:
    """Those of one benchmark; skips where they are absent."""
    listed = VNNCOMP / "expected.csv"
    if not listed.exists():
        pytest.skip("the published instances are not beside the project (shared/vnncomp)")
    with listed.open() as file:
        return [
            Published(VNNCOMP / benchmark / row["onnx"], VNNCOMP / benchmark / row["vnnlib"], float(row["seconds"]),
                      row["verdict"])
            for row in csv.DictReader(file)
            if row["benchmark"] == benchmark
        ]  # fmt: skip
