"""Margins and targets: what must stay positive, and against which rivals."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.errors import InputError

TARGETS = ("runner-up", "least-likely", "random", "all", "untargeted")


@dataclass(frozen=True, eq=False)
class Property:
    """Margins of labels over rivals that must stay positive together; labels (batch,), rivals (batch, rows)."""

    labels: Tensor
    rivals: Tensor

    def rows(self, classes: int, dtype: torch.dtype) -> Tensor:
        """The margins as linear forms on the class scores: (batch, rows, classes)."""
        forms = torch.zeros(*self.rivals.shape, classes, dtype=dtype)
        forms.scatter_(2, self.labels[:, None, None].expand(*self.rivals.shape, 1), 1)
        return forms.scatter_(2, self.rivals[..., None], -1)

    def select(self, chosen: Tensor) -> Property:
        return Property(self.labels[chosen], self.rivals[chosen])

    def narrow(self, rows: Tensor) -> Property:
        """Some rows of each batch member, (batch, fewer rows)."""
        return Property(self.labels, self.rivals.gather(1, rows))


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

    For `all` and `untargeted` every class but the label; otherwise one. A class index that is an image's own label
    yields -1 in its row: such an image has no rival.
    """
    count, classes = scores.shape
    if isinstance(target, int):
        chosen = torch.full((count, 1), target)
        return torch.where(chosen == labels[:, None], -1, chosen)
    own = torch.nn.functional.one_hot(labels, classes).bool()
    others = (~own).nonzero()[:, 1].view(count, classes - 1)
    if target in ("all", "untargeted"):
        return others
    if target == "random":
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(classes - 1, (count, 1), generator=generator)
        return others.gather(1, drawn)
    if target == "runner-up":
        return scores.masked_fill(own, -torch.inf).argmax(1, keepdim=True)
    return scores.masked_fill(own, torch.inf).argmin(1, keepdim=True)
