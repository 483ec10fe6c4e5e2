"""`relucert supports`: what properties and networks may contain, as a table or for programs."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import Any

from relucert.cli.table import add_options
from relucert.common.names import INFERENCES
from relucert.report.runfile import check_list, write_json

NAME = "supports"
HELP = "what is understood: versions of VNN-LIB, ONNX operators, element types"
DESCRIPTION = "Lists which versions of VNN-LIB, formulas, ONNX operators and element types are understood."
KEYS = ("vnnlib_versions", "formulas", "networks", "element_types", "inference", "onnx_operators")
MISSING = "2.0 (needs the package vnnlib, which is not installed)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, json="the lists, for programs", overwrite="also replace a file that holds something else")


def run(arguments: argparse.Namespace) -> int:
    from relucert.cli.show import Screen

    check_list(arguments.json, _is_list, arguments.overwrite)
    supported = _supported()
    if arguments.json is not None:
        write_json(arguments.json, supported)
    screen = Screen(quiet=False)
    for name, entries in supported.items():
        screen.line(name.replace("_", " "), ", ".join(entries))
    return 0


def _is_list(lists: Any) -> bool:
    """Whether the content of a file is what this command writes."""
    return isinstance(lists, dict) and set(lists) == set(KEYS)


def _supported() -> dict[str, Any]:
    """The lists by name, from the tables of the readers themselves."""
    from relucert.inputs.loading.onnx_rules import PRECISIONS, RULES
    from relucert.verification.specification.version_one import CONNECTIVES, OPERATORS, RELATIONS
    from relucert.verification.specification.version_two import TYPES

    stored = {str(dtype).removeprefix("torch.") for dtype in PRECISIONS.values()}
    assert stored <= set(TYPES.values())
    lists = (
        ["1.0", "2.0" if find_spec("vnnlib") is not None else MISSING],
        [*CONNECTIVES, *RELATIONS, *OPERATORS],
        ["one", "several (VNN-LIB 2.0, ONNX files)"],
        list(TYPES.values()),
        list(INFERENCES.choices),
        sorted(RULES),
    )
    return dict(zip(KEYS, lists, strict=True))
