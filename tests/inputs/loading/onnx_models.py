"""Small ONNX models for the tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
Axis = int | str

CODES = {"float16": TensorProto.FLOAT16, "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}


def numbers(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    """Random constants."""
    return np.asarray(np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def node(operator: str, sources: str, result: str = "y", **attributes: Any) -> NodeProto:
    """A node; the names of its inputs in one string, `-` for one left out, and of its outputs in another."""
    inputs = ["" if name == "-" else name for name in sources.split()]
    return helper.make_node(operator, inputs, result.split(), **attributes)


def model(
    nodes: Sequence[NodeProto],
    constants: Mapping[str, Array],
    axes: Sequence[Axis] = ("batch", 4),
    dtype: str = "float32",
    version: int = 17,
) -> ModelProto:
    """A model from the input `x` to the output `y`."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", CODES[dtype], axes)],
        [helper.make_tensor_value_info("y", CODES[dtype], ("batch", "classes"))],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", version)])


def write(folder: Path, proto: ModelProto) -> Path:
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return path
