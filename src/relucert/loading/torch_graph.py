"""A `torch.nn.Module` as a traced program, and the program as a network."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.node import Node, map_arg

from relucert.errors import LoadError, UnsupportedError
from relucert.loading.assembly import Assembly, Operand
from relucert.loading.paths import one_line
from relucert.loading.torch_rules import MOVES, RULES, Call, Reference
from relucert.loading.walk import Step, Walk
from relucert.network import Network

_PLAIN_NAMES = {
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_to_copy": "to",
}
_FAMILIES = {name.split(".")[0] for name in RULES}
_SUPPORTED = {family.lstrip("_") for family in _FAMILIES}
_CASTS = ("to.", "_to_copy")


@dataclass(frozen=True)
class Translation:
    """A network and how it was translated.

    left_out: how many last layers were left out, since they keep the scores' order; casts: the precisions changed to;
    folded: whether constants were computed from constants, in the precision of the module.
    """

    network: Network
    left_out: int
    casts: frozenset[torch.dtype]
    folded: bool


def trace(module: nn.Module, images: Tensor, name: str) -> tuple[ExportedProgram, bool]:
    """The module as a program without in-place operators, and whether its code casts to a fixed precision anywhere.

    A module with such a cast would compute in float64 only in part.
    """
    try:
        program = torch.export.export(module, (images,))
        casts = any(_operator(node).startswith(_CASTS) for node in program.graph.nodes)
        return program.run_decompositions({}), casts
    except Exception as error:
        raise LoadError(
            f"{name} can't be traced by torch.export; its forward must not branch on values or leave torch: "
            f"{one_line(error)}"
        ) from error


def translate(
    program: ExportedProgram, images: Tensor, name: str, live: dict[str, Tensor] | None = None
) -> Translation:
    """The program as a network.

    images: what it was traced with; live: tensors that replace the traced ones, by name.
    """
    walk = Walk(Assembly(tuple(images.shape[1:]), len(images), images.dtype, live is not None))
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
    ranking = walk.ranking(output)
    network = walk.finish(output, name, _SUPPORTED)
    left_out = 0 if ranking is None else len(ranking.layers)
    return Translation(network, left_out, frozenset(walk.assembly.casts), bool(walk.folded))


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


def _place(node: Node) -> str:
    """The innermost layer that calls the operator: its path and class, as in `layer features.3 (GELU)`."""
    path, layer = list((node.meta.get("nn_module_stack") or {"": ("", "")}).values())[-1]
    return f"layer {path} ({str(layer).rpartition('.')[2]})" if path else "the top level of forward"


def _step(walk: Walk, node: Node) -> Step:
    name = _operator(node)
    label, place = _label(name), _place(node)
    sources = tuple(source.name for source in node.all_input_nodes)
    random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    fold = None if random else partial(_folded, walk, node)
    if name not in RULES:
        return Step(label, place, sources, node.name, None, fold, exact=name in MOVES)
    rule = RULES[name]
    flaws = tuple(
        f"{key}={value}"
        for key, (value, default) in _arguments(node).items()
        if key not in rule.arguments and value != default
    )
    called = partial(_called, walk, node)
    return Step(label, place, sources, node.name, called, fold, flaws, rule.keeps_order, name in MOVES)


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


def _folded(walk: Walk, node: Node) -> Tensor:
    """The constant that an operator makes of constants, computed by running it."""
    call: Any = node.target
    try:
        result = call(
            *map_arg(node.args, lambda source: walk.operands[source.name]),
            **map_arg(dict(node.kwargs), lambda source: walk.operands[source.name]),
        )
    except Exception as error:
        raise UnsupportedError(f"of constants, fails: {one_line(error)}") from error
    if not isinstance(result, Tensor):
        raise UnsupportedError("several results of constants")
    return result
