"""The networks of the zoo, each with the recipe that it is trained with."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relucert.errors import InputError
from relucert.inputs.recipes.architectures import (
    BOX,
    CIFAR_CNN,
    CIFAR_RESNET,
    MNIST_CNN,
    MNIST_GELU,
    MNIST_VIT,
    MNIST_WIDE,
    Architecture,
    FullyConnected,
)
from relucert.inputs.recipes.recipe import Adversarial, Certified, Distillation, Recipe


@dataclass(frozen=True)
class Plan:
    """How to build one network of the zoo; half: whether it is stored in float16."""

    architecture: Architecture
    recipe: Recipe
    half: bool = False


_SMALL = Recipe(epochs=80, learning_rate=0.02, weight_decay=3e-4)
_LARGE = Recipe(epochs=20, learning_rate=0.05, weight_decay=1e-4)
_SOFT = Recipe(epochs=20, learning_rate=0.01, weight_decay=1e-4, defence=Distillation())
_ATTACKED = Recipe(epochs=25, learning_rate=0.05, weight_decay=1e-3, defence=Adversarial(box=BOX))
_CIFAR = Recipe(epochs=15, learning_rate=0.02, weight_decay=1e-4)
_CERTIFIED = Recipe(
    epochs=40,
    learning_rate=0.05,
    weight_decay=0.0,
    defence=Certified(0.1, bounds="fast-lin", clean=0, stretch=1.1),
)
_DIGITS = Recipe(epochs=12, learning_rate=0.05, weight_decay=5e-4)
_COLOURS = Recipe(epochs=10, learning_rate=0.02, weight_decay=5e-4)
_SEARCHED = Recipe(epochs=8, learning_rate=0.001, weight_decay=5e-4, optimiser="adam")
_SHORT = Recipe(epochs=4, learning_rate=0.002, weight_decay=1e-4, optimiser="adam")
_INTERVALS = Recipe(
    epochs=40,
    learning_rate=0.003,
    weight_decay=0.0,
    batch=128,
    optimiser="adam",
    defence=Certified(0.1, warm_up=0.4, clean=0.2, stretch=1.6, box=BOX),
)

PLANS: dict[str, Plan] = {
    "mnist-2x20": Plan(FullyConnected("mnist", 2, 20), replace(_SMALL, seed=2)),
    "mnist-3x20": Plan(FullyConnected("mnist", 3, 20), _SMALL),
    "mnist-3x256": Plan(FullyConnected("mnist", 3, 256), _SEARCHED),
    "mnist-5x256": Plan(FullyConnected("mnist", 5, 256), _SEARCHED),
    "mnist-7x256": Plan(FullyConnected("mnist", 7, 256), _SEARCHED),
    "mnist-2x1024": Plan(FullyConnected("mnist", 2, 1024), _LARGE),
    "mnist-3x1024": Plan(FullyConnected("mnist", 3, 1024), _LARGE, half=True),
    "mnist-4x1024": Plan(FullyConnected("mnist", 4, 1024), _LARGE),
    "cifar-5x2048": Plan(FullyConnected("cifar", 5, 2048), _CIFAR),
    "cifar-6x2048": Plan(FullyConnected("cifar", 6, 2048), _CIFAR),
    "cifar-7x1024": Plan(FullyConnected("cifar", 7, 1024), _CIFAR),
    "mnist-3x1024-distillation": Plan(FullyConnected("mnist", 3, 1024), _SOFT),
    "mnist-4x1024-distillation": Plan(FullyConnected("mnist", 4, 1024), _SOFT),
    "mnist-3x1024-adversarial": Plan(FullyConnected("mnist", 3, 1024), _ATTACKED),
    "mnist-4x1024-adversarial": Plan(FullyConnected("mnist", 4, 1024), _ATTACKED),
    "mnist-2x500-certified": Plan(FullyConnected("mnist", 2, 500), _CERTIFIED),
    "mnist-cnn": Plan(MNIST_CNN, _DIGITS, half=True),
    "mnist-3x256-sigmoid": Plan(FullyConnected("mnist", 3, 256, "sigmoid"), _SHORT),
    "mnist-cnn-gelu": Plan(MNIST_GELU, _SHORT),
    "mnist-vit": Plan(MNIST_VIT, replace(_SEARCHED, learning_rate=0.003)),
    "mnist-cnn-certified": Plan(MNIST_WIDE, _INTERVALS),
    "cifar-cnn": Plan(CIFAR_CNN, _COLOURS),
    "cifar-resnet": Plan(CIFAR_RESNET, _DIGITS),
}


def find_plan(name: str) -> Plan:
    if name not in PLANS:
        raise InputError(f"there is no plan for a network {name!r}; there are plans for {', '.join(PLANS)}")
    return PLANS[name]
