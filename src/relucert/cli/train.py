"""`relucert train`: trains a fully connected or convolutional network, defended or not, and stores it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from relucert.cli import options
from relucert.cli.training import build_network, training_options
from relucert.common.names import LOSS_BOUNDS, OPTIMISERS

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
    parser.add_argument("--half", action="store_true", help="round the weights to float16 and store them so")
    training_options(parser)
    how = parser.add_argument_group("how to train")
    how.add_argument("--grid", action="store_true", help="the paper's 5 x 5 learning rates and weight decays")
    how.add_argument("--epochs", type=options.count, default=20, metavar="N", help="default: 20")
    how.add_argument("--learning-rate", type=options.number, metavar="X", help="default: 0.05, adam 0.001")
    how.add_argument(
        "--optimiser", type=options.spelled(OPTIMISERS), choices=OPTIMISERS.choices, default="sgd", help="default: sgd"
    )
    how.add_argument("--weight-decay", type=options.number, metavar="X", help="default: 0.0001")
    how.add_argument("--batch", type=options.count, default=128, metavar="N", help="default: 128")
    how.add_argument("--seed", type=options.seed, default=0, metavar="N", help="default: 0")
    defence = parser.add_argument_group("defences")
    defence.add_argument("--defence", choices=DEFENCES, help="default: none")
    defence.add_argument("--temperature", type=options.number, metavar="T", help="of distillation (default: 100)")
    defence.add_argument(
        "--epsilon", type=options.rounded_up, metavar="E", help="radius (default: 0.3 adversarial, 0.1 certified)"
    )
    defence.add_argument("--steps", type=options.count, metavar="N", help="of each adversarial attack (default: 10)")
    defence.add_argument(
        "--bounds",
        type=options.spelled(LOSS_BOUNDS),
        choices=LOSS_BOUNDS.choices,
        help="of the certified loss (default: interval for p = inf)",
    )
    defence.add_argument(
        "--clean", type=options.number, metavar="W", help="of certified, the plain loss's final weight (default: 0.5)"
    )
    defence.add_argument(
        "--stretch", type=options.number, metavar="X", help="of certified, the trained radius / epsilon (default: 1)"
    )
    defence.add_argument("--norm", type=options.norm, metavar="P", help="of the certified radius (default: inf)")
    defence.add_argument("--warm-up", type=options.number, metavar="SHARE", help="until the full radius (default: 0.5)")


def run(arguments: argparse.Namespace) -> int:
    from relucert.inputs.recipes.architectures import parse_architecture
    from relucert.inputs.recipes.plans import Plan

    architecture = parse_architecture(arguments.architecture)
    name = "-".join(filter(None, [architecture.name, arguments.defence]))
    plan = Plan(architecture, _recipe(arguments), arguments.half)
    return build_network(name, plan, arguments, arguments.grid)


def _recipe(arguments: argparse.Namespace) -> Recipe:
    from relucert.errors import InputError
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
    from relucert.errors import InputError
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
