"""`relucert train`: trains one of the paper's architectures, defended or not, and stores it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relucert.cli import options
from relucert.cli.training import Board, data_options, load_task, show_result

if TYPE_CHECKING:
    from relucert.training.recipe import Recipe

NAME = "train"
HELP = "train a network, defended or not"
DESCRIPTION = """Trains a fully connected network on MNIST or CIFAR-10 and stores it in the cache under its name,
or in a file. An interrupted training goes on where it was, to the same weights."""
DEFENCES = ("distillation", "adversarial", "certified")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("architecture", metavar="ARCH", help="mnist-MxN or cifar-MxN: M layers, N neurons a hidden one")
    parser.add_argument("--output", type=Path, metavar="FILE", help=".safetensors file (default: the cache)")
    parser.add_argument("--half", action="store_true", help="round the weights to float16 and store them so")
    data_options(parser)
    how = parser.add_argument_group("how to train")
    how.add_argument("--grid", action="store_true", help="the paper's 5 x 5 learning rates and weight decays")
    how.add_argument("--epochs", type=options.count, default=20, metavar="N", help="default: 20")
    how.add_argument("--learning-rate", type=options.number, default=0.05, metavar="X", help="default: 0.05")
    how.add_argument("--weight-decay", type=options.number, default=1e-4, metavar="X", help="default: 0.0001")
    how.add_argument("--batch", type=options.count, default=128, metavar="N", help="default: 128")
    how.add_argument("--seed", type=options.seed, default=0, metavar="N", help="default: 0")
    defence = parser.add_argument_group("defences")
    defence.add_argument("--defence", choices=DEFENCES, help="default: none")
    defence.add_argument("--temperature", type=options.number, metavar="T", help="of distillation (default: 100)")
    defence.add_argument(
        "--epsilon", type=options.number, metavar="E", help="radius (default: 0.3 adversarial, 0.1 certified)"
    )
    defence.add_argument("--steps", type=options.count, metavar="N", help="of each adversarial attack (default: 10)")
    defence.add_argument("--norm", metavar="P", help="of the certified radius (default: inf)")
    defence.add_argument("--warm-up", type=options.number, metavar="SHARE", help="until the full radius (default: 0.5)")


def run(arguments: argparse.Namespace) -> int:
    from relucert.loading import zoo
    from relucert.training import build
    from relucert.training.architectures import parse_architecture

    architecture = parse_architecture(arguments.architecture)
    recipe = _recipe(arguments)
    name = "-".join(filter(None, [architecture.name, arguments.defence]))
    output = arguments.output or zoo.cache_path(name)
    board = Board(arguments, output)
    task = load_task(architecture, arguments)
    with board.running(recipe.epochs):
        if arguments.grid:
            found = build.train_grid(task, recipe, board.grid_folder, board.epoch)
            board.show_grid(found)
            trained = found[0]
        else:
            trained = build.train_one(task, recipe, board.checkpoint, board.epoch)
    if arguments.half:
        trained = build.rounded(trained, task)
    about = build.store(trained, name, output, arguments.half)
    board.finish()
    return show_result(name, output, about, arguments)


def _recipe(arguments: argparse.Namespace) -> Recipe:
    from relucert.ball import Norm
    from relucert.errors import InputError
    from relucert.training.recipe import DEFENCES, Recipe

    given: dict[str, Any] = {
        key: getattr(arguments, key)
        for key in ("temperature", "epsilon", "steps", "warm_up")
        if getattr(arguments, key)
    }
    if arguments.norm is not None:
        given["norm"] = Norm.parse(arguments.norm).p
    defence = None
    if arguments.defence is not None:
        kind = DEFENCES[arguments.defence]
        strangers = sorted(set(given) - set(kind.__dataclass_fields__))
        if strangers:
            raise InputError(f"--{strangers[0].replace('_', '-')} does not go with --defence {arguments.defence}")
        defence = kind(**given)
    elif given:
        raise InputError(f"--{next(iter(given)).replace('_', '-')} needs --defence")
    return Recipe(
        epochs=arguments.epochs,
        learning_rate=arguments.learning_rate,
        weight_decay=arguments.weight_decay,
        batch=arguments.batch,
        seed=arguments.seed,
        defence=defence,
    )
