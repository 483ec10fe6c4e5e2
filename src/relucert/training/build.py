"""From an architecture and a recipe to a stored network."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

import relucert
from relucert.data import Dataset
from relucert.errors import DivergedError, InputError
from relucert.loading import load, save
from relucert.recipes.architectures import BOX, Architecture
from relucert.recipes.recipe import Recipe
from relucert.training.checkpoint import EpochReport
from relucert.training.loop import Shuffled, accuracy, fit

LEARNING_RATES = (0.1, 0.05, 0.02, 0.01, 0.005)
WEIGHT_DECAYS = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
VALIDATION = 5000  # images for validation, the last training images; at most a tenth of them

FEWEST = 10  # training images needed, so that at least one is left for validation

Keep = Callable[[Recipe], Path]


class Watch(Protocol):
    """Receives the reports of a training: after every epoch, and once when it resumes from a checkpoint."""

    def epoch(self, recipe: Recipe, report: EpochReport) -> None: ...

    def resumed(self, recipe: Recipe, last: EpochReport) -> None: ...


@dataclass(frozen=True, eq=False)
class TrainingTask:
    """An architecture and its images with labels: for training (`learn`), for validation (`choose`) and for testing.

    data: identifies the training images by their `name`, `images` (their number) and `sha256` (its first digits).
    """

    architecture: Architecture
    data: dict[str, Any]
    learn: tuple[Tensor, Tensor]
    choose: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, architecture: Architecture, train: Dataset, test: Dataset) -> TrainingTask:
        if len(train) < FEWEST:
            raise InputError(f"{train.name} are {len(train)}, too few to learn from: {FEWEST} are needed")
        validation_count = min(VALIDATION, len(train) // 10)
        images, labels = _labelled(train)
        data = {"name": architecture.data_set, "images": len(train), "sha256": train.fingerprint()}
        return cls(
            architecture,
            data,
            (images[:-validation_count], labels[:-validation_count]),
            (images[-validation_count:], labels[-validation_count:]),
            _labelled(test),
        )


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained module with its recipe, its accuracies, and how long the training took."""

    module: nn.Module
    recipe: Recipe
    validation: float
    test: float
    seconds: float


def train_one(task: TrainingTask, recipe: Recipe, keep: Keep, watch: Watch) -> Trained:
    """Trains with one recipe; an interrupted training resumes from its checkpoint, the file `keep(recipe)`."""
    module = task.architecture.build(recipe.seed)
    started = time.perf_counter()
    reports = fit(
        module,
        Shuffled(*task.learn, recipe.batch, recipe.seed),
        recipe,
        data=task.data,
        validation=task.choose,
        keep=keep(recipe),
        report=partial(watch.epoch, recipe),
        resumed=partial(watch.resumed, recipe),
    )
    spent = max(sum(row.seconds for row in reports), time.perf_counter() - started)
    return Trained(module, recipe, accuracy(module, *task.choose), accuracy(module, *task.test), spent)


def grid(recipe: Recipe) -> list[Recipe]:
    """The recipe with the paper's learning rates and weight decays."""
    settings = itertools.product(LEARNING_RATES, WEIGHT_DECAYS)
    return [replace(recipe, learning_rate=rate, weight_decay=decay) for rate, decay in settings]


def train_best(
    task: TrainingTask, recipes: list[Recipe], keep: Keep, watch: Watch
) -> tuple[list[Trained], list[Recipe]]:
    """Trains with every recipe; returns the results, best validation accuracy first, and the recipes that diverged.

    Every recipe has its own checkpoint, so finished epochs are not repeated. Raises DivergedError if all diverge.
    """
    results, diverged = [], []
    for recipe in recipes:
        try:
            results.append(train_one(task, recipe, keep, watch))
        except DivergedError:
            diverged.append(recipe)
            if len(diverged) == len(recipes):
                raise
    return sorted(results, key=lambda trained: -trained.validation), diverged


def store(task: TrainingTask, trained: Trained, name: str, path: Path, half: bool) -> dict[str, Any]:
    """Writes the network with its metadata (recipe, accuracies, versions), returns that and how long it took.

    The time is not in the file: one recipe, built twice on one machine, gives the same bytes.
    half: the weights are rounded to float16, and the accuracies are those of the rounded network.
    """
    if half:
        trained = _rounded(task, trained)
    network = replace(
        load(trained.module.half() if half else trained.module),
        name=name,
        input_range=BOX,
        picture_shape=task.architecture.picture_shape,
    )
    about = {
        "recipe": recipe_note(task, trained.recipe, half),
        "validation_accuracy": round(trained.validation, 4),
        "test_accuracy": round(trained.test, 4),
        "versions": {"relucert": relucert.__version__, "torch": str(torch.__version__)},
        "threads": torch.get_num_threads(),
    }
    save(network, path, {key: json.dumps(value) for key, value in about.items()})
    return {**about, "seconds": round(trained.seconds)}


def recipe_note(task: TrainingTask, recipe: Recipe, half: bool) -> dict[str, Any]:
    """What a network's file says of how it was trained."""
    return {**recipe.to_json(), "half": half, "data": task.data}


def noted(about: dict[str, str], key: str) -> Any:
    """The metadata that `store` wrote under the key; None where it is absent or not JSON."""
    try:
        return json.loads(about.get(key, "null"))
    except (ValueError, RecursionError):
        return None


def _rounded(task: TrainingTask, trained: Trained) -> Trained:
    """The module with its weights rounded to float16 and back, and the accuracies of the rounded module."""
    module = trained.module.half().float()
    return replace(trained, module=module, validation=accuracy(module, *task.choose), test=accuracy(module, *task.test))


def _labelled(data: Dataset) -> tuple[Tensor, Tensor]:
    if data.labels is None:
        raise InputError(f"{data.name} have no labels to learn from")
    return data.images, data.labels
