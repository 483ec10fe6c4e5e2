"""`relucert zoo`: lists the networks known by name; `relucert zoo train NAME` builds one by its plan."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from relucert.cli.table import TRAINING, add_options
from relucert.errors import InputError, RelucertError
from relucert.report.runfile import check_list, write_json

NAME = "zoo"
HELP = "networks by name: list them, or build one by its plan"
TITLES = ("name", "state", "layers", "parameters", "defence", "test accuracy", "file's SHA-256")
DESCRIPTION = "Lists the networks known by name. With `train NAME`, builds one by its plan in the cache."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", dest="list", type=Path, metavar="FILE", help="the list, for programs")
    parser.add_argument(
        "--overwrite", dest="overwrite_list", action="store_true", help="also replace a file that holds something else"
    )
    parser.set_defaults(action=_list)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    train = actions.add_parser("train", help="build a network by its plan", allow_abbrev=False)
    train.add_argument("name", metavar="NAME", help="as listed by relucert zoo")
    add_options(train, **TRAINING)
    train.set_defaults(action=_train)


def run(arguments: argparse.Namespace) -> int:
    code: int = arguments.action(arguments)
    return code


def _train(arguments: argparse.Namespace) -> int:
    from relucert.cli.training import build_network
    from relucert.inputs.recipes.plans import find_plan

    if arguments.list is not None:
        raise InputError("--json before train is about the list; name it after train NAME")
    return build_network(arguments.name, find_plan(arguments.name), arguments)


def _list(arguments: argparse.Namespace) -> int:
    check_list(arguments.list, _is_list, arguments.overwrite_list)
    rows = _rows()
    if arguments.list is not None:
        write_json(arguments.list, rows)
    _show(rows)
    return 0


def _is_list(rows: Any) -> bool:
    """Whether the content of a file is a list of networks, as this command writes it."""
    return isinstance(rows, list) and all(isinstance(row, dict) and {"name", "state"} <= set(row) for row in rows)


def _rows() -> list[dict[str, Any]]:
    """Every network that is there, then those that could be built."""
    from relucert.inputs.loading import zoo
    from relucert.inputs.recipes.plans import PLANS

    rows = []
    for name in (names := zoo.names()):
        try:
            rows.append(_stored(name))
        except RelucertError:  # one damaged file can't hide the others
            rows.append(_row(name, "damaged"))
    for name, plan in PLANS.items():
        if name not in names:
            rows.append(_row(name, "to be built", defence=plan.recipe.defence_name))
    return rows


def _stored(name: str) -> dict[str, Any]:
    from relucert.inputs.loading import zoo
    from relucert.training.build import noted

    about, network = zoo.about(name), zoo.load(name)
    recipe, accuracy = noted(about, "recipe"), noted(about, "test_accuracy")
    defence = recipe.get("defence") if isinstance(recipe, dict) else None
    called = defence.get("name") if isinstance(defence, dict) else None
    return _row(
        name,
        "bundled" if name in zoo.bundled() else "built",
        layers=network.describe(),
        parameters=network.parameters,
        defence=called if isinstance(called, str) else None,
        test_accuracy=accuracy if isinstance(accuracy, float) and 0 <= accuracy <= 1 else None,
        sha256=zoo.digest(name),
    )


def _row(name: str, state: str, **told: Any) -> dict[str, Any]:
    """The row of a network in the table; None where it is unknown."""
    unknown = dict.fromkeys(("layers", "parameters", "defence", "test_accuracy", "sha256"))
    return {"name": name, "state": state, **unknown, **told}


def _show(rows: list[dict[str, Any]]) -> None:
    from relucert.cli.show import Screen

    cells = []
    for row in rows:
        parameters, accuracy = row["parameters"], row["test_accuracy"]
        facts = (
            row["layers"],
            None if parameters is None else f"{parameters:,}",
            row["defence"],
            None if accuracy is None else f"{100 * accuracy:.2f} %",
            row["sha256"] and row["sha256"][:12],
        )
        cells.append((row["name"], row["state"], *(cell or "" for cell in facts)))
    Screen(quiet=False).columns(TITLES, cells)
