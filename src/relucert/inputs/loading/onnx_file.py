"""A network from an ONNX file: read with `onnx`, translated, and compared with a runtime, onnxruntime if it can."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    external_data_helper,
    helper,
    numpy_helper,
)
from onnx.reference import ReferenceEvaluator
from torch import Tensor

from relucert.common import packed
from relucert.common.progress import Report, silent
from relucert.errors import InputError, LoadError, NetworkError, OpenShapeError, UnsupportedError
from relucert.inputs.loading.allowance import Allowance, standalone
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.compare import compare, in_batches, one_by_one
from relucert.inputs.loading.onnx_rules import EXACT, PRECISIONS, RULES, OnnxCall
from relucert.inputs.loading.operands import Operand
from relucert.inputs.loading.paths import MOST_BYTES, check_file, name_of, one_line
from relucert.inputs.loading.walk import OperatorCall, Translator
from relucert.network import Network, Shape

BATCH = 3
"""The batch size assumed where the model leaves it open; the comparison with onnxruntime uses another one."""

OLDEST = 7
"""The first operator set with today's broadcasting; onnxruntime starts there too."""

TOO_NEW = ("under development", "Unsupported model IR version")
"""What onnxruntime says about operator sets, and about representations, that are newer than itself."""

DOMAINS = ("", "ai.onnx")  # of ONNX's own operators
INPUTS = (TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE)  # the types that inputs may have
RANDOM = ("Random", "Bernoulli", "Multinomial")  # how the names of random operators begin


def load_onnx(path: Path, input_shape: Shape | None, report: Report = silent) -> Network:
    """The network an ONNX file describes; its tensors keep their stored precision and values."""
    model = read_model(path)
    source = _only_input(model.graph, path)
    if source.type.tensor_type.elem_type not in INPUTS:
        raise UnsupportedError(
            f"{path}: inputs must be FLOAT16, FLOAT or DOUBLE, not of type {source.type.tensor_type.elem_type}"
        )
    axes = [axis.dim_value or None for axis in source.type.tensor_type.shape.dim]
    if not axes:
        raise UnsupportedError(f"{path}: the input {source.name!r} has no axis")
    if len(axes) == 1:
        return _load(model, path, axes, None, input_shape, report)
    try:
        return _load(model, path, axes[1:], axes[0] or BATCH, input_shape, report)
    except (UnsupportedError, NetworkError) as error:
        if axes[0] is None:
            raise
        with suppress(UnsupportedError, NetworkError, InputError):
            return _load(model, path, axes, None, input_shape, report)
        raise error


def _load(
    model: ModelProto, path: Path, axes: list[int | None], batch: int | None, input_shape: Shape | None,
    report: Report,
) -> Network:  # fmt: skip
    """The network of a model whose images have these axes.

    batch: the size of the axis before them, which counts images; None if there is no such axis.
    """
    source = _only_input(model.graph, path)
    precision = source.type.tensor_type.elem_type
    allowance, shape = Allowance(path, model.ByteSize()), _image_shape(axes, input_shape, path)
    allowance.check(prod(shape) * (batch or 1), f"the input {source.name!r}")
    walk = Translator(Assembly(shape, batch, PRECISIONS[precision], count=allowance.take_node))
    walk.operands[source.name] = 0
    _translate(walk, model, allowance)
    output = model.graph.output[0].name
    network = walk.finish(output, name_of(path))
    ranking = walk.ranking(output)
    scores = None if ranking is None else _value_info(model, ranking.scores, precision)
    runtime = _runtime(model, path, source.name, scores)
    fixed = source.type.tensor_type.shape.dim[0].dim_value or None
    run = in_batches(runtime, fixed) if batch is not None else one_by_one(runtime)
    compare(network, run, PRECISIONS[precision], "onnxruntime", walk.assembly.casts, report)
    return network


def read_model(path: Path) -> ModelProto:
    """The model in a file; raises LoadError where that is no model that can be used."""
    check_file(path)
    try:
        model = onnx.load_model_from_string(packed.content(path, MOST_BYTES))
        external_data_helper.load_external_data_for_model(model, str(path.parent))
        onnx.checker.check_model(model)
    except (DecodeError, onnx.checker.ValidationError, OSError, ValueError) as error:
        raise LoadError(f"{path} is no valid ONNX file, export it again: {one_line(error)}") from error
    if _version(model) < OLDEST:
        raise UnsupportedError(f"{path} uses operator set {_version(model)}; export it with {OLDEST} or later")
    if model.graph.sparse_initializer:
        raise UnsupportedError(f"{path} stores sparse tensors; export it with dense ones")
    needed = _needed(model.graph)
    used = [node for node in model.graph.node if needed.intersection(node.output)]
    if len(used) < len(model.graph.node):  # a runtime would compute the others, too
        del model.graph.node[:]
        model.graph.node.extend(used)
    return model


def _version(model: ModelProto) -> int:
    return min((entry.version for entry in model.opset_import if entry.domain in DOMAINS), default=OLDEST)


def open_inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """The inputs of a graph; those that are stored are none."""
    stored = {tensor.name for tensor in graph.initializer}
    return [entry for entry in graph.input if entry.name not in stored]


def _only_input(graph: GraphProto, path: Path) -> ValueInfoProto:
    inputs = open_inputs(graph)
    if len(inputs) != 1 or len(graph.output) != 1:
        raise UnsupportedError(
            f"{path} has the inputs {[entry.name for entry in inputs]} and the outputs "
            f"{[entry.name for entry in graph.output]}; a network has one of each"
        )
    return inputs[0]


def _image_shape(axes: list[int | None], input_shape: Shape | None, path: Path) -> Shape:
    """The shape of one image, from the model's axes (None where one is open) and the user's shape, if there is one."""
    shown = f"({', '.join('?' if axis is None else str(axis) for axis in axes)})"
    if input_shape is None:
        shape = tuple(axis for axis in axes if axis is not None)
        if len(shape) != len(axes):
            raise OpenShapeError(f"{path} leaves the shape of its images open, {shown}; pass input_shape")
        return shape
    filled = [size if axis is None else axis for axis, size in zip(axes, input_shape, strict=False)]
    if len(input_shape) != len(axes) or filled != list(input_shape):
        raise InputError(f"{path} takes images of shape {shown}, not input_shape={input_shape}")
    return input_shape


def _value_info(model: ModelProto, name: str, precision: int) -> ValueInfoProto:
    """The type of a value inside the model, as its output."""
    types = {
        entry.name: entry.type.tensor_type.elem_type
        for entry in onnx.shape_inference.infer_shapes(model).graph.value_info
    }
    return helper.make_tensor_value_info(name, types.get(name, precision), None)


def _translate(walk: Translator, model: ModelProto, allowance: Allowance) -> None:
    """Translates every node, in order."""
    needed = _needed(model.graph)
    for tensor in model.graph.initializer:
        if tensor.name in needed:
            walk.operands[tensor.name] = _tensor(numpy_helper.to_array(tensor))
    for node in model.graph.node:
        several = node.op_type in RULES and RULES[node.op_type].several
        used = [output for output in node.output if output in needed]
        for output in used if several else node.output[:1]:
            walk.take(_step(walk, node, output, needed, _version(model), allowance))


def _needed(graph: GraphProto) -> set[str]:
    """The names of all values that the outputs depend on."""
    needed = {output.name for output in graph.output}
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
    return needed


def _step(
    walk: Translator, node: NodeProto, output: str, needed: set[str], version: int, allowance: Allowance
) -> OperatorCall:
    """The step that computes one output of a node."""
    sources = tuple(source for source in node.input if source)
    location = f"node {node.name}" if node.name else f"the node of {output}"
    if node.domain not in DOMAINS:
        return OperatorCall(f"{node.domain}.{node.op_type}", location, sources, output)
    attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}

    def checked_inputs() -> list[Operand | None]:
        inputs = [walk.operands[source] if source else None for source in node.input]
        allowance.check_node(node, output, version, inputs, walk.assembly)
        return inputs

    def fold() -> Tensor:
        folded = _evaluated(node, output, version, checked_inputs())
        allowance.take(folded.numel())
        return folded

    exact, cast = node.op_type in EXACT, node.op_type in ("Cast", "CastLike")
    foldable = None if _is_open(node) else fold
    if node.op_type not in RULES:
        return OperatorCall(node.op_type, location, sources, output, None, foldable, exact=exact, cast=cast)
    rule = RULES[node.op_type]
    flaws = [f"{name}={value}" for name, value in attributes.items() if not rule.accepts(name, value)]
    if not rule.several:
        flaws += [f"the use of its output {name!r}" for name in node.output[1:] if name in needed]

    def translate() -> Operand:
        inputs = checked_inputs()

        def run(changed: Mapping[int, Tensor]) -> Tensor:
            return _evaluated(
                node, output, version, [changed.get(position, operand) for position, operand in enumerate(inputs)]
            )

        return rule.translate(walk.assembly, OnnxCall(tuple(inputs), attributes, run, version))

    return OperatorCall(
        node.op_type, location, sources, output, translate, foldable, tuple(flaws), rule.keeps_order, exact, cast
    )


def _is_open(node: NodeProto) -> bool:
    """Whether no constant stands for a node: it is random, or runs graphs of its own, perhaps for ever."""
    graphs = any(entry.HasField("g") or entry.graphs for entry in node.attribute)
    return graphs or node.op_type.startswith(RANDOM)


def _evaluated(node: NodeProto, output: str, version: int, inputs: Sequence[Operand | None]) -> Tensor:
    """One output of a node at constants, computed by ONNX's reference evaluator."""
    feeds = {str(position): np.asarray(operand) for position, operand in enumerate(inputs) if operand is not None}
    # Wrapped in a graph, since a bare node would be evaluated with the newest operator set.
    sources = [helper.make_empty_tensor_value_info(source) for source in feeds]
    results = [helper.make_empty_tensor_value_info(output)]
    graph = helper.make_graph([standalone(node, inputs)], "alone", sources, results)
    try:
        outputs = list(ReferenceEvaluator(graph, opsets={"": version}).run(None, feeds))
    except Exception as error:
        raise UnsupportedError(f"fails: {one_line(error)}") from error
    return _tensor(np.asarray(outputs[0]))


def _tensor(array: np.ndarray[Any, Any]) -> Tensor:
    try:
        return torch.from_numpy(array.copy())
    except TypeError:
        raise UnsupportedError(f"a constant of type {array.dtype}") from None


def runtime(path: Path, shape: Shape) -> tuple[Callable[[Tensor], Tensor], str, torch.dtype]:
    """The function that an ONNX file computes, from one input (size,) to its outputs, flat; the name of the runtime,
    which is onnxruntime with its default options; and the precision of inputs.

    shape: of one input, without the batch.
    """
    model = read_model(path)
    source = _only_input(model.graph, path)
    try:
        session = _session(model, onnxruntime.SessionOptions())
    except Exception as error:
        raise LoadError(f"onnxruntime can't run {path}: {one_line(error)}") from error
    by = "ONNX's reference evaluator" if isinstance(session, ReferenceEvaluator) else "onnxruntime"
    axes = source.type.tensor_type.shape.dim
    batch = (axes[0].dim_value or 1,) if len(axes) > len(shape) else ()
    precision = PRECISIONS[source.type.tensor_type.elem_type]

    def run(point: Tensor) -> Tensor:
        images = point.to(precision).reshape(shape).expand(*batch, *shape)
        outputs = torch.from_numpy(np.asarray(session.run(None, {source.name: images.numpy()})[0]))
        return (outputs[0] if batch else outputs).flatten()

    return run, by, precision


def _runtime(model: ModelProto, path: Path, source: str, scores: ValueInfoProto | None) -> Callable[[Tensor], Tensor]:
    """A function that runs onnxruntime up to the scores, or, without those, up to the model's output."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if scores is not None:
        del model.graph.output[:]
        model.graph.output.append(scores)

    def run(images: Tensor) -> Tensor:
        by = "onnxruntime"
        try:
            session = _session(model, options)
            by = "the reference evaluator" if isinstance(session, ReferenceEvaluator) else by
            outputs = session.run(None, {source: images.numpy()})
        except Exception as error:
            raise LoadError(f"{path} can't be checked, {by} fails: {one_line(error)}") from error
        return _tensor(np.asarray(outputs[0]))

    return run


def _session(model: ModelProto, options: onnxruntime.SessionOptions) -> Any:
    """The model in onnxruntime, or where it is newer than that in ONNX's reference evaluator."""
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if any(words in str(error) for words in TOO_NEW):
            return ReferenceEvaluator(model)
        raise
