"""`relucert.train`: the training loop and the defences for the user's module and data loader."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from relucert.common.checks import check_callable, checked_path
from relucert.errors import InputError
from relucert.inputs.loading.torch_module import run_module
from relucert.inputs.recipes.recipe import DEFENCES, Defence, Recipe, usual_rate
from relucert.inputs.storage.files import check_writable
from relucert.query.inputs import check_batch, check_pixels
from relucert.training.checkpoint import EpochReport
from relucert.training.loop import fit


class _Loader:
    """A user's data loader with every batch checked; the order of the batches is left to the loader."""

    def __init__(self, loader: Any, module: nn.Module, validation: tuple[Tensor, Tensor] | None) -> None:
        self._loader, self._module, self._validation = loader, module, validation
        self._first: Tensor | None = None
        self._classes = 0

    def __len__(self) -> int:
        return len(self._loader)

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self._loader:
            images, labels = _pair(batch, "the loader must give pairs of images and labels")
            if self._first is None:
                self._try(images)
            elif images.shape[1:] != self._first.shape[1:] or images.dtype != self._first.dtype:
                raise InputError(f"the first batch has {_form(self._first)} an image, a later one {_form(images)}")
            yield check_batch(images, labels, self._classes)

    def _try(self, images: Tensor) -> None:
        """Runs the module on the first batch, before any training, to check it and to count its classes."""
        check_pixels(images)
        name, training = type(self._module).__name__, self._module.training
        self._module.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):  # leaves the state of the random generator alone
            scores = run_module(self._module, images, name)
        self._module.train(training)
        if scores.ndim != 2 or len(scores) != len(images) or scores.shape[1] < 2:
            raise InputError(f"{name} must give two scores or more an image, not {tuple(scores.shape)} a batch")
        self._first, self._classes = images[:1].detach(), scores.shape[1]
        if self._validation is not None:
            checked = check_batch(*self._validation, self._classes)[0]
            if checked.shape[1:] != images.shape[1:] or checked.dtype != images.dtype:
                raise InputError(f"the loader has {_form(images)} an image, the validation {_form(checked)}")


def _length(loader: object) -> int:
    """How many batches there are; 0 where nothing tells."""
    try:
        return len(loader)  # type: ignore[arg-type]
    except Exception:  # whatever the user's class raises
        return 0


def _pair(pair: Any, wanted: str) -> tuple[Tensor, Tensor]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(isinstance(item, Tensor) for item in pair):
        raise InputError(f"{wanted}, as tensors")
    return pair[0], pair[1]


def _form(images: Tensor) -> str:
    return f"{images.dtype} {tuple(images.shape[1:])}"


def train(
    module: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor]],
    *,
    epochs: int = 20,
    learning_rate: float | None = None,
    weight_decay: float = 1e-4,
    momentum: float = 0.9,
    optimiser: str = "sgd",
    seed: int = 0,
    defence: Defence | str | None = None,
    validation: tuple[Tensor, Tensor] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    report: Callable[[EpochReport], None] | None = None,
) -> list[EpochReport]:
    """Trains a module in place on a loader of (images, labels) and leaves it in evaluation mode.

    Stochastic gradient descent with momentum, or Adam, on the cross-entropy, with a cosine schedule of the learning
    rate.

    Args:
        module: What is trained.
        loader: Re-iterable, with a length, such as a torch DataLoader; images in the network's input range.
        epochs: How often all batches are gone through.
        learning_rate: At the start of the schedule; None: 0.05, and 0.001 for Adam.
        weight_decay: Of all parameters.
        momentum: At least 0, below 1; for Adam the decay of the mean gradient.
        optimiser: "sgd" or "adam".
        seed: Determines the noise of attacks and everything that draws from PyTorch's global generator, such as
            dropout or a shuffling DataLoader without a generator; the state of the global generator is restored
            afterwards.
        defence: None, "distillation", "adversarial" or "certified" with their default settings, or an object with
            others, such as `relucert.Certified(epsilon=0.1, norm=2)`. Attacks of `Adversarial`, and the regions of
            `Certified`, stay in its `box`, if it has one.
        validation: Images and labels on which the accuracy is reported after every epoch.
        checkpoint: A file saved after every epoch, from which training resumes if it exists; the weights become the
            same as without an interruption if the loader gives the same batches in the same epoch. The file identifies
            the settings and the module's shape, but not the loader's data.
        report: Called after every epoch.
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"a torch.nn.Module is needed, not {type(module).__name__}")
    if not _length(loader):
        raise InputError("the loader must have a length, and at least one batch")
    check_callable("report", report)
    if validation is not None:
        validation = _pair(validation, "the validation must be a pair of images and labels")
    recipe = Recipe(
        epochs=epochs,
        learning_rate=usual_rate(optimiser) if learning_rate is None else learning_rate,
        weight_decay=weight_decay,
        momentum=momentum,
        seed=seed,
        defence=_defence(defence),
        optimiser=optimiser,
    )
    keep = None if checkpoint is None else checked_path(checkpoint, "a checkpoint")
    if keep is not None:
        check_writable(keep)
    batches = _Loader(loader, module, validation)
    return fit(module, batches, recipe, validation=validation, keep=keep, report=report)


def _defence(defence: Defence | str | None) -> Defence | None:
    if not isinstance(defence, str):
        return defence  # a recipe refuses what is none
    if defence not in DEFENCES:
        raise InputError(f"unknown defence {defence!r}; known are {', '.join(DEFENCES)}")
    return DEFENCES[defence]()
