"""The network that a query is about: as it is given or, where the query is about several, all of them as one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from relucert.common.checks import shown
from relucert.errors import InputError
from relucert.inputs.loading import load
from relucert.inputs.loading.paths import is_onnx, name_of
from relucert.inputs.loading.runtime import Loaded, Runtime, runtime_of
from relucert.inputs.loading.walk import keeps_only_order
from relucert.network import Inference, Network, Shape
from relucert.query.types import NetworkLike
from relucert.verification.specification.query import Query
from relucert.verification.specification.reading import read

Sources = NetworkLike | Mapping[str, str | os.PathLike[str]]
"""A network, or for a query about several networks their ONNX files by name."""


def is_joint(query: Query) -> bool:
    """Whether a query is about several networks, or one with several inputs or outputs."""
    return len(query.declared) > 2


def read_query(
    given: Sources, path: str | os.PathLike[str], input_shape: Shape | None = None
) -> tuple[Sources, Query]:  # fmt: skip
    """The query of a file, after its network was loaded, which is refused before a long file is parsed.

    Properties of VNN-LIB 2.0 may be about several networks or inputs, which they have to be read for.
    """
    file = read(path)
    if not file.version_two and not isinstance(given, (Mapping, Loaded)):
        given = Loaded(load(given, input_shape=input_shape), given)
    return given, Query.of(file.specification())


def open_sources(
    given: Sources, query: Query, input_shape: Shape | None, inference: Inference
) -> tuple[Network, Runtime]:
    """The network of a query, as it is evaluated, and its own runtime."""
    if is_joint(query):
        return _joined(given, query, inference)
    if isinstance(given, Mapping):
        if len(given) != 1:
            raise InputError(f"the property is about one network, not about {', '.join(map(str, given))}")
        (given,) = given.values()
    network = load(given, input_shape=input_shape)
    check_fit(network, query)
    if inference.rounds and keeps_only_order(network):
        raise InputError(
            f"inference {inference.name!r}: {network.name} was loaded without its last layer, and outputs that differ "
            "before it may round to the same number after it"
        )
    network = network.evaluated_in(inference)
    return network, runtime_of(given.source if isinstance(given, Loaded) else given, network)


def _joined(given: Sources, query: Query, inference: Inference) -> tuple[Network, Runtime]:
    from onnx import save

    from relucert.inputs.loading.joined import JoinedFile, joined

    networks = []
    for name, path in _files(given, query).items():
        inputs, outputs = (
            [one.shape for one in query.declared if one.network == name and one.output == output]
            for output in (False, True)
        )
        networks.append(JoinedFile(name, path, inputs, outputs))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "joined.onnx"
        save(joined(networks), path)
        network = replace(load(path), name=" and ".join(dict.fromkeys(name_of(part.path) for part in networks)))
        network = network.evaluated_in(inference)
        replay = runtime_of(path, network)
    if keeps_only_order(network):
        raise InputError("a network whose last layer only keeps the order of its outputs can't be joined with others")
    check_sizes(network, query)
    return network, replay


def _files(given: Sources, query: Query) -> dict[str, Path]:
    """The ONNX file of every network that a query declares."""
    names = {tensor.network: tensor.equal_to for tensor in query.declared}
    if not isinstance(given, (str, os.PathLike, Mapping)):
        raise InputError(f"a property about several inputs, outputs or networks needs ONNX files, not {shown(given)}")
    with_files = [name for name, equal_to in names.items() if equal_to is None]
    named = dict(given) if isinstance(given, Mapping) else dict.fromkeys(with_files[:1], given)
    unknown = [name for name in named if name not in names]
    missing = [name for name in with_files if name not in named]
    if unknown or missing:
        wanted = ", ".join(with_files)
        raise InputError(f"the property is about the networks {wanted}: give an ONNX file for each of them, by name")
    paths = {}
    for name, equal_to in names.items():
        path = Path(named.get(name, named.get(equal_to or name, "")))
        if not is_onnx(path):
            raise InputError(f"network {name} of the property needs an .onnx file, not {str(path)!r}")
        paths[name] = path
    return paths


def check_sizes(network: Network, query: Query) -> None:
    for what, declared, there in (
        ("inputs", query.inputs, network.sizes[0]),
        ("outputs", query.outputs, network.classes),
    ):
        if declared != there:
            raise InputError(f"the property is about {declared} {what}, {network.name} has {there}")


def check_fit(network: Network, query: Query) -> None:
    """Refuses a query that is about another network."""
    check_sizes(network, query)
    for tensor in query.declared:
        shape = (network.classes,) if tensor.output else network.input_shape
        if _long(tensor.shape) != _long(shape):
            raise InputError(f"the property declares {tensor.name} of shape {tensor.shape}, {network.name} has {shape}")
    if keeps_only_order(network) and not all(
        not one.inputs and one.bound == 0 and sorted(number for _, number in one.outputs) == [-1, 1]
        for violation in query.possible
        for one in violation.constraints
    ):
        raise InputError(
            f"{network.name} was loaded without its last layer, which keeps the order of the outputs: a property may "
            "only compare outputs with each other"
        )


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
