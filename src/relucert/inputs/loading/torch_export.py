"""Programs of torch.export, for modules of every kind. Importing it takes a second."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram, export
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from relucert.errors import LoadError
from relucert.inputs.loading.paths import one_line
from relucert.inputs.loading.torch_record import TracedProgram

_CASTS = ("aten.to.", "aten._to_copy")


def exported(module: nn.Module, images: Tensor, name: str) -> TracedProgram:
    """The module's program; raises LoadError where it can't be exported."""
    try:
        program = export(module, (images,))
        casts = any(map(_keeps_precision, program.graph.nodes))
        with torch.inference_mode():  # with gradients, some activations would be told in comparisons
            program = program.run_decompositions({})
    except Exception as error:
        raise LoadError(
            f"{name} can't be traced by torch.export; its forward must not branch on values or leave torch: "
            f"{one_line(error)}"
        ) from error
    signature = program.graph_signature
    stored_tensors = {**program.state_dict, **program.constants}
    images_here = [entry.arg.name for entry in signature.input_specs if entry.kind is InputKind.USER_INPUT]
    stored = {
        entry.arg.name: str(entry.target)
        for entry in signature.input_specs
        if entry.kind is not InputKind.USER_INPUT and isinstance(stored_tensors.get(str(entry.target)), Tensor)
    }
    output = next(entry.arg.name for entry in signature.output_specs if entry.kind is OutputKind.USER_OUTPUT)
    tensors = {target: stored_tensors[target] for target in stored.values()}
    return TracedProgram(list(program.graph.nodes), images_here[0], stored, tensors, output, casts)


def _keeps_precision(node: Node) -> bool:
    """Whether a call computes something else in another precision than the module's own: casts do, and normalisations
    whose epsilon is the precision's."""
    if str(node.target).startswith("aten.rms_norm"):
        return (node.args[3] if len(node.args) > 3 else node.kwargs.get("eps")) is None
    return str(node.target).startswith(_CASTS)


def outermost_layer(program: ExportedProgram) -> str:
    """The class of the module that a program was exported from."""
    stacks = (node.meta.get("nn_module_stack") for node in program.graph.nodes)
    outermost = next((layer for stack in stacks if stack for _, layer in stack.values()), "ExportedProgram")
    return str(outermost).rpartition(".")[2]


def input_axes(program: ExportedProgram, name: str) -> tuple[int | None, list[int | None]]:
    """The batch size and the image's axes that a program was exported for, None where it leaves one open."""
    inputs = [entry.arg.name for entry in program.graph_signature.input_specs if entry.kind is InputKind.USER_INPUT]
    images = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name in inputs]
    if len(images) != 1 or not isinstance(images[0], Tensor) or images[0].ndim < 2:
        raise LoadError(f"{name} must take one tensor, with the batch as first axis, not {len(inputs)}")
    shape: list[Any] = list(images[0].shape)  # an open axis is a symbol
    batch, *axes = (size if isinstance(size, int) else None for size in shape)
    return batch, axes
