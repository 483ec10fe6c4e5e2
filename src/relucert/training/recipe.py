"""What determines a training: a recipe is all there is to store for building the same network again."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from relucert.errors import InputError


@dataclass(frozen=True)
class Distillation:
    """Defensive distillation: a teacher learns at a temperature, a student of the same shape learns its soft labels."""

    temperature: float = 100.0

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, self.temperature > 0)


@dataclass(frozen=True)
class Adversarial:
    """Adversarial training: every batch is replaced by what projected gradient descent makes of it (p = infinity).

    The radius grows to epsilon over the warm-up, a share of the training: at once it would teach nothing but guessing.
    """

    epsilon: float = 0.3
    steps: int = 10
    warm_up: float = 0.5

    def __post_init__(self) -> None:
        _check("epsilon", self.epsilon, self.epsilon > 0)
        _check("steps", self.steps, self.steps >= 1)
        _check("warm-up", self.warm_up, 0 <= self.warm_up <= 1)


@dataclass(frozen=True)
class Certified:
    """Training on the Fast-Lin bound itself; the radius grows to epsilon over the warm-up, a share of the training."""

    epsilon: float = 0.1
    norm: float = math.inf
    warm_up: float = 0.5

    def __post_init__(self) -> None:
        _check("epsilon", self.epsilon, self.epsilon > 0)
        _check("norm", self.norm, self.norm >= 1)
        _check("warm-up", self.warm_up, 0 <= self.warm_up <= 1)


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
        _check("epochs", self.epochs, self.epochs >= 1)
        _check("learning rate", self.learning_rate, self.learning_rate > 0)
        _check("weight decay", self.weight_decay, self.weight_decay >= 0)
        _check("batch", self.batch, self.batch >= 1)
        _check("momentum", self.momentum, 0 <= self.momentum < 1)
        _check("seed", self.seed, 0 <= self.seed < 2**63)

    def to_json(self) -> dict[str, Any]:
        """Plain values, the defence with its name; an infinite norm as "inf"."""
        row = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "defence"}
        defence: dict[str, Any] | None = None
        if self.defence is not None:
            settings = {key: "inf" if value == math.inf else value for key, value in asdict(self.defence).items()}
            defence = {"name": self.defence_name, **settings}
        return {**row, "defence": defence}

    @property
    def defence_name(self) -> str | None:
        """The defence's name in DEFENCES, or None."""
        return next((name for name, kind in DEFENCES.items() if type(self.defence) is kind), None)


def _check(name: str, value: float, fits: bool) -> None:
    if not fits or (math.isnan(value)):
        raise InputError(f"the {name} can't be {value}")
