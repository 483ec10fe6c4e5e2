"""The one training loop: epochs of stochastic gradient descent, a checkpoint after each, the same with any defence."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD

from relucert.ball import Norm
from relucert.errors import InputError
from relucert.loading.torch_module import live_network
from relucert.network import Network
from relucert.training import checkpoint
from relucert.training.losses import attacked, distilled, robust_loss
from relucert.training.recipe import Adversarial, Certified, Distillation, Recipe


@dataclass(frozen=True)
class EpochReport:
    """One epoch: of which network ("teacher" or "network"), its mean loss, and the share of images classified right."""

    stage: str
    epoch: int
    loss: float
    accuracy: float
    validation: float | None
    seconds: float


class Batches(Protocol):
    """Images and labels in batches; the same for the same epoch."""

    def __len__(self) -> int: ...

    def epoch(self, number: int) -> Iterable[tuple[Tensor, Tensor]]: ...


@dataclass(frozen=True, eq=False)
class Shuffled:
    """All images in an order drawn from the seed and the epoch's number alone, so that any epoch can be repeated."""

    images: Tensor
    labels: Tensor
    batch: int
    seed: int

    def __len__(self) -> int:
        return math.ceil(len(self.images) / self.batch)

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.images), generator=generator(self.seed, number))
        for chosen in order.split(self.batch):
            yield self.images[chosen], self.labels[chosen]


def generator(seed: int, epoch: int, purpose: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + epoch) * 7 + purpose)


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images classified as labelled."""
    with torch.no_grad():
        right = sum(int((model(part).argmax(1) == true).sum()) for part, true in _parts(images, labels))
    return right / len(images)


def fit(
    model: nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    validation: tuple[Tensor, Tensor] | None = None,
    keep: Path | None = None,
    report: Callable[[EpochReport], None] | None = None,
) -> list[EpochReport]:
    """Trains the model in place and leaves it in evaluation mode; with `keep`, resumes from there and saves there."""
    models = [deepcopy(model), model] if isinstance(recipe.defence, Distillation) else [model]
    optimisers = [_optimiser(each, recipe) for each in models]
    done = checkpoint.Progress(0, 0, [])
    if keep is not None and keep.exists():
        done = checkpoint.restore(keep, models, optimisers, recipe.to_json())
    reports = [EpochReport(**row) for row in done.reports]
    for number in range(done.stage, len(models)):
        stage = _Stage(models, number, recipe, batches, optimisers[number])
        for epoch in range(done.epochs if number == done.stage else 0, recipe.epochs):
            reports.append(stage.run(epoch, validation))
            if keep is not None:
                progress = checkpoint.Progress(number, epoch + 1, [asdict(row) for row in reports])
                checkpoint.save(keep, models, optimisers[number], progress, recipe.to_json())
            if report is not None:
                report(reports[-1])
    return reports


class _Stage:
    """The training of one network: the only one, or with distillation the teacher and then the student."""

    def __init__(self, models: list[nn.Module], number: int, recipe: Recipe, batches: Batches, optimiser: SGD) -> None:
        self.model, self.recipe, self.batches, self.optimiser = models[number], recipe, batches, optimiser
        self.teacher = models[0] if number else None
        self.name = "network" if number == len(models) - 1 else "teacher"
        self.live: Callable[[], Network] | None = None

    def run(self, epoch: int, validation: tuple[Tensor, Tensor] | None) -> EpochReport:
        started = time.perf_counter()
        self.model.train()
        noise = generator(self.recipe.seed, epoch, purpose=1)
        losses, right, seen = 0.0, 0, 0
        for step, (images, labels) in enumerate(self.batches.epoch(epoch)):
            share = (epoch + step / len(self.batches)) / self.recipe.epochs
            self.optimiser.param_groups[0]["lr"] = self.recipe.learning_rate * (1 + math.cos(math.pi * share)) / 2
            loss, scores = self._loss(images, labels, share, noise)
            if not bool(torch.isfinite(loss)):
                raise InputError(
                    f"the loss became {float(loss.detach())} in epoch {epoch + 1}; lower the learning rate"
                )
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            losses, seen = losses + float(loss.detach()) * len(images), seen + len(images)
            right += int((scores.argmax(1) == labels).sum())
        self.model.eval()
        checked = None if validation is None else accuracy(self.model, *validation)
        return EpochReport(self.name, epoch + 1, losses / seen, right / seen, checked, time.perf_counter() - started)

    def _loss(self, images: Tensor, labels: Tensor, share: float, noise: torch.Generator) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and the scores it is about."""
        defence = self.recipe.defence
        if isinstance(defence, Adversarial) and (radius := defence.epsilon * _ramp(share, defence.warm_up)) > 0:
            images = attacked(self.model, images, labels, radius, defence.steps, noise)
        scores = self.model(images)
        if isinstance(defence, Distillation):
            if self.teacher is None:
                return distilled(
                    scores, functional.one_hot(labels, scores.shape[1]).to(scores.dtype), defence.temperature
                ), scores
            with torch.no_grad():
                soft = (self.teacher(images) / defence.temperature).softmax(1)
            return distilled(scores, soft, defence.temperature), scores
        if isinstance(defence, Certified) and (radius := defence.epsilon * _ramp(share, defence.warm_up)) > 0:
            if self.live is None:
                self.live = live_network(self.model, tuple(images.shape[1:]))
            return robust_loss(self.live, images, labels, radius, Norm(defence.norm)), scores
        return functional.cross_entropy(scores, labels), scores


def _ramp(share: float, warm_up: float) -> float:
    """How much of the radius is asked for: nothing in the first tenth of the warm-up, all of it after the warm-up."""
    start = warm_up / 10
    if share >= warm_up:
        return 1.0
    return max(0.0, (share - start) / (warm_up - start))


def _optimiser(model: nn.Module, recipe: Recipe) -> SGD:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return SGD(parameters, recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay)


def _parts(images: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(images.split(2048), labels.split(2048), strict=True)
