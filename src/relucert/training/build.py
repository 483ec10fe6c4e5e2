"""From an architecture and a recipe to a stored network."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import relucert
from relucert.data import Dataset
from relucert.errors import InputError
from relucert.loading import load, save
from relucert.training.architectures import CLASSES, SIZES, Architecture
from relucert.training.loop import EpochReport, Shuffled, accuracy, fit
from relucert.training.recipe import Recipe

LEARNING_RATES = (0.1, 0.05, 0.02, 0.01, 0.005)
WEIGHT_DECAYS = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
VALIDATION = 5000  # of the training images, the last ones, at most a tenth of them

Report = Callable[[Recipe, EpochReport], None]


@dataclass(frozen=True, eq=False)
class Task:
    """What to train on: images to learn from, images to choose by, images to test with."""

    architecture: Architecture
    learn: tuple[Tensor, Tensor]
    choose: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, architecture: Architecture, train: Dataset, test: Dataset) -> Task:
        held = min(VALIDATION, len(train) // 10)
        images, labels = _checked(architecture, train)
        return cls(
            architecture,
            (images[:-held], labels[:-held]),
            (images[-held:], labels[-held:]),
            _checked(architecture, test),
        )


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained module with the recipe that made it, its accuracies, and how long it took."""

    module: nn.Module
    recipe: Recipe
    validation: float
    test: float
    seconds: float


def train_one(task: Task, recipe: Recipe, keep: Path | None, report: Report | None) -> Trained:
    """Trains by one recipe; an interrupted training goes on from the checkpoint `keep`."""
    module = task.architecture.build(recipe.seed)
    started = time.perf_counter()
    told = None if report is None else (lambda epoch: report(recipe, epoch))
    batches = Shuffled(*task.learn, recipe.batch, recipe.seed)
    reports = fit(module, batches, recipe, validation=task.choose, keep=keep, report=told)
    spent = max(sum(row.seconds for row in reports), time.perf_counter() - started)
    return Trained(module, recipe, accuracy(module, *task.choose), accuracy(module, *task.test), spent)


def train_grid(task: Task, recipe: Recipe, folder: Path, report: Report | None) -> list[Trained]:
    """The paper's grid of learning rates and weight decays, the best by validation accuracy first.

    Every setting has a checkpoint of its own in the folder: what is finished is not done again.
    """
    found = []
    for rate, decay in itertools.product(LEARNING_RATES, WEIGHT_DECAYS):
        setting = replace(recipe, learning_rate=rate, weight_decay=decay)
        keep = folder / f"{task.architecture.name}-{rate:g}-{decay:g}.checkpoint"
        found.append(train_one(task, setting, keep, report))
    return sorted(found, key=lambda trained: -trained.validation)


def store(trained: Trained, name: str, path: Path, half: bool = False) -> dict[str, str]:
    """Writes the network with its recipe, and returns what is noted about it; half: as float16, which is then it."""
    module = trained.module.half() if half else trained.module
    network = replace(load(module), name=name)
    about = {
        "recipe": json.dumps({**trained.recipe.to_json(), "half": half}),
        "validation_accuracy": f"{trained.validation:.4f}",
        "test_accuracy": f"{trained.test:.4f}",
        "seconds": f"{trained.seconds:.0f}",
        "versions": json.dumps({"relucert": relucert.__version__, "torch": torch.__version__}),
        "threads": str(torch.get_num_threads()),
    }
    save(network, path, about)
    return about


def rounded(trained: Trained, task: Task) -> Trained:
    """The same with the weights rounded to float16 and back, and the accuracies that these have."""
    module = trained.module.half().float()
    return replace(trained, module=module, validation=accuracy(module, *task.choose), test=accuracy(module, *task.test))


def _checked(architecture: Architecture, data: Dataset) -> tuple[Tensor, Tensor]:
    if data.labels is None or not len(data):
        raise InputError(f"{data.name} has no labels to learn from")
    if data.images.shape[1] != SIZES[architecture.data]:
        raise InputError(
            f"{architecture.name} takes images of {SIZES[architecture.data]} numbers, not {data.images.shape[1]}"
        )
    if int(data.labels.max()) >= CLASSES:
        raise InputError(
            f"{data.name} has the label {int(data.labels.max())}; {architecture.name} knows 0 to {CLASSES - 1}"
        )
    return data.images, data.labels


def about_recipe(about: dict[str, str]) -> dict[str, Any]:
    """The recipe noted in a stored network, empty where there is none."""
    try:
        recipe = json.loads(about.get("recipe", "{}"))
    except ValueError:
        return {}
    return recipe if isinstance(recipe, dict) else {}
