"""A network's own runtime, which re-checks witnesses outside of all searches and bounds."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from relucert.errors import InputError, LoadError
from relucert.inputs.loading.paths import file_digest, is_onnx
from relucert.inputs.loading.walk import keeps_only_order
from relucert.network import INPUT, Network
from relucert.network.selection import Computed, apply, computed

if TYPE_CHECKING:
    from torch.export import ExportedProgram
else:
    ExportedProgram = object  # its module takes a second to import


Source = Network | nn.Module | ExportedProgram | str | os.PathLike[str]
"""A source that networks are loaded from."""


class Runtime(NamedTuple):
    """An evaluation of a network: the function from one point (size,) to its outputs, its name, and the precision of
    points."""

    run: Callable[[Tensor], Tensor]
    by: str
    precision: torch.dtype


class Loaded(NamedTuple):
    """A loaded network, and its source."""

    network: Network
    source: Source


def runtime_of(source: Any, network: Network) -> Runtime:
    """The runtime of a network that was loaded from a source, in the precision that it is evaluated in.

    That is onnxruntime for an ONNX file, and for a module that is evaluated in floating point PyTorch, running the
    module. Where neither runs in that precision, or gives the scores, PyTorch runs the loaded layers.
    """
    inference = network.inference
    if is_onnx(source) and not (inference.rounds and keeps_only_order(network)):
        from relucert.inputs.loading.onnx_file import runtime

        original = Runtime(*runtime(Path(source), network.input_shape))
        gives_scores = original.run(torch.zeros(network.sizes[INPUT])).numel() == network.classes  # and no arg max
        if gives_scores and not inference.rounds:
            return original
        if inference.rounds and original.precision == inference.dtype != torch.bfloat16:  # which NumPy does not have
            return original._replace(by=f"{original.by} in {inference.name}")
    if inference.dtype is None:
        precision = own_precision(network)
        plain = network.cast(precision)
        name = str(precision).removeprefix("torch.")
        return Runtime(lambda point: plain(point[None])[0], f"an evaluation in {name}", precision)
    if isinstance(source, nn.Module) and not keeps_only_order(network):
        from relucert.inputs.loading.torch_module import runner

        return Runtime(runner(source, network.input_shape, inference.dtype), _by_torch(network), inference.dtype)
    evaluation = RoundedEvaluation(network)
    return Runtime(lambda point: evaluation(point[None])[0], _by_torch(network), inference.dtype)


@dataclass(frozen=True, eq=False)
class Origin:
    """The origin of a network's runtime, from which this process or another one makes it.

    Attributes:
        source: A file, a module that runs itself, or the network.
        stays_here: Whether other processes can't have it.
        digest: Of an ONNX file: its SHA-256, so that another file at the same path is not taken for it.
    """

    source: Any
    stays_here: bool
    digest: str | None = None

    @classmethod
    def of(cls, source: Any, network: Network) -> Origin:
        """The origin of a network that was loaded from `source`: a file, a module that runs itself, or the network."""
        if is_onnx(source):
            path = Path(source).resolve()  # other processes may have other current folders
            return cls(path, False, file_digest(path))
        runs_itself = network.inference.rounds and isinstance(source, nn.Module)
        return cls(source if runs_itself else network, runs_itself)

    def runtime(self, network: Network) -> Runtime:
        """The runtime by `runtime_of`; a file that is not the one that was loaded is refused."""
        runtime = runtime_of(self.source, network)
        if self.digest is not None and file_digest(self.source) != self.digest:
            raise LoadError(f"{self.source} is not, or no longer, the file that the network was loaded from")
        return runtime

    def most_workers(self, workers: object, ray: str | None) -> int | None:
        """How many processes may use it: modules stay in this one, as others may not know their classes."""
        if not self.stays_here:
            return None
        if ray is not None or getattr(workers, "ray", None) is not None:
            raise InputError("a module that re-checks witnesses stays in this process: give an .onnx file, or no ray")
        return 1


class RoundedEvaluation:
    """A network as PyTorch evaluates it in the precision that its inference names; what a question adds to it, which
    rounds nothing, in float64."""

    def __init__(self, network: Network) -> None:
        assert network.inference.dtype is not None
        self.dtype, self.precisions = network.inference.dtype, [network.inference.dtype]
        for node in network.nodes:
            wide = torch.float64 in (self.precisions[source] for source in node.inputs)
            self.precisions.append(torch.float64 if wide or node.roundings == 0 else self.dtype)
        self.network = network.with_operations(
            {value: node.operation.cast(self.precisions[value]) for value, node in network.steps()}
        )

    def __call__(self, points: Tensor) -> Tensor:
        """The outputs at points (batch, size): (batch, classes)."""
        values: list[Computed] = [points.to(self.dtype).reshape(-1, *self.network.input_shape)]
        for value, node in self.network.steps():
            operands = [values[source] for source in node.inputs]
            if any(self.precisions[source] != self.precisions[value] for source in node.inputs):
                operands = [computed(operand).to(self.precisions[value]) for operand in operands]
            values.append(apply(node.operation, node.exact, operands))
        return computed(values[-1]).to(self.dtype).flatten(1)


def own_precision(network: Network) -> torch.dtype:
    """The widest precision of the stored numbers, at least float32."""
    dtypes = {tensor.dtype for node in network.nodes for tensor in node.operation.tensors().values()}
    return torch.float64 if torch.float64 in dtypes else torch.float32


def point_precision(network: Network) -> torch.dtype:
    """The precision of the points that the network is evaluated at."""
    return network.inference.dtype or own_precision(network)


def _by_torch(network: Network) -> str:
    return f"PyTorch in {network.inference.name}"
