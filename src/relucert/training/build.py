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
from relucert.recipes.architectures import Architecture
from relucert.recipes.recipe import Recipe
from relucert.training.checkpoint import EpochReport
from relucert.training.loop import Shuffled, accuracy, fit

LEARNING_RATES = (0.1, 0.05, 0.02, 0.01, 0.005)
WEIGHT_DECAYS = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
VALIDATION = 5000  # of the training images, the last ones, at most a tenth of them

FEWEST = 10  # training images, for one of them to choose by

Keep = Callable[[Recipe], Path]


class Watch(Protocol):
    """Who is told how a training goes."""

    def epoch(self, recipe: Recipe, report: EpochReport) -> None: ...

    def resumed(self, recipe: Recipe, last: EpochReport) -> None: ...


@dataclass(frozen=True, eq=False)
class Task:
    """What to train on: images to learn from, images to choose by, images to test with.

    data: how to know the training images again: `name`, `images` (how many), `sha256` (the beginning of it).
    """

    architecture: Architecture
    data: dict[str, Any]
    learn: tuple[Tensor, Tensor]
    choose: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, architecture: Architecture, train: Dataset, test: Dataset) -> Task:
        if len(train) < FEWEST:
            raise InputError(f"{train.name} are {len(train)}, too few to learn from: {FEWEST} are needed")
        held = min(VALIDATION, len(train) // 10)
        images, labels = _labelled(train)
        data = {"name": architecture.data_set, "images": len(train), "sha256": train.fingerprint()}
        return cls(
            architecture,
            data,
            (images[:-held], labels[:-held]),
            (images[-held:], labels[-held:]),
            _labelled(test),
        )


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained module with the recipe that made it, its accuracies, and how long it took."""

    module: nn.Module
    recipe: Recipe
    validation: float
    test: float
    seconds: float


def train_one(task: Task, recipe: Recipe, keep: Keep, watch: Watch) -> Trained:
    """Trains by one recipe; an interrupted training goes on from the checkpoint it keeps."""
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


def train_best(task: Task, recipes: list[Recipe], keep: Keep, watch: Watch) -> tuple[list[Trained], list[Recipe]]:
    """Trains by every recipe: what came out, the best by validation accuracy first, and which recipes diverged.

    Every recipe has a checkpoint of its own: what is finished is not done again.
    """
    found, diverged = [], []
    for recipe in recipes:
        try:
            found.append(train_one(task, recipe, keep, watch))
        except DivergedError:
            diverged.append(recipe)
            if len(diverged) == len(recipes):
                raise
    return sorted(found, key=lambda trained: -trained.validation), diverged


def store(task: Task, trained: Trained, name: str, path: Path, half: bool) -> dict[str, Any]:
    """Writes the network with its recipe, and returns what is noted about it; half: as float16, which is then it."""
    if half:
        trained = _rounded(task, trained)
    network = replace(load(trained.module.half() if half else trained.module), name=name)
    about = {
        "recipe": {**trained.recipe.to_json(), "half": half, "data": task.data},
        "validation_accuracy": round(trained.validation, 4),
        "test_accuracy": round(trained.test, 4),
        "seconds": round(trained.seconds),
        "versions": {"relucert": relucert.__version__, "torch": str(torch.__version__)},
        "threads": torch.get_num_threads(),
    }
    save(network, path, {key: json.dumps(value) for key, value in about.items()})
    return about


def noted(about: dict[str, str], key: str) -> Any:
    """What `store` noted under the key; None where there is nothing or something else."""
    try:
        return json.loads(about.get(key, "null"))
    except (ValueError, RecursionError):
        return None


def _rounded(task: Task, trained: Trained) -> Trained:
    """The same with the weights rounded to float16 and back, and the accuracies that these have."""
    module = trained.module.half().float()
    return replace(trained, module=module, validation=accuracy(module, *task.choose), test=accuracy(module, *task.test))


def _labelled(data: Dataset) -> tuple[Tensor, Tensor]:
    if data.labels is None:
        raise InputError(f"{data.name} have no labels to learn from")
    return data.images, data.labels
