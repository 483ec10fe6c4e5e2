"""`relucert train`: trains a fully connected or convolutional network, defended or not, and stores it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from relucert.cli import options
from relucert.cli.table import TRAINING, Option, add_options, flag
from relucert.common.names import LOSS_BOUNDS, OPTIMISERS
from relucert.errors import InputError

if TYPE_CHECKING:
    from relucert.inputs.recipes.recipe import Defence, Recipe

NAME = "train"
HELP = "train a network, defended or not"
DESCRIPTION = """Trains a fully connected or convolutional network on MNIST or CIFAR-10 and stores it in the cache
under its name, or in a file. An interrupted training goes on where it was, to the same weights."""
DEFENCES = ("distillation", "adversarial", "certified")
NAMED = ("mnist-cnn", "mnist-cnn-wide", "cifar-cnn", "cifar-resnet", "mnist-cnn-gelu", "mnist-vit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "architecture",
        metavar="ARCH",
        help="mnist-MxN or cifar-MxN (M layers, N neurons per hidden layer), of ReLUs or with -sigmoid, -tanh or -gelu"
        f", or {', '.join(NAMED)}",
    )
    add_options(parser, half=flag("round the weights to float16 and store them so"))
    add_options(parser, **TRAINING)
    add_options(
        parser.add_argument_group("how to train"),
        grid=flag("the paper's 5 x 5 learning rates and weight decays"),
        epochs=Option("default: 20", options.count, 20, "N"),
        learning_rate=Option("default: 0.05, adam 0.001", options.number, metavar="X"),
        optimiser=Option("default: sgd", OPTIMISERS.find, "sgd", further={"choices": OPTIMISERS.choices}),
        weight_decay=Option("default: 0.0001", options.number, metavar="X"),
        batch=Option("default: 128", options.count, 128, "N"),
        seed=Option("default: 0", options.seed, 0, "N"),
    )
    bounds = "of the certified loss (default: interval for p = inf)"
    add_options(
        parser.add_argument_group("defences"),
        defence=Option("default: none", further={"choices": DEFENCES}),
        temperature=Option("of distillation (default: 100)", options.number, metavar="T"),
        epsilon=Option("radius (default: 0.3 adversarial, 0.1 certified)", options.rounded_up, metavar="E"),
        steps=Option("of each adversarial attack (default: 10)", options.count, metavar="N"),
        bounds=Option(bounds, LOSS_BOUNDS.find, further={"choices": LOSS_BOUNDS.choices}),
        clean=Option("of certified, the plain loss's final weight (default: 0.5)", options.number, metavar="W"),
        stretch=Option("of certified, the trained radius / epsilon (default: 1)", options.number, metavar="X"),
        norm=Option("of the certified radius (default: inf)", options.norm, metavar="P"),
        warm_up=Option("until the full radius (default: 0.5)", options.number, metavar="SHARE"),
    )


def run(arguments: argparse.Namespace) -> int:
    from relucert.cli.training import build_network
    from relucert.inputs.recipes.architectures import parse_architecture
    from relucert.inputs.recipes.plans import Plan

    architecture = parse_architecture(arguments.architecture)
    name = "-".join(filter(None, [architecture.name, arguments.defence]))
    plan = Plan(architecture, _recipe(arguments), arguments.half)
    return build_network(name, plan, arguments, arguments.grid)


def _recipe(arguments: argparse.Namespace) -> Recipe:
    from relucert.inputs.recipes.recipe import Recipe, usual_rate

    searched = _set_options(arguments, "learning_rate", "weight_decay")
    if arguments.grid and searched:
        raise InputError(f"{_option(next(iter(searched)))} does not go with --grid, which tries several")
    return Recipe(
        epochs=arguments.epochs,
        batch=arguments.batch,
        seed=arguments.seed,
        defence=_defence(arguments),
        optimiser=arguments.optimiser,
        **{"learning_rate": usual_rate(arguments.optimiser), **searched},
    )


def _defence(arguments: argparse.Namespace) -> Defence | None:
    from relucert.inputs.recipes.architectures import BOX
    from relucert.inputs.recipes.recipe import DEFENCES

    names = ("temperature", "epsilon", "steps", "norm", "warm_up", "bounds", "clean", "stretch")
    set_options = _set_options(arguments, *names)
    if arguments.defence is None:
        if set_options:
            raise InputError(f"{_option(next(iter(set_options)))} needs --defence")
        return None
    defence = DEFENCES[arguments.defence]
    fields = set(defence.__dataclass_fields__)
    if strangers := sorted(set(set_options) - fields):
        raise InputError(f"{_option(strangers[0])} does not go with --defence {arguments.defence}")
    if "box" in fields:
        set_options["box"] = BOX
    return defence(**set_options)


def _set_options(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options among these that the user gave."""
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
