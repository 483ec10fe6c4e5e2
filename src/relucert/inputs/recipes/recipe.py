"""Recipes: the settings that determine a training, stored so that the same network can be built again."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass, fields
from typing import Any

from relucert.arithmetic.norm import Norm
from relucert.common.checks import check_number, check_positive, check_whole, shown
from relucert.common.names import LOSS_BOUNDS, OPTIMISERS, LossBounds
from relucert.common.numbers import number_above
from relucert.errors import InputError

MOST = 2**31  # the largest number of epochs, of images per batch, and of steps of an attack
LEARNING_RATES = {"sgd": 0.05, "adam": 0.001}  # by the optimiser, where none is given


@dataclass(frozen=True)
class Distillation:
    """Defensive distillation: a teacher is trained at a temperature, then a student of its shape on its soft labels.

    Attributes:
        temperature: What the scores are divided by before the softmax, during both trainings.
    """

    temperature: float = 100.0

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)


@dataclass(frozen=True)
class Adversarial:
    """Adversarial training: every batch is replaced by adversarial images of projected gradient descent (p = infinity).

    Attributes:
        epsilon: The radius of the attacks.
        steps: Of each attack.
        warm_up: The share of the training over which the radius grows to epsilon; from the start, the full radius
            would teach nothing but guessing.
        box: The least and the largest valid value of a pixel, None if there is no limit.
    """

    epsilon: float = 0.3
    steps: int = 10
    warm_up: float = 0.5
    box: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", number_above(self.epsilon, "epsilon"))
        check_positive("epsilon", self.epsilon)
        check_whole("number of steps", self.steps, 1, MOST)
        check_number("warm-up", self.warm_up, 0, 1)
        if self.box is not None:
            _check_box(self.box)


@dataclass(frozen=True)
class Certified:
    """Certified training on an upper bound of the loss within a radius (IBP training with intervals), mixed with the
    plain loss.

    Attributes:
        epsilon: The radius that is to be certified; a fraction, as "8/255", is rounded up.
        norm: Of the radius: "inf", "2", "1" or any number >= 1.
        warm_up: The share of the training over which the radius grows to its full size.
        bounds: "interval", "fast-lin" or "crown", which bounds the loss; None: intervals for p = inf, otherwise
            Fast-Lin, since the intervals of other balls are those of the box around them.
        clean: The weight of the plain loss at the full radius; it falls from 1 as the radius grows.
        stretch: The full radius of the training, in units of epsilon.
        box: The least and the largest valid value of a pixel, None if there is no limit.
    """

    epsilon: float = 0.1
    norm: str | float = math.inf
    warm_up: float = 0.5
    bounds: LossBounds | None = None
    clean: float = 0.5
    stretch: float = 1.0
    box: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", number_above(self.epsilon, "epsilon"))
        check_positive("epsilon", self.epsilon)
        check_number("warm-up", self.warm_up, 0, 1)
        check_number("weight of the plain loss", self.clean, 0, 1)
        check_positive("stretch", self.stretch)
        if self.box is not None:
            _check_box(self.box)
        norm = Norm.parse(self.norm).p
        usual = "interval" if norm == math.inf else "fast-lin"
        bounds = usual if self.bounds is None else LOSS_BOUNDS.find(self.bounds)
        object.__setattr__(self, "norm", norm)  # one spelling, so that equal settings compare equal
        object.__setattr__(self, "bounds", bounds)

    @property
    def starts_small(self) -> bool:
        """Whether new networks start from small weights: those that interval bounds do not blow up on."""
        return self.bounds == "interval"


Defence = Distillation | Adversarial | Certified
DEFENCES: dict[str, type[Defence]] = {
    "distillation": Distillation,
    "adversarial": Adversarial,
    "certified": Certified,
}


@dataclass(frozen=True)
class Recipe:
    """Stochastic gradient descent with momentum, or Adam, with a cosine schedule of the learning rate.

    momentum: of Adam, the decay of the mean gradient.
    """

    epochs: int = 20
    learning_rate: float = 0.05
    weight_decay: float = 1e-4
    batch: int = 128
    momentum: float = 0.9
    seed: int = 0
    defence: Defence | None = None
    optimiser: str = "sgd"

    def __post_init__(self) -> None:
        check_whole("number of epochs", self.epochs, 1, MOST)
        check_positive("learning rate", self.learning_rate)
        check_number("weight decay", self.weight_decay, 0, sys.float_info.max)
        check_whole("batch", self.batch, 1, MOST)
        check_number("momentum", self.momentum, 0, 1)
        if self.momentum == 1:
            raise InputError("the momentum must be below 1")
        check_whole("seed", self.seed, 0, 2**63 - 1)
        usual_rate(self.optimiser)
        if self.defence is not None and not isinstance(self.defence, Defence):
            raise InputError(
                f"a defence is one of {', '.join(DEFENCES)}, with or without settings, not {shown(self.defence)}"
            )

    def to_json(self) -> dict[str, Any]:
        """The settings as plain JSON values, the defence with its name; an infinite norm is "inf".

        The optimiser is left out where it is SGD, as in files from before there was a choice.
        """
        row = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "defence"}
        if self.optimiser == "sgd":
            del row["optimiser"]
        defence: dict[str, Any] | None = None
        if self.defence is not None:
            settings = {key: _plain(value) for key, value in asdict(self.defence).items()}
            defence = {"name": self.defence_name, **settings}
        return {**row, "defence": defence}

    @property
    def defence_name(self) -> str | None:
        """The defence's name in DEFENCES, or None."""
        return next((name for name, defence_type in DEFENCES.items() if type(self.defence) is defence_type), None)


def usual_rate(optimiser: str) -> float:
    """The learning rate where none is given; an unknown optimiser is refused."""
    return LEARNING_RATES[OPTIMISERS.find(optimiser)]


def _check_box(box: object) -> None:
    if not isinstance(box, tuple) or len(box) != 2:
        raise InputError(f"a box is a pair of numbers, the least and the greatest, not {shown(box)}")
    for end in box:
        check_number("box's end", end, -sys.float_info.max, sys.float_info.max)
    if not box[0] < box[1]:
        raise InputError(f"a box is a pair of numbers, the least and the greatest, not {shown(box)}")


def _plain(value: Any) -> Any:
    if value == math.inf:
        return "inf"
    return list(value) if isinstance(value, tuple) else value
