"""Networks from torch modules, ONNX files, safetensors files and the bundled zoo."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from relucert.common.checks import checked_shape, shown
from relucert.common.listening import listening
from relucert.common.progress import ProgressLike, Report
from relucert.errors import InputError, LoadError, RemarkWarning, warn
from relucert.inputs.loading import safetensors_file, zoo
from relucert.inputs.loading.paths import check_file, is_onnx
from relucert.inputs.loading.runtime import Loaded
from relucert.network import Network, Shape

if TYPE_CHECKING:
    from torch.export import ExportedProgram
else:
    ExportedProgram = object  # its module takes a second to import

__all__ = ["load", "save"]


def load(
    source: Network | nn.Module | ExportedProgram | str | os.PathLike[str] | Loaded,
    *,
    input_shape: Shape | None = None,
    output: str | int | None = None,
    progress: ProgressLike = None,
) -> Network:
    """Loads a network from a module, a path ending in .onnx or .safetensors, or the name of a bundled or built network.

    A network from torch or ONNX is compared with the original runtime at random inputs; a difference raises an error.
    A final softmax, log-softmax or arg max is left out: the network's `remarks`, and a RemarkWarning, say so. They also
    say where a module is in training mode and computes something else there: answers are about evaluation mode.

    Args:
        source: A torch.nn.Module, a torch.export.ExportedProgram (which loads as the module it came from does), a path,
            a name, or a Network, which is returned as it is.
        input_shape: The shape of one image, without the batch; needed where the source leaves it open, otherwise
            checked.
        output: Of a module that returns a dictionary, a tuple or an object of several outputs: which of them are the
            class scores, by its name or its position.
        progress: As for `certify`, about the comparison, which takes seconds where images are large.
    """
    shape = None if input_shape is None else checked_shape(input_shape)
    if output is not None:
        _check_output(source, output)
    with listening(progress) as receiver:
        network = _load(source, shape, receiver.tell, output)
    if shape is not None and network.input_shape != shape:
        raise InputError(f"{network.name} takes inputs of shape {network.input_shape}, not {shape}")
    if network is not source and not isinstance(source, Loaded):
        for remark in network.remarks:
            warn(f"{network.name}: {remark}", RemarkWarning)
    return network


def save(network: Network, path: str | os.PathLike[str] | None = None, about: Mapping[str, str] | None = None) -> None:
    """Writes a network to a .safetensors file; `load` restores it exactly.

    Args:
        network: As `load` makes it.
        path: It ends in .safetensors.
        about: Free text entries about the network, stored beside it.
    """
    _check_network(network)
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str) or "\0" in name:
        raise InputError(f"save needs a path that ends in .safetensors, not {shown(path)}")
    target = Path(name)
    safetensors_file.check_suffix(target)
    safetensors_file.save_safetensors(network, target, {} if about is None else about)


def _check_network(network: object) -> None:
    if isinstance(network, Network):
        return
    hint = ": write relucert.save(relucert.load(module), 'model.safetensors')" if isinstance(network, nn.Module) else ""
    raise InputError(f"save takes a network, as relucert.load makes it, and a path, not the {_called(network)}{hint}")


def _load(source: Any, shape: Shape | None, report: Report, output: str | int | None) -> Network:
    if isinstance(source, Network):
        return source
    if isinstance(source, Loaded):
        return source.network
    if isinstance(source, torch.jit.ScriptModule):
        raise LoadError(
            "a script module can't be traced: pass the torch.nn.Module that it was scripted from, as in "
            "`module = MyModule()` and `relucert.load(module)`, or export that to ONNX"
        )
    if isinstance(source, nn.Module):
        from relucert.inputs.loading.torch_module import load_module

        return load_module(source, shape, report, output)
    if isinstance(source, str | os.PathLike):
        return _load_path(source, shape, report)
    exporting = sys.modules.get("torch.export")
    if exporting is not None and isinstance(source, exporting.ExportedProgram):
        from relucert.inputs.loading.torch_module import load_program

        return load_program(source, shape, report, output)
    raise LoadError(_unknown_source(source))


def _check_output(source: object, output: object) -> None:
    if isinstance(output, bool) or not isinstance(output, str | int):
        raise InputError(f"an output is named, as 'logits', or counted, as 0, not {shown(output)}")
    if isinstance(source, Network | Loaded | str | os.PathLike):
        raise InputError("output chooses among those of a module or an exported program; leave it out")


def _unknown_source(source: object) -> str:
    expected = "expected a torch.nn.Module, a torch.export.ExportedProgram, a path or a network's name"
    if isinstance(source, type) and issubclass(source, nn.Module):
        return f"{expected}, not the class {source.__name__}: pass an instance, {source.__name__}(...)"
    if isinstance(source, Mapping) and any(isinstance(entry, torch.Tensor) for entry in source.values()):
        return (
            f"{expected}, not a state dictionary, which has weights but no layers: "
            "write `module = MyModule(); module.load_state_dict(weights)` and `relucert.load(module)`"
        )
    if callable(source):
        return f"{expected}, not the {_called(source)}: call it in the forward of a torch.nn.Module"
    return f"{expected}, not {type(source).__name__}"


def _called(source: object) -> str:
    """The name that a user would give this: its class, or the class or function itself."""
    if isinstance(source, type):
        return f"class {source.__name__}"
    if isinstance(source, nn.Module):
        return f"module {type(source).__name__}"
    return f"function {source.__name__}" if hasattr(source, "__name__") else f"object {type(source).__name__}"


def _load_path(source: str | os.PathLike[str], shape: Shape | None, report: Report) -> Network:
    name = os.fspath(source)
    if not isinstance(name, str):
        raise LoadError(f"expected a path of characters, not of bytes: {name!r}")
    path = Path(name)
    suffix = path.suffix.lower()
    if is_onnx(path):
        from relucert.inputs.loading.onnx_file import load_onnx

        return load_onnx(path, shape, report)
    if suffix == ".safetensors":
        return safetensors_file.load_safetensors(path)
    if name not in zoo.names() and (suffix or len(path.parts) > 1 or os.path.exists(path)):
        check_file(path)
        raise LoadError(f"{path} is neither an .onnx nor a .safetensors file; export the model to either")
    return zoo.load(name)
