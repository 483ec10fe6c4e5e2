"""A network from a `torch.nn.Module`: a copy is exported, translated, and compared with the module itself."""

from __future__ import annotations

import io
import logging
import operator
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from copy import deepcopy
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.node import Node, map_arg

from relucert.errors import InputError, LoadError
from relucert.loading.assembly import PRECISIONS, Assembly, Operand
from relucert.loading.compare import compare, probes
from relucert.loading.paths import one_line
from relucert.loading.torch_rules import MOVES, RULES, Call, Reference
from relucert.loading.walk import Step, Walk
from relucert.network import Network, Shape

BATCH = 3
"""The batch size used for tracing; the comparison uses another one, so a module with a fixed batch size is noticed."""

_PLAIN_NAMES = {
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_to_copy": "to (a change of precision)",
}
_FAMILIES = {name.split(".")[0] for name in RULES}


def load_module(module: nn.Module, input_shape: Shape | None) -> Network:
    """The network that a module computes in evaluation mode, hooks included; only copies of the module are called."""
    name = type(module).__name__
    with torch.no_grad(), _quiet():
        precision = _precision(module, name)
        shape = input_shape or _guess(module, name, precision)
        images = torch.zeros(BATCH, *shape, dtype=precision)
        run_module(_copy(module, name), images, name)
        program, casts = _export(_copy(module, name), images, name)
        network = _translate(program, shape, name)
        runtime, precision = _runtime(module, shape, name, widen=not casts)
        compare(network, lambda inputs: run_module(runtime, inputs, name), precision, "torch")
    return network


def live_network(module: nn.Module, input_shape: Shape | None = None) -> Callable[[], Network]:
    """A function that returns the module's network with its current weights; gradients flow back to the weights.

    The module is checked and traced once, here: afterwards its weights may change, but not what it computes with them.
    """
    name = type(module).__name__
    shape = load_module(module, input_shape).input_shape
    with torch.no_grad(), _quiet():
        images = torch.zeros(BATCH, *shape, dtype=_precision(module, name))
        program, _ = _export(_copy(module, name), images, name)

    def current() -> Network:
        live = dict(
            chain(module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
        )
        return _translate(program, shape, name, live)

    return current


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the exporter from writing logs, warnings and unfinished graphs to the terminal."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _copy(module: nn.Module, name: str) -> nn.Module:
    try:
        return deepcopy(module).cpu().eval()
    except Exception as error:
        raise LoadError(f"{name} can't be copied: {one_line(error)}") from error


def _precision(module: nn.Module, name: str) -> torch.dtype:
    """The precision of the first stored tensor, in which the module expects its inputs."""
    stored = chain(module.parameters(), module.buffers())
    precision = next((tensor.dtype for tensor in stored if tensor.is_floating_point()), torch.float32)
    if precision not in PRECISIONS:
        raise LoadError(f"{name} stores {precision}; convert it to float16, bfloat16, float32 or float64")
    return precision


def _guess(module: nn.Module, name: str, precision: torch.dtype) -> Shape:
    """The input size of the first linear layer, if the module runs on flat inputs of that size."""
    first = next((layer for layer in module.modules() if isinstance(layer, nn.Linear)), None)
    if first is not None and first.in_features > 0:
        with suppress(LoadError):
            run_module(_copy(module, name), torch.zeros(BATCH, first.in_features, dtype=precision), name)
            return (first.in_features,)
    raise InputError(f"{name} does not tell the shape of its input; pass input_shape, without the batch")


def run_module(module: nn.Module, images: Tensor, name: str) -> Tensor:
    """The module's output; whatever the user's code raises becomes a LoadError of one line."""
    try:
        output = module(images)
    except Exception as error:
        shape = tuple(images.shape)
        raise LoadError(f"{name} fails on inputs of shape {shape}: {one_line(error)}") from error
    if not isinstance(output, Tensor):
        raise LoadError(f"{name} must return one tensor of class scores, not {type(output).__name__}")
    return output


def _runtime(module: nn.Module, shape: Shape, name: str, widen: bool) -> tuple[nn.Module, torch.dtype]:
    """The copy to compare with and its precision: float64 if the module runs in it, which shows the smallest errors."""
    if widen:
        with suppress(LoadError):
            run_module(_copy(module, name).double(), probes(shape).double(), name)
            return _copy(module, name).double(), torch.float64
    return _copy(module, name), _precision(module, name)


def _export(module: nn.Module, images: Tensor, name: str) -> tuple[ExportedProgram, bool]:
    """The module as a program without in-place operators, and whether its code casts to a fixed precision anywhere.

    A module with such a cast would compute in float64 only in part.
    """
    try:
        program = torch.export.export(module, (images,))
        casts = any(_operator(node).startswith("to.") for node in program.graph.nodes)
        return program.run_decompositions({}), casts
    except Exception as error:
        raise LoadError(f"{name} can't be traced by torch.export: {one_line(error)}") from error


def _translate(program: ExportedProgram, shape: Shape, name: str, live: dict[str, Tensor] | None = None) -> Network:
    """The exported program as a network; live: tensors by name that replace the exported ones."""
    walk = Walk(Assembly(shape, BATCH, live is not None))
    signature = program.graph_signature
    stored = {**program.state_dict, **program.constants, **(live or {})}
    for entry in signature.input_specs:
        if entry.kind is InputKind.USER_INPUT:
            walk.operands[entry.arg.name] = 0
        elif isinstance(constant := stored.get(str(entry.target)), Tensor):
            walk.operands[entry.arg.name] = constant
    output = next(entry.arg.name for entry in signature.output_specs if entry.kind is OutputKind.USER_OUTPUT)
    for node in _needed(program, output):
        # getitem picks one of several results; no supported operator has several, so its source is refused already.
        if node.target is not operator.getitem:
            walk.take(_step(walk, node))
    return walk.finish(output, name)


def _needed(program: ExportedProgram, output: str) -> list[Node]:
    """The calls that the output depends on, in order."""
    nodes = list(program.graph.nodes)
    needed = {output}
    for node in reversed(nodes):
        if node.name in needed:
            needed.update(source.name for source in node.all_input_nodes)
    return [node for node in nodes if node.name in needed and node.op == "call_function"]


def _operator(node: Node) -> str:
    """The operator's name without its namespace, as in `conv2d` or `div.Tensor_mode`."""
    return str(node.target).removeprefix("aten.").removesuffix(".default")


def _label(name: str) -> str:
    """The operator's name in error messages: its family, unless another member of the family is supported."""
    family = name.split(".")[0]
    return _PLAIN_NAMES.get(family, name if family in _FAMILIES and name not in RULES else family)


def _step(walk: Walk, node: Node) -> Step:
    name = _operator(node)
    label = _label(name)
    sources = tuple(source.name for source in node.all_input_nodes)
    move = (lambda: _moved(walk, node)) if name in MOVES else None
    if name not in RULES:
        return Step(label, sources, node.name, None, move)
    understood = RULES[name].arguments
    flaws = tuple(
        f"{key}={value}"
        for key, (value, default) in _arguments(node).items()
        if key not in understood and value != default
    )
    return Step(label, sources, node.name, lambda: _called(walk, node), move, flaws)


def _arguments(node: Node) -> dict[str, tuple[Any, Any]]:
    """Every argument of the operator's schema by name: the value given and the default."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    given = {**dict(zip((entry.name for entry in schema), node.args, strict=False)), **node.kwargs}
    return {entry.name: (given.get(entry.name, entry.default_value), entry.default_value) for entry in schema}


def _called(walk: Walk, node: Node) -> Operand:
    """The operand that the call of a known operator becomes."""
    arguments = {
        key: Reference(walk.operands[value.name]) if isinstance(value, Node) else value
        for key, (value, _) in _arguments(node).items()
    }
    return RULES[_operator(node)].translate(walk.assembly, Call(arguments, tuple(node.meta["val"].shape)))


def _moved(walk: Walk, node: Node) -> Tensor:
    """The constant that an operator of MOVES makes of constants, computed by running the operator."""
    call: Any = node.target
    result: Tensor = call(
        *map_arg(node.args, lambda source: walk.operands[source.name]),
        **map_arg(dict(node.kwargs), lambda source: walk.operands[source.name]),
    )
    return result
