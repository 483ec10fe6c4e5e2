"""What determines a training: a recipe is all there is to store for building the same network again."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass, fields
from typing import Any

from relucert.checks import check_number, check_positive, check_whole
from relucert.errors import InputError
from relucert.norm import Norm

MOST = 2**31  # epochs, images a batch, steps of an attack


@dataclass(frozen=True)
class Distillation:
    """Defensive distillation: a teacher learns at a temperature, a student of the same shape learns its soft labels."""

    temperature: float = 100.0

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)


@dataclass(frozen=True)
class Adversarial:
    """Adversarial training: every batch is replaced by what projected gradient descent makes of it (p = infinity).

    The radius grows to epsilon over the warm-up, a share of the training: at once it would teach nothing but guessing.
    box: the least and the greatest value that a number of an image can have, None where there is no such limit.
    """

    epsilon: float = 0.3
    steps: int = 10
    warm_up: float = 0.5
    box: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        check_whole("number of steps", self.steps, 1, MOST)
        check_number("warm-up", self.warm_up, 0, 1)
        if self.box is not None:
            _check_box(self.box)


@dataclass(frozen=True)
class Certified:
    """Training on the Fast-Lin bound itself; the radius grows to epsilon over the warm-up, a share of the training."""

    epsilon: float = 0.1
    norm: str | float = math.inf
    warm_up: float = 0.5

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        check_number("warm-up", self.warm_up, 0, 1)
        object.__setattr__(self, "norm", Norm.parse(self.norm).p)  # one spelling: equal settings are equal


Defence = Distillation | Adversarial | Certified
DEFENCES: dict[str, type[Defence]] = {
    "distillation": Distillation,
    "adversarial": Adversarial,
    "certified": Certified,
}


@dataclass(frozen=True)
class Recipe:
    """Stochastic gradient descent with momentum on cross-entropy, the learning rate falling as a cosine."""

    epochs: int = 20
    learning_rate: float = 0.05
    weight_decay: float = 1e-4
    batch: int = 128
    momentum: float = 0.9
    seed: int = 0
    defence: Defence | None = None

    def __post_init__(self) -> None:
        check_whole("number of epochs", self.epochs, 1, MOST)
        check_positive("learning rate", self.learning_rate)
        check_number("weight decay", self.weight_decay, 0, sys.float_info.max)
        check_whole("batch", self.batch, 1, MOST)
        check_number("momentum", self.momentum, 0, 1)
        if self.momentum == 1:
            raise InputError("the momentum must be below 1")
        check_whole("seed", self.seed, 0, 2**63 - 1)
        if self.defence is not None and not isinstance(self.defence, Defence):
            raise InputError(
                f"a defence is one of {', '.join(DEFENCES)}, with or without settings, not {self.defence!r}"
            )

    def to_json(self) -> dict[str, Any]:
        """Plain values as JSON gives them back, the defence with its name; an infinite norm as "inf"."""
        row = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "defence"}
        defence: dict[str, Any] | None = None
        if self.defence is not None:
            defence = {"name": self.defence_name, **{key: _plain(it) for key, it in asdict(self.defence).items()}}
        return {**row, "defence": defence}

    @property
    def defence_name(self) -> str | None:
        """The defence's name in DEFENCES, or None."""
        return next((name for name, kind in DEFENCES.items() if type(self.defence) is kind), None)


def _check_box(box: object) -> None:
    if not isinstance(box, tuple) or len(box) != 2:
        raise InputError(f"a box is a pair of numbers, the least and the greatest, not {box!r}")
    for end in box:
        check_number("box's end", end, -sys.float_info.max, sys.float_info.max)
    if not box[0] < box[1]:
        raise InputError(f"a box is a pair of numbers, the least and the greatest, not {box!r}")


def _plain(value: Any) -> Any:
    if value == math.inf:
        return "inf"
    return list(value) if isinstance(value, tuple) else value
