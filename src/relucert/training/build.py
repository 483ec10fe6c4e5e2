"""From an architecture and a recipe to a stored network."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

import relucert
from relucert.arithmetic.region import RegionShape
from relucert.data import Dataset
from relucert.errors import DivergedError, InputError
from relucert.inputs.loading import load, save
from relucert.inputs.recipes.architectures import BOX, Architecture
from relucert.inputs.recipes.recipe import Certified, Recipe
from relucert.network import Network
from relucert.training.checkpoint import EpochReport
from relucert.training.loop import Shuffled, accuracy, fit
from relucert.training.margins import certified_share

LEARNING_RATES = (0.1, 0.05, 0.02, 0.01, 0.005)  # the paper's grid
WEIGHT_DECAYS = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)  # the paper's grid
VALIDATION = 5000  # images for validation, the last training images; at most a tenth of them

FEWEST = 10  # training images needed, so that at least one is left for validation

Keep = Callable[[Recipe], Path]


class TrainingDisplay(Protocol):
    """Receives the reports of a training: after every epoch, when it resumes from a checkpoint, before a proof."""

    def epoch(self, recipe: Recipe, report: EpochReport) -> None: ...

    def resumed(self, recipe: Recipe, last: EpochReport) -> None: ...

    def proving(self, images: int, radius: float) -> None: ...


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
        images, labels = _labelled(train, architecture)
        data = {"name": architecture.data_set, "images": len(train), "sha256": train.fingerprint()}
        return cls(
            architecture,
            data,
            (images[:-validation_count], labels[:-validation_count]),
            (images[-validation_count:], labels[-validation_count:]),
            _labelled(test, architecture),
        )


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained module with its recipe, its accuracies, and how long the training took.

    certified: the share of validation images proven at the radius of certified training; None with any other.
    """

    module: nn.Module
    recipe: Recipe
    validation: float
    test: float
    certified: float | None
    seconds: float

    @property
    def merit(self) -> float:
        """The figure, on validation images, by which the best of several recipes is chosen."""
        return self.validation if self.certified is None else self.certified


def train_one(task: TrainingTask, recipe: Recipe, keep: Keep, watch: TrainingDisplay) -> Trained:
    """Trains with one recipe; an interrupted training resumes from its checkpoint, the file `keep(recipe)`."""
    small = isinstance(recipe.defence, Certified) and recipe.defence.starts_small
    module = task.architecture.build(recipe.seed, small)
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
    if isinstance(recipe.defence, Certified):
        watch.proving(len(task.choose[0]), recipe.defence.epsilon)
    return _assessed(task, module, recipe, spent)


def _assessed(task: TrainingTask, module: nn.Module, recipe: Recipe, seconds: float) -> Trained:
    """A trained module with its accuracies and, after certified training, its share of proven validation images."""
    certified = None
    if isinstance(recipe.defence, Certified):
        network = load(module.eval(), input_shape=task.architecture.input_shape)
        certified = _certified(network, task.choose, recipe.defence)
    return Trained(module, recipe, accuracy(module, *task.choose), accuracy(module, *task.test), certified, seconds)


def grid(recipe: Recipe) -> list[Recipe]:
    """The recipe with the paper's learning rates and weight decays."""
    settings = itertools.product(LEARNING_RATES, WEIGHT_DECAYS)
    return [replace(recipe, learning_rate=rate, weight_decay=decay) for rate, decay in settings]


def train_best(
    task: TrainingTask, recipes: list[Recipe], keep: Keep, watch: TrainingDisplay
) -> tuple[list[Trained], list[Recipe]]:
    """Trains with every recipe; returns the results, best on validation images first, and the recipes that diverged.

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
    return sorted(results, key=lambda trained: -trained.merit), diverged


def store(
    task: TrainingTask, trained: Trained, name: str, path: Path, half: bool, watch: TrainingDisplay
) -> dict[str, Any]:
    """Writes the network with its metadata (recipe, accuracies, versions), returns that and how long it took.

    After certified training the metadata has the shares of images that are proven at its radius, too.

    The time is not in the file: one recipe, built twice on one machine, gives the same bytes.
    half: the weights are rounded to float16, and the accuracies are those of the rounded network.
    """
    if half:
        trained = _assessed(task, trained.module.half().float(), trained.recipe, trained.seconds)
    network = replace(
        load((trained.module.half() if half else trained.module).eval(), input_shape=task.architecture.input_shape),
        name=name,
        input_range=BOX,
        picture_shape=task.architecture.picture_shape,
    )
    about: dict[str, Any] = {
        "recipe": recipe_note(task, trained.recipe, half),
        "validation_accuracy": round(trained.validation, 4),
        "test_accuracy": round(trained.test, 4),
        **_certified_note(task, network, trained, watch),
        "versions": {"relucert": relucert.__version__, "torch": str(torch.__version__)},
        "threads": torch.get_num_threads(),
    }
    save(network, path, {key: json.dumps(value) for key, value in about.items()})
    return {**about, "seconds": round(trained.seconds)}


def _certified_note(task: TrainingTask, network: Network, trained: Trained, watch: TrainingDisplay) -> dict[str, float]:
    """The shares of validation and test images that are proven at the radius of certified training, rounded down."""
    defence = trained.recipe.defence
    if trained.certified is None or not isinstance(defence, Certified):
        return {}
    watch.proving(len(task.test[0]), defence.epsilon)
    shares = {"validation_certified": trained.certified, "test_certified": _certified(network, task.test, defence)}
    return {name: math.floor(share * 1e4) / 1e4 for name, share in shares.items()}


def _certified(network: Network, images: tuple[Tensor, Tensor], defence: Certified) -> float:
    shape = RegionShape.parse(defence.norm, defence.box, None, network.input_shape)
    return certified_share(network, *images, defence.epsilon, shape)


def recipe_note(task: TrainingTask, recipe: Recipe, half: bool) -> dict[str, Any]:
    """The recipe, precision and data of a training, as a network's file has them."""
    return {**recipe.to_json(), "half": half, "data": task.data}


def noted(about: dict[str, str], key: str) -> Any:
    """The metadata that `store` wrote under the key; None where it is absent or not JSON."""
    try:
        return json.loads(about.get(key, "null"))
    except (ValueError, RecursionError):
        return None


def _labelled(data: Dataset, architecture: Architecture) -> tuple[Tensor, Tensor]:
    """The images, in the shape of the architecture's inputs, and their labels."""
    if data.labels is None:
        raise InputError(f"{data.name} have no labels to learn from")
    return data.images.unflatten(1, architecture.input_shape), data.labels
