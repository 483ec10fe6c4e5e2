"""Checkpoints: those of other data, and those that somebody tampered with, are refused in one line."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from relucert.errors import InputError, RelucertError
from relucert.inputs.recipes.recipe import Recipe
from relucert.training.checkpoint import KEY
from relucert.training.loop import Shuffled, fit
from tests.training.problems import clusters, small_module

RECIPE = Recipe(epochs=2)
Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], object]


def train(keep: Path, data: dict[str, Any] | None = None) -> None:
    fit(small_module(), Shuffled(*clusters(32), 32, 0), RECIPE, keep=keep, data=data)


def test_other_data_is_noticed(tmp_path: Path) -> None:
    keep = tmp_path / "training.checkpoint"
    train(keep, {"sha256": "one"})
    train(keep, {"sha256": "one"})
    with pytest.raises(InputError, match="other data"):
        train(keep, {"sha256": "other"})


CHANGES: dict[str, Change] = {
    "no stage": lambda note, _: note.pop("stage"),
    "stage -1": lambda note, _: note.update(stage=-1),
    "stage 1": lambda note, _: note.update(stage=1),
    "stage of words": lambda note, _: note.update(stage="0"),
    "too many epochs": lambda note, _: note.update(epochs=9),
    "no epochs": lambda note, _: note.update(epochs=None),
    "no reports": lambda note, _: note.update(reports=[]),
    "strange reports": lambda note, _: note.update(reports=[1, 2]),
    "short reports": lambda note, _: [row.pop("loss") for row in note["reports"]],
    "reports of words": lambda note, _: [row.update(loss="low") for row in note["reports"]],
    "momentum of another shape": lambda _, tensors: tensors.update({"momentum_buffer.0": torch.zeros(2)}),
    "no momentum": lambda _, tensors: tensors.pop("momentum_buffer.1"),
    "one more tensor": lambda _, tensors: tensors.update(other=torch.zeros(2)),
    "one weight less": lambda _, tensors: tensors.pop("model.0.0.weight"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_tampered_checkpoints_are_refused(change: str, tmp_path: Path) -> None:
    keep = tmp_path / "training.checkpoint"
    train(keep)
    with safe_open(keep, "pt") as file:
        note = json.loads(file.metadata()[KEY])
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    CHANGES[change](note, tensors)
    save_file(tensors, keep, {KEY: json.dumps(note)})
    with pytest.raises(RelucertError, match=r"training\.checkpoint.*remove it"):
        train(keep)


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match=r"training\.checkpoint: No space left"):
        train(tmp_path / "training.checkpoint")
    assert list(tmp_path.iterdir()) == []
