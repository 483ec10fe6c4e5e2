"""The training loop for all defences: epochs of stochastic gradient descent, with a checkpoint after each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, Optimizer

from relucert.errors import DivergedError, InputError, NetworkError
from relucert.inputs.loading.torch_module import live_network
from relucert.inputs.recipes.recipe import Adversarial, Certified, Distillation, Recipe
from relucert.network import Network, Shape
from relucert.training import checkpoint
from relucert.training.checkpoint import EpochReport, TrainingProgress
from relucert.training.losses import attacked, distilled, robust_loss


class Batches(Protocol):
    """Batches of images and labels; the same epoch gives the same batches."""

    def __len__(self) -> int: ...

    def epoch(self, number: int) -> Iterable[tuple[Tensor, Tensor]]: ...


@dataclass(frozen=True, eq=False)
class Shuffled:
    """All images in an order that depends on the seed and the epoch's number alone, so any epoch can be repeated."""

    images: Tensor
    labels: Tensor
    batch: int
    seed: int

    def __len__(self) -> int:
        return math.ceil(len(self.images) / self.batch)

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.images), generator=generator(self.seed, number))
        for batch in order.split(self.batch):
            yield self.images[batch], self.labels[batch]


def generator(seed: int, epoch: int, purpose: int = 0) -> torch.Generator:
    """A random generator for one epoch and purpose.

    purpose: 0 for the order of the images, 1 for the noise of attacks, 2 and 3 for all else in the first and the second
    stage.
    """
    return torch.Generator().manual_seed(((seed * 1_000_003 + epoch) * 7 + purpose) % 2**63)


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images that are classified as labelled."""
    with torch.no_grad():
        batches = zip(images.split(2048), labels.split(2048), strict=True)
        right = sum(int((model(batch).argmax(1) == true).sum()) for batch, true in batches)
    return right / len(images)


def fit(
    model: nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    data: dict[str, Any] | None = None,
    validation: tuple[Tensor, Tensor] | None = None,
    keep: Path | None = None,
    report: Callable[[EpochReport], None] | None = None,
    resumed: Callable[[EpochReport], None] | None = None,
) -> list[EpochReport]:
    """Trains the model in place and leaves it in evaluation mode.

    data: identifies the data, so that a checkpoint of other data is refused.
    keep: the checkpoint's file, from which training resumes and which is saved after every epoch.
    report: called after every epoch; resumed: called with the last epoch in the checkpoint, if there is one.
    """
    models = [deepcopy(model), model] if isinstance(recipe.defence, Distillation) else [model]
    optimisers = [_optimiser(stage_model, recipe) for stage_model in models]
    done = None if keep is None else checkpoint.restore(keep, models, optimisers, recipe, data)
    done = done or TrainingProgress(0, 0, [])
    reports = [*done.reports]
    if reports and resumed is not None:
        resumed(reports[-1])
    for number in range(done.stage, len(models)):
        stage = _Stage(models, number, recipe, batches, optimisers[number])
        for epoch in range(done.epochs if number == done.stage else 0, recipe.epochs):
            reports.append(stage.run(epoch, validation))
            if keep is not None:
                progress = TrainingProgress(number, epoch + 1, reports)
                checkpoint.save(keep, models, optimisers[number], progress, recipe, data)
            if report is not None:
                report(reports[-1])
    model.eval()
    return reports


class _Stage:
    """The training of one network: the only one, or with distillation the teacher and then the student."""

    def __init__(
        self, models: list[nn.Module], number: int, recipe: Recipe, batches: Batches, optimiser: Optimizer
    ) -> None:
        self.model, self.recipe, self.batches, self.optimiser = models[number], recipe, batches, optimiser
        self.teacher = models[0] if number else None
        if self.teacher is not None:
            self.teacher.eval()
        self.number, self.name = number, "network" if number == len(models) - 1 else "teacher"
        self.live: Callable[[], Network] | None = None

    def run(self, epoch: int, validation: tuple[Tensor, Tensor] | None) -> EpochReport:
        """Trains one epoch; draws from PyTorch's global generator depend on the seed and the epoch alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator(self.recipe.seed, epoch, purpose=2 + self.number).initial_seed())
            return self._run(epoch, validation)

    def _run(self, epoch: int, validation: tuple[Tensor, Tensor] | None) -> EpochReport:
        started = time.perf_counter()
        self.model.train()
        noise = generator(self.recipe.seed, epoch, purpose=1)
        losses, right, seen = 0.0, 0, 0
        for step, (images, labels) in enumerate(self.batches.epoch(epoch)):
            share = (epoch + step / len(self.batches)) / self.recipe.epochs
            self.optimiser.param_groups[0]["lr"] = self.recipe.learning_rate * (1 + math.cos(math.pi * share)) / 2
            loss, scores = self._loss(images, labels, share, noise)
            if not bool(torch.isfinite(loss)):
                raise _diverged(f"the loss became {float(loss.detach())} in epoch {epoch + 1}")
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            losses, seen = losses + float(loss.detach()) * len(images), seen + len(images)
            right += int((scores.argmax(1) == labels).sum())
        if not seen:
            raise InputError("the loader gave no batch to learn from")
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.model.parameters()):
            raise _diverged(f"the weights became infinite in epoch {epoch + 1}")
        self.model.eval()
        checked = None if validation is None else accuracy(self.model, *validation)
        return EpochReport(self.name, epoch + 1, losses / seen, right / seen, checked, time.perf_counter() - started)

    def _loss(self, images: Tensor, labels: Tensor, share: float, noise: torch.Generator) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and the model's scores: (batch, classes)."""
        defence = self.recipe.defence
        if isinstance(defence, Adversarial) and (radius := defence.epsilon * _ramp(share, defence.warm_up)) > 0:
            self.model.eval()  # an attack must not change running statistics
            images = attacked(self.model, images, labels, radius, defence, noise)
            self.model.train()
        scores = self.model(images)
        if isinstance(defence, Distillation):
            if self.teacher is None:
                soft = functional.one_hot(labels, scores.shape[1]).to(scores.dtype)
            else:
                with torch.no_grad():
                    soft = (self.teacher(images) / defence.temperature).softmax(1)
            return distilled(scores, soft, defence.temperature), scores
        if isinstance(defence, Certified):
            network = self._network(tuple(images.shape[1:]))
            grown = _ramp(share, defence.warm_up)
            return _certified(network, images, labels, defence, grown, functional.cross_entropy(scores, labels)), scores
        return functional.cross_entropy(scores, labels), scores

    def _network(self, shape: Shape) -> Network:
        """The network of the current weights; traced at the first batch, so an unsupported model is refused at once."""
        if self.live is None:
            self.live = live_network(self.model, shape)
        try:
            return self.live()
        except NetworkError as error:
            raise _diverged("the weights became infinite") from error


def _certified(
    network: Network, images: Tensor, labels: Tensor, defence: Certified, grown: float, plain: Tensor
) -> Tensor:
    """The mean of the loss and its upper bound in balls; the weight of the bound and the radius grow with `grown`."""
    clean, radius = 1 - (1 - defence.clean) * grown, defence.epsilon * defence.stretch * grown
    if clean == 1 or radius == 0:
        return plain
    assert defence.bounds is not None
    robust = robust_loss(network, images, labels, radius, defence.norm, method=defence.bounds, box=defence.box)
    return clean * plain + (1 - clean) * robust


def _diverged(event: str) -> DivergedError:
    return DivergedError(f"{event}; lower the learning rate")


def _ramp(share: float, warm_up: float) -> float:
    """The share of the radius to train with: 0 in the first tenth of the warm-up, then growing to 1 at its end."""
    start = warm_up / 10
    if share >= warm_up:
        return 1.0
    return max(0.0, (share - start) / (warm_up - start))


def _optimiser(model: nn.Module, recipe: Recipe) -> Optimizer:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise InputError("the module has no parameters to train")
    if recipe.optimiser == "adam":
        betas = (recipe.momentum, 0.999)
        return Adam(parameters, recipe.learning_rate, betas, weight_decay=recipe.weight_decay)
    return SGD(parameters, recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
