"""Targets: which rival classes a question is about."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import Tensor

from relucert.errors import InputError

Choice = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""From scores (batch, classes), labels (batch,), the other classes (batch, classes - 1) and a seed to the rivals,
(batch, rows)."""


def _every(scores: Tensor, labels: Tensor, others: Tensor, seed: int) -> Tensor:
    return others


def _random(scores: Tensor, labels: Tensor, others: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return others.gather(1, torch.randint(others.shape[1], (len(others), 1), generator=generator))


def _runner_up(scores: Tensor, labels: Tensor, others: Tensor, seed: int) -> Tensor:
    return others.gather(1, scores.gather(1, others).argmax(1, keepdim=True))


def _least_likely(scores: Tensor, labels: Tensor, others: Tensor, seed: int) -> Tensor:
    return others.gather(1, scores.gather(1, others).argmin(1, keepdim=True))


TARGETS: dict[str, Choice] = {
    "runner-up": _runner_up,
    "least-likely": _least_likely,
    "random": _random,
    "all": _every,  # each rival is a question of its own
    "untargeted": _every,  # all rivals at once
}


def parse_target(target: str | int, classes: int) -> str | int:
    """A target's name or a class index; anything else is refused."""
    if classes < 2:
        raise InputError("a network with a single output has no rival classes to be certified against")
    if not isinstance(target, (str, bool)) and hasattr(target, "__index__"):
        target = operator.index(target)
    if isinstance(target, str) and target not in TARGETS and not (target.isascii() and target.isdecimal()):
        raise InputError(f"unknown target {target!r}; use a class index or one of {', '.join(TARGETS)}")
    if isinstance(target, str) and target in TARGETS:
        return target
    if isinstance(target, bool) or not isinstance(target, (int, str)):
        raise InputError(f"a target is a class index or one of {', '.join(TARGETS)}, not {target!r}")
    if not 0 <= int(target) < classes:
        raise InputError(f"target class {target} is not among the network's {classes} classes")
    return int(target)


def rivals(target: str | int, scores: Tensor, labels: Tensor, seed: int) -> Tensor:
    """The classes each label competes with, (batch, rows); scores (batch, classes) rank them.

    A class index that is an image's own label yields -1 in its row: such an image has no rival.
    """
    count, classes = scores.shape
    target = parse_target(target, classes)
    if isinstance(target, int):
        chosen = torch.full((count, 1), target)
        return torch.where(chosen == labels[:, None], -1, chosen)
    is_label = torch.nn.functional.one_hot(labels, classes).bool()
    others = (~is_label).nonzero()[:, 1].view(count, classes - 1)
    return TARGETS[target](scores, labels, others, seed)
