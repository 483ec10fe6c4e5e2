"""Networks in safetensors files: the tensors as they are, the graph as JSON in the metadata.

A tensor is named `{value}.{field}`, as in `1.weight`: the index of the value that its node computes (0 is
the input) and the field of the operation. The metadata entry `relucert` holds
`{"format": 2, "name": ..., "input_shape": [...], "nodes": [...]}`, each node
`{"operation": "linear", "inputs": [0], "settings": {...}}`, with `"exact": true` where it is part of a layer that only
selects numbers, and `"roundings": n` where it is part of a sum in which more meet than in the operation itself; and,
where there is something to say, `input_range` (the lowest and the highest number of an input), `picture_shape`,
`remarks` and `real_only` (texts). Every other entry is free text about the network.

Format 1 did not say which operations are parts of one sum, so all that might be are taken for such, and exact nodes
for others unless they select numbers as they are written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor

from relucert.errors import InputError, LoadError, NetworkError
from relucert.inputs.loading.operands import PRECISIONS
from relucert.inputs.loading.paths import check_file, one_line
from relucert.inputs.loading.selections import check_selections
from relucert.inputs.storage import files
from relucert.network import Add, Affine, Convolution, Linear, Network, Node, Operation, find
from relucert.network.fingerprint import rounding_marks

FORMAT, OLDER = 2, 1
ENTRY = "relucert"
TEXTS = ("remarks", "real_only")  # entries of the network that are lists of texts
MARKS = ("exact", "roundings")  # optional entries of a node
SIZE = 8  # bytes that tell the length of the header, which is a multiple of them
OPTIONAL = ("input_range", "picture_shape", "remarks", "real_only")  # present where there is something to say


def check_suffix(path: Path) -> None:
    if path.suffix.lower() != ".safetensors":
        raise InputError(f"{path} must end in .safetensors")


def save_safetensors(network: Network, path: Path, about: Mapping[str, str]) -> None:
    """Writes the network and the texts about it; the file appears whole or not at all.

    The same network and texts give the same bytes.
    """
    _check_about(about)
    for node in network.nodes:
        find(node.operation.name)  # what is not registered could not be read again
    tensors = {
        f"{value}.{field}": tensor.contiguous().clone()
        for value, node in network.steps()
        for field, tensor in node.operation.tensors().items()
    }
    content = serialise(tensors, {**about, ENTRY: json.dumps(_graph(network))})
    files.sweep(path)
    files.write(path, _ordered(content))


def _ordered(content: bytes) -> bytes:
    """The content of a file with its texts sorted by their names: safetensors puts them into any order."""
    start = SIZE + int.from_bytes(content[:SIZE], "little")
    header = json.loads(content[SIZE:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % SIZE)  # tensors are aligned
    return len(text).to_bytes(SIZE, "little") + text + content[start:]


def load_safetensors(path: Path) -> Network:
    """The network that `save_safetensors` wrote, named after the file."""
    metadata, tensors = _read(path)
    graph = _parse(metadata, path)
    nodes = []
    for value, entry in enumerate(graph["nodes"], start=1):
        prefix = f"{value}."
        node_tensors = {key.removeprefix(prefix): tensors.pop(key) for key in list(tensors) if key.startswith(prefix)}
        nodes.append(_node(entry, node_tensors, f"{path}: node {value}"))
    if tensors:
        raise LoadError(f"{path}: no node has the tensors {sorted(tensors)}")
    optional: dict[str, Any] = {key: tuple(graph[key]) for key in OPTIONAL if key in graph}
    network = Network(tuple(graph["input_shape"]), tuple(nodes), path.stem, **optional)
    if graph["format"] == OLDER:
        return replace(network, nodes=tuple(joint_sums(network)))
    check_selections(network)
    return network


def about(path: Path) -> dict[str, str]:
    """The texts stored with the network."""
    metadata, _ = _read(path)
    _parse(metadata, path)
    return {key: text for key, text in metadata.items() if key != ENTRY}


def _check_about(about: object) -> None:
    texts = isinstance(about, Mapping) and all(_is_text(text) for pair in about.items() for text in pair)
    if not texts or (isinstance(about, Mapping) and ENTRY in about):
        raise InputError(f"about must map strings to strings, and can't have the key {ENTRY!r}")


def _is_text(text: object) -> bool:
    """Whether this is a string that can be written as UTF-8."""
    return isinstance(text, str) and text.encode(errors="ignore").decode() == text


def _graph(network: Network) -> dict[str, Any]:
    nodes = [
        {"operation": node.operation.name, "inputs": list(node.inputs), "settings": node.operation.settings()}
        | rounding_marks(node)
        for node in network.nodes
    ]
    graph = {"format": FORMAT, "name": network.name, "input_shape": list(network.input_shape), "nodes": nodes}
    graph |= {key: list(texts) for key in TEXTS if (texts := getattr(network, key))}
    if network.input_range is not None:
        graph["input_range"] = [float(end) for end in network.input_range]
    if network.picture_shape is not None:
        graph["picture_shape"] = list(network.picture_shape)
    return graph


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    check_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            return file.metadata() or {}, {name: file.get_tensor(name).clone() for name in names}
    except (SafetensorError, OSError) as error:
        raise LoadError(f"{path} is no whole safetensors file, write it again: {one_line(error)}") from error


def _parse(metadata: Mapping[str, str], path: Path) -> dict[str, Any]:
    """The graph in the metadata, with the type of everything in it checked."""
    if ENTRY not in metadata:
        raise LoadError(
            f"{path} has weights but no network: relucert.save writes the graph into the metadata entry "
            f"{ENTRY!r} and names the tensors like 1.weight; load the torch.nn.Module and save it that way"
        )
    try:
        graph = json.loads(metadata[ENTRY])
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{path}: the metadata entry {ENTRY!r} is no JSON: {one_line(error)}") from error
    if not isinstance(graph, dict) or graph.get("format") not in (FORMAT, OLDER):
        raise LoadError(f"{path}: expected a network in format {FORMAT}; it may come from a newer relucert")
    if set(graph) - set(OPTIONAL) != {"format", "name", "input_shape", "nodes"}:
        raise LoadError(f"{path}: the network has the entries {sorted(graph)}")
    if not isinstance(graph["name"], str) or not isinstance(graph["nodes"], list):
        raise LoadError(f"{path}: the name must be a string and the nodes a list")
    for key in ("input_shape", "picture_shape"):
        if not _numbers(graph.get(key, [])):
            raise LoadError(f"{path}: the {key} must be a list of counts, not {graph[key]!r}")
    for key in TEXTS:
        if not isinstance(texts := graph.get(key, []), list) or not all(isinstance(text, str) for text in texts):
            raise LoadError(f"{path}: the {key} must be a list of texts, not {texts!r}")
    ends = graph.get("input_range", [0.0, 1.0])
    if not isinstance(ends, list) or len(ends) != 2 or not all(type(end) is float for end in ends):
        raise LoadError(f"{path}: the input_range must be two numbers with a point, not {ends!r}")
    return graph


def _node(entry: object, tensors: dict[str, Tensor], where: str) -> Node:
    if not isinstance(entry, dict) or set(entry) - set(MARKS) != {"operation", "inputs", "settings"}:
        raise LoadError(f"{where} must have an operation, inputs and settings")
    name, inputs, settings = entry["operation"], entry["inputs"], entry["settings"]
    if not isinstance(name, str) or not isinstance(settings, dict) or not _numbers(inputs):
        raise LoadError(f"{where} must have an operation's name, a list of inputs and a map of settings")
    operation_type = find(name)
    _check_fields(operation_type, tensors, settings, where)
    operation = operation_type.restore(tensors, settings)
    exact, roundings = _marks(entry, operation, where)
    return Node(operation, tuple(inputs), exact, roundings)


def _marks(entry: Mapping[str, Any], operation: Operation, where: str) -> tuple[bool, int | None]:
    """Whether a node is exact, and its stated roundings, which must be more than those of its operation."""
    exact, roundings = entry.get("exact", False), entry.get("roundings")
    if not isinstance(exact, bool):
        raise LoadError(f"{where} must be exact or not, which is true or false")
    if "roundings" not in entry:
        return exact, None
    if exact or type(roundings) is not int or not isinstance(operation, Affine) or roundings <= operation.roundings:
        raise LoadError(f"{where} must have more roundings than its operation has by itself, not {roundings!r}")
    return exact, roundings


def _check_fields(
    operation_type: type[Operation], tensors: Mapping[str, Tensor], settings: Mapping[str, Any], where: str
) -> None:
    """Raises LoadError unless every field is stored as the operation declares it: tensor or setting, and its type."""
    hints = get_type_hints(operation_type)
    declared = {field.name: hints[field.name] for field in fields(operation_type)}  # type: ignore[arg-type]
    for name, hint in declared.items():
        stored = tensors.get(name) if hint is Tensor else settings.get(name)
        if not _fits(stored, hint):
            raise LoadError(f"{where} ({operation_type.name}) must store {name} as {getattr(hint, '__name__', hint)}")
    if len(tensors) + len(settings) != len(declared):
        raise LoadError(f"{where} ({operation_type.name}) stores more than {sorted(declared)}")


def _fits(stored: object, hint: object) -> bool:
    if hint is Tensor:
        return isinstance(stored, Tensor) and stored.dtype in PRECISIONS
    if get_origin(hint) is tuple:
        return _numbers(stored)
    return type(stored) is hint


def _numbers(stored: object) -> bool:
    return isinstance(stored, list) and all(type(number) is int and number >= 0 for number in stored)


def joint_sums(network: Network) -> list[Node]:
    """The nodes, with operations that follow one another without a ReLU taken for terms of one sum.

    Every number of such a sum may meet as many roundings as its last operation would, written out in one.
    """
    nodes: Sequence[Node] = network.nodes
    try:
        check_selections(network)
    except NetworkError:  # earlier versions merged nodes of a maximum into the layer before it
        nodes = [replace(node, exact=False) for node in nodes]
    roundings = [0, *(_roundings(node) for node in nodes)]
    counts = [0]
    for value, node in enumerate(nodes, start=1):
        counts.append(_count(node, roundings[value], [counts[source] for source in node.inputs]))
    for value in range(len(nodes), 0, -1):
        node = nodes[value - 1]
        if isinstance(node.operation, Affine) and not node.exact:
            for source in node.inputs:
                if counts[source]:
                    counts[source] = max(counts[source], counts[value])
    return [
        replace(node, roundings=counts[value]) if 0 < roundings[value] < counts[value] else node
        for value, node in enumerate(nodes, start=1)
    ]


def _roundings(node: Node) -> int:
    return node.operation.roundings if isinstance(node.operation, Affine) and not node.exact else 0


def _count(node: Node, roundings: int, before: Sequence[int]) -> int:
    """The roundings of a value written as one sum of what does not round; 0 where its numbers are computed already."""
    if not isinstance(node.operation, Affine) or node.exact:
        return 0
    if isinstance(node.operation, Linear | Convolution) and roundings:
        return roundings * max(1, *before, 1)
    return roundings + (sum(before) if isinstance(node.operation, Add) else max(before))
