"""Networks from torch modules, ONNX files, safetensors files and the bundled zoo."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from relucert.errors import InputError, LoadError
from relucert.loading import safetensors_file, zoo
from relucert.loading.paths import PICKLES, check_file
from relucert.network import Network, Shape

__all__ = ["load", "save"]


def load(source: Network | nn.Module | str | os.PathLike[str], *, input_shape: Shape | None = None) -> Network:
    """Loads a network from a module, a path ending in .onnx or .safetensors, or the name of a bundled or built network.

    input_shape: the shape of one image, without the batch; needed where the source leaves it open, otherwise checked.
    A network from torch or ONNX is compared with the original runtime at random inputs; a difference raises an error.
    """
    shape = None if input_shape is None else _checked_shape(input_shape)
    network = _load(source, shape)
    if shape is not None and network.input_shape != shape:
        raise InputError(f"{network.name} takes inputs of shape {network.input_shape}, not {shape}")
    return network


def save(network: Network, path: str | os.PathLike[str], about: Mapping[str, str] | None = None) -> None:
    """Writes a network to a .safetensors file, with free text entries about it; `load` restores it exactly."""
    target = Path(path)
    safetensors_file.check_suffix(target)
    safetensors_file.save_safetensors(network, target, about or {})


def _load(source: Any, shape: Shape | None) -> Network:
    if isinstance(source, Network):
        return source
    if isinstance(source, nn.Module):
        from relucert.loading.torch_module import load_module

        return load_module(source, shape)
    if isinstance(source, str | os.PathLike):
        return _load_path(source, shape)
    raise LoadError(f"expected a torch.nn.Module, a path or a network's name, not {type(source).__name__}")


def _load_path(source: str | os.PathLike[str], shape: Shape | None) -> Network:
    path = Path(source)
    suffix = path.suffix.lower()
    if suffix == ".onnx":
        from relucert.loading.onnx_file import load_onnx

        return load_onnx(path, shape)
    if suffix == ".safetensors":
        return safetensors_file.load_safetensors(path)
    name = os.fspath(source)
    if name not in zoo.names() and (suffix in PICKLES or os.path.exists(path)):
        check_file(path)
        raise LoadError(f"{path} is neither an .onnx nor a .safetensors file; export the model to either")
    return zoo.load(name)


def _checked_shape(given: Any) -> Shape:
    if isinstance(given, list | tuple) and given and all(type(size) is int and size > 0 for size in given):
        return tuple(given)
    raise InputError(f"input_shape must be a tuple of positive integers, without the batch, not {given!r}")
