"""What an interrupted training leaves behind: safetensors, whole at every moment, never a pickle."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.optim import SGD

from relucert.errors import InputError, LoadError
from relucert.report import files

KEY = "relucert-training"


@dataclass(frozen=True)
class Progress:
    """How far a training has come: whole epochs of a stage, and what was reported of every one so far."""

    stage: int
    epochs: int
    reports: list[dict[str, Any]]


def save(path: Path, models: list[nn.Module], optimiser: SGD, progress: Progress, recipe: dict[str, Any]) -> None:
    tensors = {
        f"model.{number}.{name}": tensor.contiguous()
        for number, model in enumerate(models)
        for name, tensor in model.state_dict().items()
    }
    for place, parameter in enumerate(optimiser.param_groups[0]["params"]):
        momentum = optimiser.state[parameter].get("momentum_buffer")
        if momentum is not None:
            tensors[f"momentum.{place}"] = momentum.contiguous()
    note = {"recipe": recipe, "stage": progress.stage, "epochs": progress.epochs, "reports": progress.reports}
    files.write(path, to_bytes(tensors, {KEY: json.dumps(note)}))


def restore(path: Path, models: list[nn.Module], optimisers: list[SGD], recipe: dict[str, Any]) -> Progress:
    """Puts models and the current stage's optimiser into the state they were saved in."""
    try:
        with safe_open(path, "pt") as file:
            note = json.loads((file.metadata() or {}).get(KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise LoadError(f"{path}: not a readable checkpoint; remove it to start anew") from error
    if not isinstance(note, dict) or note.get("recipe") != recipe:
        raise InputError(f"{path} is the checkpoint of another training; remove it, or name another file")
    progress = Progress(note["stage"], note["epochs"], note["reports"])
    for number, model in enumerate(models):
        prefix = f"model.{number}."
        state = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        _fill(path, model, state)
    optimiser = optimisers[progress.stage]
    for place, parameter in enumerate(optimiser.param_groups[0]["params"]):
        if (momentum := tensors.get(f"momentum.{place}")) is not None:
            optimiser.state[parameter]["momentum_buffer"] = momentum.clone()
    return progress


def _fill(path: Path, model: nn.Module, state: dict[str, Tensor]) -> None:
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(f"{path} is the checkpoint of a network of another shape; remove it") from error
