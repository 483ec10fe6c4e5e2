"""Targets: which rival classes a question is about."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import Tensor

from relucert.common.arrays import dense
from relucert.common.checks import shown
from relucert.common.names import TARGETS as TARGET_NAMES
from relucert.common.names import TargetName
from relucert.errors import InputError
from relucert.query.types import TargetLike

Choice = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""From scores (batch, classes), labels (batch,), the other classes (batch, classes - 1) and a seed to the rivals,
(batch, rows)."""


def _every(scores: Tensor, labels: Tensor, candidates: Tensor, seed: int) -> Tensor:
    return candidates


def _random(scores: Tensor, labels: Tensor, candidates: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return candidates.gather(1, torch.randint(candidates.shape[1], (len(candidates), 1), generator=generator))


def _runner_up(scores: Tensor, labels: Tensor, candidates: Tensor, seed: int) -> Tensor:
    return candidates.gather(1, scores.gather(1, candidates).argmax(1, keepdim=True))


def _least_likely(scores: Tensor, labels: Tensor, candidates: Tensor, seed: int) -> Tensor:
    return candidates.gather(1, scores.gather(1, candidates).argmin(1, keepdim=True))


TARGETS: dict[TargetName, Choice] = {
    "runner-up": _runner_up,
    "least-likely": _least_likely,
    "random": _random,
    "all": _every,  # each rival is a question of its own
    "untargeted": _every,  # all rivals at once
}


Target = TargetName | int | tuple[int, ...]
"""A name out of TARGETS, a class, or one class per image."""


def parse_target(target: TargetLike, classes: int) -> Target:
    """A target's name, a class, or one class per image; anything else is refused."""
    if classes < 2:
        raise InputError(
            "a network with a single output has no rival classes: ask about its values, with "
            "property=relucert.Property.outputs_within(low, high), or verify a relucert.Query.outputs_within"
        )
    if isinstance(target, str) and not (target.isascii() and target.isdecimal()):
        return TARGET_NAMES.find(target)
    if isinstance(target, (list, tuple)) or getattr(target, "ndim", None):
        return _parse_each(target, classes)
    return _parse_class(int(target) if isinstance(target, str) else target, classes)


def _parse_class(target: object, classes: int) -> int:
    try:
        index = None if isinstance(target, bool) else operator.index(target)  # type: ignore[arg-type]
    except TypeError:
        index = None
    if index is None:
        raise InputError(f"a target is a class index or one of {', '.join(TARGETS)}, not {shown(target)}")
    if not 0 <= index < classes:
        raise InputError(f"target class {index} is not among the network's {classes} classes (0 to {classes - 1})")
    return index


def _parse_each(target: object, classes: int) -> tuple[int, ...]:
    targets = dense(target, "targets")
    if targets.ndim != 1 or targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
        described = f"{str(targets.dtype).removeprefix('torch.')} of shape {tuple(targets.shape)}"
        raise InputError(f"targets are one class per image, whole numbers of shape (N,), not {described}")
    return tuple(_parse_class(index, classes) for index in targets.tolist())


def rivals(target: TargetLike, scores: Tensor, labels: Tensor, seed: int) -> Tensor:
    """The classes each label competes with, (batch, rows); scores (batch, classes) rank them.

    A class for all images that is an image's own label yields -1 in its row: such an image has no rival.
    """
    count, classes = scores.shape
    target = parse_target(target, classes)
    if isinstance(target, int):
        return torch.where(labels == target, -1, target)[:, None]
    if isinstance(target, tuple):
        return _each(target, labels)
    is_label = torch.nn.functional.one_hot(labels, classes).bool()
    candidates = (~is_label).nonzero()[:, 1].view(count, classes - 1)
    return TARGETS[target](scores, labels, candidates, seed)


def _each(targets: tuple[int, ...], labels: Tensor) -> Tensor:
    """The rivals of images that have a target each: (batch, 1)."""
    if len(targets) != len(labels):
        raise InputError(f"targets must be one per image, {len(labels):,} in all, not {len(targets):,}")
    for image, (target, label) in enumerate(zip(targets, labels.tolist(), strict=True)):
        if target == label:
            raise InputError(f"the target of image {image}, class {target}, is its own label")
    return torch.tensor(targets)[:, None]
