"""Checkpoints, from which an interrupted training resumes: safetensors files, replaced atomically, never pickles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from relucert.errors import InputError, LoadError
from relucert.inputs.recipes.recipe import Recipe
from relucert.inputs.storage import files

KEY = "relucert-training"  # of a checkpoint's metadata


@dataclass(frozen=True)
class EpochReport:
    """Report of one epoch of a training.

    stage: the network that is trained, "teacher" or "network"; loss: the mean over the training images; accuracy,
    validation: the shares of training and validation images classified correctly, None without validation images.
    """

    stage: str
    epoch: int
    loss: float
    accuracy: float
    validation: float | None
    seconds: float


@dataclass(frozen=True)
class TrainingProgress:
    """How far a training has come: its stage, the finished epochs of that stage, and the reports of all epochs."""

    stage: int
    epochs: int
    reports: list[EpochReport]


def save(
    path: Path, models: list[nn.Module], optimiser: Optimizer, progress: TrainingProgress, recipe: Recipe,
    data: dict[str, Any] | None,
) -> None:  # fmt: skip
    """Saves a training, identified by its recipe and its data (None: unknown)."""
    tensors = {name: tensor.contiguous().clone() for name, tensor in _state(models)}
    for name, (parameter, slot, shape) in _slots(optimiser).items():
        stored = optimiser.state[parameter].get(slot)
        stored = torch.zeros(shape) if stored is None else stored  # none yet is the same as zeros
        tensors[name] = stored.contiguous().clone()
    note = {"recipe": recipe.to_json(), "data": data, **asdict(progress)}
    path.parent.mkdir(exist_ok=True)  # another training may have removed the empty folder
    files.sweep(path)
    files.write(path, to_bytes(tensors, {KEY: json.dumps(note)}))


def restore(
    path: Path, models: list[nn.Module], optimisers: list[Optimizer], recipe: Recipe, data: dict[str, Any] | None
) -> TrainingProgress | None:
    """Restores the models and the current stage's optimiser from the checkpoint of the same training; None if there is
    no such file."""
    try:
        with safe_open(path, "pt") as file:
            note = json.loads((file.metadata() or {}).get(KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        return None
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise _unreadable(path) from error
    if not isinstance(note, dict) or note.get("recipe") != recipe.to_json():
        raise InputError(f"{path} is the checkpoint of another training; remove it, or name another file")
    if note.get("data") != data:
        raise InputError(f"{path} is the checkpoint of a training on other data; remove it, or name another file")
    progress = _progress(path, note, len(models), recipe.epochs)
    slots = _slots(optimisers[progress.stage])
    wanted = {name: tensor.shape for name, tensor in _state(models)}
    wanted |= {name: shape for name, (_, _, shape) in slots.items()}
    if {name: tensor.shape for name, tensor in tensors.items()} != wanted:
        raise InputError(f"{path} is the checkpoint of a network of another shape; remove it")
    for number, model in enumerate(models):
        model.load_state_dict({name: tensors[f"model.{number}.{name}"] for name in model.state_dict()})
    for name, (parameter, slot, shape) in slots.items():
        tensor = tensors[name].to(parameter) if shape else tensors[name]
        optimisers[progress.stage].state[parameter][slot] = tensor
    return progress


def _state(models: list[nn.Module]) -> Iterator[tuple[str, Tensor]]:
    for number, model in enumerate(models):
        for name, tensor in model.state_dict().items():
            yield f"model.{number}.{name}", tensor


def _slots(optimiser: Optimizer) -> dict[str, tuple[nn.Parameter, str, torch.Size]]:
    """The state tensors of an optimiser, by name in the file: their parameter, name in the optimiser, and shape."""
    names = ("momentum_buffer",) if isinstance(optimiser, SGD) else ("exp_avg", "exp_avg_sq")
    slots: dict[str, tuple[nn.Parameter, str, torch.Size]] = {}
    for number, parameter in enumerate(optimiser.param_groups[0]["params"]):
        slots |= {f"{name}.{number}": (parameter, name, parameter.shape) for name in names}
        if not isinstance(optimiser, SGD):
            slots[f"step.{number}"] = (parameter, "step", torch.Size())
    return slots


def _progress(path: Path, note: dict[str, Any], stages: int, epochs: int) -> TrainingProgress:
    """The progress stored in the metadata, with every entry checked."""
    stage, done, rows = note.get("stage"), note.get("epochs"), note.get("reports")
    if type(stage) is not int or type(done) is not int or not isinstance(rows, list):
        raise _unreadable(path)
    if not 0 <= stage < stages or not 1 <= done <= epochs or len(rows) != stage * epochs + done:
        raise _unreadable(path)
    return TrainingProgress(stage, done, [_report(path, row) for row in rows])


def _report(path: Path, row: object) -> EpochReport:
    if not isinstance(row, dict) or set(row) != {field.name for field in fields(EpochReport)}:
        raise _unreadable(path)
    types_by_field = {"stage": (str,), "epoch": (int,), "validation": (float, type(None))}
    if not all(type(value) in types_by_field.get(name, (float,)) for name, value in row.items()):
        raise _unreadable(path)
    return EpochReport(**row)


def _unreadable(path: Path) -> LoadError:
    return LoadError(f"{path}: not a readable checkpoint; remove it to start anew")
