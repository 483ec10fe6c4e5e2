"""`relucert zoo`: lists the networks known by name; `relucert zoo train NAME` builds one of the paper's."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from relucert.cli.training import Board, data_options, load_task, show_result

NAME = "zoo"
HELP = "networks by name: list them, or build one of the paper's"
DESCRIPTION = "Lists the networks known by name. With `train NAME`, builds one of the paper's in the cache."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="the list, for programs")
    parser.set_defaults(action=_list)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    train = actions.add_parser("train", help="build a network by its plan", allow_abbrev=False)
    train.add_argument("name", metavar="NAME", help="as listed by relucert zoo")
    train.add_argument("--output", type=Path, metavar="FILE", help=".safetensors file (default: the cache)")
    data_options(train)
    train.set_defaults(action=_train)


def run(arguments: argparse.Namespace) -> int:
    code: int = arguments.action(arguments)
    return code


def _train(arguments: argparse.Namespace) -> int:
    from relucert.errors import InputError
    from relucert.loading import zoo
    from relucert.training import build
    from relucert.training.zoo import find_plan

    plan = find_plan(arguments.name)
    if arguments.output is None and arguments.name in zoo.bundled():
        raise InputError(f"{arguments.name} comes with the package; to build it anew, name a file with --output")
    output = arguments.output or zoo.cache_path(arguments.name)
    board = Board(arguments, output)
    task = load_task(plan.architecture, arguments)
    with board.running(plan.recipe.epochs):
        trained = build.train_one(task, plan.recipe, board.checkpoint, board.epoch)
    if plan.half:
        trained = build.rounded(trained, task)
    about = build.store(trained, arguments.name, output, plan.half)
    board.finish()
    return show_result(arguments.name, output, about, arguments)


def _list(arguments: argparse.Namespace) -> int:
    import json

    from relucert.report import files

    rows = _rows()
    if arguments.json is not None:
        files.write(arguments.json, (json.dumps(rows, indent=2) + "\n").encode())
    _show(rows)
    return 0


def _rows() -> list[dict[str, Any]]:
    """Every network that is there, then those that could be built."""
    from relucert.loading import zoo
    from relucert.training.build import about_recipe
    from relucert.training.zoo import PLANS

    rows: list[dict[str, Any]] = []
    for name in zoo.names():
        about, network = zoo.about(name), zoo.load(name)
        defence = about_recipe(about).get("defence")
        rows.append(
            {
                "name": name,
                "state": "bundled" if name in zoo.bundled() else "built",
                "layers": network.describe(),
                "parameters": network.parameters,
                "defence": defence["name"] if isinstance(defence, dict) else None,
                "test_accuracy": about.get("test_accuracy"),
                "sha256": zoo.digest(name),
            }
        )
    for name, plan in PLANS.items():
        if name not in zoo.names():
            rows.append({"name": name, "state": "to be built", "defence": plan.recipe.defence_name})
    return rows


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "state", "layers", "parameters", "defence", "test accuracy", "file's SHA-256", box=None)
    for row in rows:
        accuracy = row.get("test_accuracy")
        table.add_row(
            row["name"],
            row["state"],
            row.get("layers", ""),
            f"{row['parameters']:,}" if "parameters" in row else "",
            row["defence"] or "",
            f"{100 * float(accuracy):.2f} %" if accuracy else "",
            row.get("sha256", "")[:12],
        )
    console = Console()
    console.width = max(console.width, 120)
    console.print(table)
