"""`relucert.train`: the loop and the defences for one's own module and data loader."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from relucert.errors import InputError
from relucert.training.loop import EpochReport, fit
from relucert.training.recipe import DEFENCES, Defence, Recipe


@dataclass(frozen=True, eq=False)
class _Loader:
    """A user's data loader; its order is its own affair."""

    loader: Any

    def __len__(self) -> int:
        return len(self.loader)

    def epoch(self, number: int) -> Iterable[tuple[Tensor, Tensor]]:
        batches: Iterable[tuple[Tensor, Tensor]] = iter(self.loader)
        return batches


def train(
    module: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor]],
    *,
    epochs: int = 20,
    learning_rate: float = 0.05,
    weight_decay: float = 1e-4,
    momentum: float = 0.9,
    seed: int = 0,
    defence: Defence | str | None = None,
    validation: tuple[Tensor, Tensor] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    report: Callable[[EpochReport], None] | None = None,
) -> list[EpochReport]:
    """Trains a module in place on a loader of (images, labels) and leaves it in evaluation mode.

    loader: re-iterable, with a length, such as a torch DataLoader; images in the network's own input range.
    defence: None, "distillation", "adversarial" or "certified" with their defaults, or one with settings of its own,
    such as `relucert.Certified(epsilon=0.1, norm=2)`.
    checkpoint: a file saved after every epoch; if it is there, training goes on from it (to the same weights, if the
    loader's order is the same in every epoch).
    report: called after every epoch.
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"a torch.nn.Module is needed, not {type(module).__name__}")
    if not isinstance(loader, Sized) or not len(loader):
        raise InputError("the loader must have a length, and at least one batch")
    recipe = Recipe(
        epochs=epochs,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        momentum=momentum,
        seed=seed,
        defence=_defence(defence),
    )
    keep = None if checkpoint is None else Path(checkpoint)
    return fit(module, _Loader(loader), recipe, validation=validation, keep=keep, report=report)


def _defence(given: Defence | str | None) -> Defence | None:
    if not isinstance(given, str):
        return given
    if given not in DEFENCES:
        raise InputError(f"unknown defence {given!r}; known are {', '.join(DEFENCES)}")
    return DEFENCES[given]()
