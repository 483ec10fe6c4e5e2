"""The networks of a table: from the zoo, or from files, such as the authors'."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from relucert.errors import InputError, LoadError
from relucert.experiments.paper.published import is_authors
from relucert.inputs.loading import load, zoo
from relucert.inputs.loading.paths import one_line
from relucert.network import Layer, Linear, Network, Node, Relu

BROKEN = (OSError, ValueError, TypeError, AttributeError, EOFError, NotImplementedError, BadZipFile, zlib.error)
SETS = {"784": "mnist", "3072": "cifar"}  # the data sets of the tables, by the number of their pixels


@dataclass(frozen=True, eq=False)
class Subject:
    """A network of a table, under the table's name for its size.

    Attributes:
        digest: The SHA-256 of its weights.
        authors: Whether it is the very network of the paper's authors.
    """

    name: str
    network: Network
    digest: str
    authors: bool

    @classmethod
    def of(cls, name: str, network: Network) -> Subject:
        checksum = digest(network)
        return cls(name, network, checksum, is_authors(name, checksum))


def from_file(path: Path) -> Subject:
    """A network from an .onnx or .safetensors file, or an .npz file with W1, b1, W2, b2 and so on, by its size."""
    network = _from_arrays(path) if path.suffix.lower() == ".npz" else load(path)
    sizes = [str(network.sizes[value]) for value in (0, *network.preactivations, network.output)]
    if len(set(sizes[1:-1])) != 1 or sizes[-1] != "10":
        raise InputError(f"{path} is a network {network.describe()}; the tables' have layers of one width, 10 classes")
    return Subject.of(f"{SETS.get(sizes[0], sizes[0])}-{len(sizes) - 1}x{sizes[1]}", network)


def find_subjects(paths: Sequence[Path], listed: Sequence[str]) -> tuple[dict[str, Subject], dict[str, str]]:
    """The networks that a table lists, by their names there, from files or from the zoo, and why some are missing."""
    names = list(dict.fromkeys(listed))
    subjects: dict[str, Subject] = {}
    missing: dict[str, str] = {}
    for path in paths:
        subject = from_file(path)
        if subject.name not in names:
            raise InputError(f"{path} is a network {subject.name}; the table has {', '.join(names)}")
        subjects[subject.name] = subject
    for name in names:
        if name not in subjects:
            try:
                subjects[name] = Subject.of(name, zoo.load(name))
            except LoadError as error:
                missing[name] = str(error)
    return subjects, missing


def digest(network: Network) -> str:
    """The SHA-256 of all stored numbers, in order."""
    checksum = hashlib.sha256()
    for node in network.nodes:
        for field in fields(node.operation):  # type: ignore[arg-type]
            value: Any = getattr(node.operation, field.name)
            if isinstance(value, Tensor):
                checksum.update(np.ascontiguousarray(value.double().numpy(), dtype="<f8").tobytes())
    return checksum.hexdigest()


def _from_arrays(path: Path) -> Network:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files}
    except BROKEN as error:
        raise LoadError(f"{path} can't be read as an .npz file of weights: {one_line(error)}") from error
    count = len(arrays) // 2
    names = [f"{letter}{layer}" for layer in range(1, count + 1) for letter in "Wb"]
    if not count or sorted(arrays) != sorted(names) or any(array.dtype.kind != "f" for array in arrays.values()):
        raise LoadError(f"{path} must hold the arrays W1, b1, W2, b2 and so on, all floats, not {', '.join(arrays)}")
    operations: list[Layer] = []
    for layer in range(1, count + 1):
        if arrays[f"W{layer}"].ndim != 2:
            raise LoadError(f"{path}: W{layer} must be a matrix, one row per output neuron")
        operations += [Linear(torch.from_numpy(arrays[f"W{layer}"]), torch.from_numpy(arrays[f"b{layer}"])), Relu()]
    nodes = tuple(Node(operation, (value,)) for value, operation in enumerate(operations[:-1]))
    return Network((arrays["W1"].shape[1],), nodes, path.stem)
