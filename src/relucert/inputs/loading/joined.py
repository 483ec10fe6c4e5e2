"""Several inputs, outputs or whole networks as one ONNX model, from all inputs to all outputs, each flat in turn."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, compose, helper, numpy_helper

from relucert.errors import UnsupportedError
from relucert.inputs.loading.onnx_file import open_inputs, read_model
from relucert.network import Shape

INPUT, OUTPUT = "all_inputs", "all_outputs"
LEAST_VERSION = 4  # of the representation: before it, every stored tensor had to be an input, too


class JoinedFile(NamedTuple):
    """An ONNX file, and the shapes that its inputs and outputs are expected to have."""

    name: str
    path: Path
    inputs: Sequence[Shape]
    outputs: Sequence[Shape]


def joined(files: Sequence[JoinedFile]) -> ModelProto:
    """The model whose input are the inputs of all files in turn, each flat, and whose output are their outputs."""
    models = [(file, compose.add_prefix(read_model(file.path), f"part{number}_")) for number, file in enumerate(files)]
    versions = {(entry.domain, entry.version) for _, model in models for entry in model.opset_import}
    types = {entry.type.tensor_type.elem_type for _, model in models for entry in open_inputs(model.graph)}
    if len(types) != 1 or len({domain for domain, _ in versions}) != len(versions):
        raise UnsupportedError("networks of different precisions or operator sets can't be joined")
    batch = all(shape[:1] == (1,) for _, model in models for shape in map(_shape, open_inputs(model.graph)))
    graph, position, flat = GraphProto(name="joined"), 0, []
    for file, model in models:
        _check(file, model.graph)
        for source in open_inputs(model.graph):
            graph.node.extend(_gather(graph, source, position, batch))
            position += prod(_shape(source))
        graph.node.extend(model.graph.node)
        graph.initializer.extend(model.graph.initializer)
        for result in model.graph.output:
            flat.append(f"{result.name}_flat")
            shape = _constant(graph, f"{result.name}_row", [1, -1] if batch else [-1])
            graph.node.append(helper.make_node("Reshape", [result.name, shape], flat[-1:]))
    graph.node.append(helper.make_node("Concat", flat, [OUTPUT], axis=int(batch)))
    (precision,) = types
    begin = [1] if batch else []
    total = sum(prod(_shape(result)) for _, model in models for result in model.graph.output)
    graph.input.append(helper.make_tensor_value_info(INPUT, precision, [*begin, position]))
    graph.output.append(helper.make_tensor_value_info(OUTPUT, precision, [*begin, total]))
    opsets = [helper.make_opsetid(domain, version) for domain, version in sorted(versions)]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=max(LEAST_VERSION, min(model.ir_version for _, model in models))
    )


def _gather(graph: GraphProto, source: ValueInfoProto, first: int, batch: bool) -> list[NodeProto]:
    """The nodes that gather one input from the numbers of the joint input from `first` on."""
    shape = _shape(source)
    indices = _constant(graph, f"{source.name}_places", list(range(first, first + prod(shape))))
    row, after = f"{source.name}_row", _constant(graph, f"{source.name}_shape", list(shape))
    gather = helper.make_node("Gather", [INPUT, indices], [row], axis=int(batch))  # alike in all operator sets
    return [gather, helper.make_node("Reshape", [row, after], [source.name])]


def _constant(graph: GraphProto, name: str, numbers: list[int]) -> str:
    graph.initializer.append(numpy_helper.from_array(np.array(numbers, dtype=np.int64), name))
    return name


def _shape(entry: ValueInfoProto) -> Shape:
    """The shape of an input or output; a first axis that is left open counts examples and has length 1."""
    if entry.type.tensor_type.elem_type not in (TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE):
        raise UnsupportedError(f"{entry.name} is no tensor of floating-point numbers")
    sizes = [axis.dim_value for axis in entry.type.tensor_type.shape.dim]
    if sizes and not sizes[0]:
        sizes[0] = 1
    if not all(sizes):
        raise UnsupportedError(f"the shape of {entry.name} is open, so that it can't be joined with others")
    return tuple(sizes)


def _check(file: JoinedFile, graph: GraphProto) -> None:
    """Refuses a file whose inputs and outputs are not the expected ones, up to axes of length one."""
    for role, expected, entries in (
        ("inputs", file.inputs, open_inputs(graph)),
        ("outputs", file.outputs, graph.output),
    ):
        shapes = [_shape(entry) for entry in entries]
        if [_long(shape) for shape in shapes] != [_long(shape) for shape in expected]:
            wanted, present = (", ".join(map(str, listed)) for listed in (expected, shapes))
            raise UnsupportedError(f"{file.path} has {role} of shape {present}; the property declares {wanted}")


def _long(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)
