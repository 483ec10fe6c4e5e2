"""A `torch.nn.Module` as a traced program, and the program as a network."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.node import Node, map_arg

from relucert.errors import LoadError, UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.operands import Operand
from relucert.inputs.loading.paths import one_line
from relucert.inputs.loading.torch_record import TracedProgram, record, watch
from relucert.inputs.loading.torch_rules import CASTS, EXACT, RULES, Reference, TorchCall
from relucert.inputs.loading.walk import SUPPORTED as SUPPORTED_LAYERS
from relucert.inputs.loading.walk import OperatorCall, Translator
from relucert.network import Network

_PLAIN_NAMES = {
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_native_batch_norm_legit": "batch_norm",
    "native_batch_norm": "batch_norm",
    "convolution": "conv2d",
    "_to_copy": "to",
}
_FAMILIES = {name.split(".")[0] for name in RULES}
SUPPORTED = {_PLAIN_NAMES.get(family, family).lstrip("_") for family in _FAMILIES}
"""The operators that are understood, as users call them."""


@dataclass(frozen=True)
class Translation:
    """A network and how it was translated.

    omitted: how many last layers were left out, since they keep the scores' order; casts: the precisions changed to;
    folded: whether constants were computed from constants, in the precision of the module.
    """

    network: Network
    omitted: int
    casts: frozenset[torch.dtype]
    folded: bool


def trace(module: nn.Module, images: Tensor, name: str) -> tuple[TracedProgram, Translation]:
    """The module's program and its translation: recorded where it is plain and all of it is understood, else
    exported."""
    recorded = record(module, images)
    if recorded is not None:
        with suppress(UnsupportedError):
            return recorded, translate(recorded, images, name)
    watched = watch(module, images)
    if isinstance(watched.error, UnsupportedError):  # which our attention raises
        raise UnsupportedError(f"{name}: {watched.error}; {SUPPORTED_LAYERS}")
    from relucert.inputs.loading.torch_export import exported  # which takes a second to import

    program = exported(module, images, name)
    if watched.asks_for_values:  # and hides it from the exporter
        raise LoadError(f"{name} asks for values of its input, as in item() or a condition: it must not branch on them")
    return program, translate(program, images, name)


def translate(program: TracedProgram, images: Tensor, name: str, live: dict[str, Tensor] | None = None) -> Translation:
    """The program as a network.

    images: what it was traced with; live: tensors that replace the traced ones, by name.
    """
    walk = Translator(Assembly(tuple(images.shape[1:]), len(images), images.dtype, live is not None))
    tensors = {**program.tensors, **(live or {})}
    walk.operands[program.image] = 0
    for node_name, target in program.stored.items():
        walk.operands[node_name] = tensors[target]
    for node in _needed(program):
        if not isinstance(node.meta.get("val"), tuple | list):  # one of several results has a node that picks it
            walk.take(_step(walk, node))
    ranking = walk.ranking(program.output)
    network = walk.finish(program.output, name)
    omitted = 0 if ranking is None else len(ranking.layers)
    return Translation(network, omitted, frozenset(walk.assembly.casts), bool(walk.folded))


def _needed(program: TracedProgram) -> list[Node]:
    """The calls that the output depends on, in order."""
    needed = {program.output}
    for node in reversed(program.nodes):
        if node.name in needed:
            needed.update(source.name for source in node.all_input_nodes)
    return [node for node in program.nodes if node.name in needed and node.op == "call_function"]


def _operator(node: Node) -> str:
    """The operator's name without its namespace, as in `conv2d` or `div.Tensor_mode`."""
    return str(node.target).removeprefix("aten.").removesuffix(".default")


def _label(name: str) -> str:
    """The operator's name in error messages: its family, unless another member of the family is supported."""
    family = name.split(".")[0]
    return _PLAIN_NAMES.get(family, name if family in _FAMILIES and name not in RULES else family)


def _location(node: Node) -> str:
    """The innermost layer that calls the operator: its path and class, as in `layer features.3 (GELU)`."""
    path, layer = list((node.meta.get("nn_module_stack") or {"": ("", "")}).values())[-1]
    return f"layer {path} ({str(layer).rpartition('.')[2]})" if path else "the top level of forward"


def _step(walk: Translator, node: Node) -> OperatorCall:
    call, number = _picked(node)
    name = _operator(call)
    label, location = _label(name), _location(call)
    sources = tuple(source.name for source in call.all_input_nodes)
    random = torch.Tag.nondeterministic_seeded in getattr(call.target, "tags", ())
    fold = None if random else partial(_folded, walk, node)
    exact, cast = name in EXACT, name in CASTS
    if name not in RULES:
        return OperatorCall(label, location, sources, node.name, None, fold, exact=exact, cast=cast)
    rule = RULES[name]
    flaws = tuple(
        f"{key}={value}"
        for key, (value, default) in _arguments(call).items()
        if rule.arguments is not None and key not in rule.arguments and value != default
    )
    if number and not rule.several:
        flaws += (f"the use of its result {number}",)
    translate = partial(_called, walk, node)
    return OperatorCall(label, location, sources, node.name, translate, fold, flaws, rule.keeps_order, exact, cast)


def _picked(node: Node) -> tuple[Node, int | None]:
    """The call whose result a node is, and the number of that result where the call has several."""
    if node.target is not operator.getitem:
        return node, None
    call, number = node.args
    assert isinstance(call, Node)
    assert isinstance(number, int)
    return call, number


def _arguments(node: Node) -> dict[str, tuple[Any, Any]]:
    """Every argument of the operator's schema by name: the value given and the default."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    arguments = {**dict(zip((entry.name for entry in schema), node.args, strict=False)), **node.kwargs}
    return {entry.name: (arguments.get(entry.name, entry.default_value), entry.default_value) for entry in schema}


def _called(walk: Translator, node: Node) -> Operand:
    """The operand that the call of a known operator becomes."""
    call, _ = _picked(node)

    def refer(source: Node) -> Any:
        return Reference(walk.operands[source.name])

    arguments = map_arg({key: value for key, (value, _) in _arguments(call).items()}, refer)
    shape = tuple(node.meta["val"].shape)
    return RULES[_operator(call)].translate(walk.assembly, TorchCall(arguments, shape, partial(_run, walk, node)))


def _run(walk: Translator, node: Node, changed: Mapping[str, Any]) -> Any:
    """What the call of an operator gives at constants, with some arguments changed."""
    call, number = _picked(node)
    plain = {key: value for key, (value, _) in _arguments(call).items() if key not in changed}
    target: Any = call.target
    result = target(**map_arg(plain, lambda source: walk.operands[source.name]), **changed)
    return result if number is None else result[number]


def _folded(walk: Translator, node: Node) -> Tensor:
    """The constant that an operator makes of constants, computed by running it."""
    try:
        result = _run(walk, node, {})
    except Exception as error:
        raise UnsupportedError(f"of constants, fails: {one_line(error)}") from error
    if not isinstance(result, Tensor):
        raise UnsupportedError("several results of constants")
    return result
