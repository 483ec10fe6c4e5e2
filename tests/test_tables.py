"""Wherever the names of a table are typed again (help, docstrings, documents), none of them is missing."""

from __future__ import annotations

import argparse
import re
import typing
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

import relucert
from relucert.answers.certificates import Rounding
from relucert.api.best import BEST
from relucert.api.bounds import FORMS
from relucert.attacks.methods import ATTACKS
from relucert.bounding.relaxers import RELAXERS
from relucert.cli import train
from relucert.cli.main import build_parser
from relucert.common import names
from relucert.data import NAMES, SPLITS
from relucert.experiments.comparison.methods import CONTENDERS
from relucert.experiments.paper.published import TABLE_METHODS
from relucert.inputs.loading import onnx_rules, torch_graph
from relucert.inputs.recipes.recipe import DEFENCES, LEARNING_RATES
from relucert.methods.table import METHODS
from relucert.network.batching import INTERVAL
from relucert.network.inference import INFERENCES
from relucert.query.shapes import LAYOUTS
from relucert.query.targets import TARGETS
from tests.method_tables import LIPSCHITZ, PROGRAMS, SHELLED

ROOT = Path(__file__).parent.parent
CERTIFYING = (*METHODS, BEST)
OTHERS = [name for name in CONTENDERS if name not in CERTIFYING]  # compared, and not by `certify`
HELP: list[tuple[str, str, Iterable[str]]] = [
    ("certify", "method", CERTIFYING),
    ("certify", "shells", SHELLED),
    ("certify", "time_limit", PROGRAMS),
    ("attack", "method", ATTACKS),
    ("compare", "methods", OTHERS),
    *((command, "target", TARGETS) for command in ("certify", "attack", "exact", "estimate", "compare")),
    *((command, "data", NAMES) for command in ("certify", "attack", "exact", "estimate", "compare")),
    ("paper", "table", TABLE_METHODS),
]
DOCSTRINGS: list[tuple[object, Iterable[str]]] = [
    (relucert.certify, CERTIFYING),
    (relucert.certify, TARGETS),
    (relucert.attack, ATTACKS),
    (relucert.lipschitz, LIPSCHITZ),
    (relucert.compare, OTHERS),
]
DOCUMENTS: list[tuple[str, Iterable[str]]] = [
    ("README.md", CERTIFYING),
    ("docs/index.md", CERTIFYING),
    ("docs/command-line.md", CERTIFYING),
    ("docs/command-line.md", TARGETS),
    ("docs/command-line.md", ATTACKS),
    ("docs/attacks.md", ATTACKS),
    ("docs/glossary.md", CERTIFYING),
    ("docs/glossary.md", ATTACKS),
]


def missing(names: Iterable[str], text: str) -> list[str]:
    """The names that do not stand in the text as words of their own: `lp-full` is no mention of `lp`."""
    return [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text, re.IGNORECASE)]


def command_actions(command: str) -> dict[str, argparse.Action]:
    """The options of a command, by their names."""
    (commands,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return {action.dest: action for action in commands.choices[command]._actions}


@pytest.mark.parametrize(("command", "option", "names"), HELP)
def test_help_names_all(command: str, option: str, names: Iterable[str]) -> None:
    assert missing(names, str(command_actions(command)[option].help)) == []


@pytest.mark.parametrize("command", ["certify", "attack"])
def test_help_is_what_the_command_shows(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")  # names with hyphens are not broken
    with pytest.raises(SystemExit):
        build_parser().parse_args([command, "--help"])
    names = [*TARGETS, *(CERTIFYING if command == "certify" else ATTACKS)]
    assert missing(names, capsys.readouterr().out) == []


def test_choices_are_those_of_the_tables() -> None:
    assert tuple(DEFENCES) == train.DEFENCES
    assert command_actions("train")["defence"].choices == train.DEFENCES
    for command in ("certify", "attack", "exact", "estimate", "compare"):
        assert command_actions(command)["layout"].choices == LAYOUTS
    assert command_actions("paper")["table"].choices == tuple(TABLE_METHODS)


@pytest.mark.parametrize(("function", "names"), DOCSTRINGS)
def test_docstrings_name_all(function: object, names: Iterable[str]) -> None:
    assert missing([f'"{name}"' for name in names], str(function.__doc__)) == []


@pytest.mark.parametrize(("document", "names"), DOCUMENTS)
def test_documents_name_all(document: str, names: Iterable[str]) -> None:
    assert missing(names, (ROOT / document).read_text()) == []


def _layers(column: int) -> str:
    """A column of the table of layers."""
    text = (ROOT / "docs/networks.md").read_text()
    (table,) = re.findall(r"^\| layers \|.*\n\|[-|]*\n((?:\|.*\n)+)", text, re.MULTILINE)
    return " ".join(row.split(" | ")[column] for row in table.splitlines())


def test_the_table_of_layers_has_the_operators_that_are_understood() -> None:
    assert set(re.findall(r"[A-Z]\w+", _layers(2))) == set(onnx_rules.RULES)


def test_the_document_lists_the_operators_that_are_understood() -> None:
    torch_line, onnx_line = re.findall(
        r"^(?:PyTorch, as|ONNX:) .*", (ROOT / "docs/networks.md").read_text(), re.MULTILINE
    )
    assert set(re.findall(r"`(\w+)`", torch_line)) == torch_graph.SUPPORTED
    assert set(re.findall(r"`(\w+)`", onnx_line)) == set(onnx_rules.RULES)


TRANSFORMER = (4, 2, 5, 0.1, "relu", 1e-5, True)  # with the batch first
CHANNELS, HALF = ("BatchNorm", "InstanceNorm", "Conv", "ConvTranspose"), ("AvgPool", "MaxPool")
SETTINGS: dict[str, tuple[object, ...]] = {
    "Linear": (4, 4), "Threshold": (0.0, 0.0), "Unflatten": (1, (2, 2)), "Softmax": (1,), "LogSoftmax": (1,),
    "LayerNorm": (4,), "RMSNorm": (4, 1e-3), "GroupNorm": (2, 4),
    "Upsample": (None, 2), "PixelShuffle": (2,), "PixelUnshuffle": (2,), "ChannelShuffle": (2,),
    **{f"{name}{axes}d": (4,) if "Norm" in name else (4, 4, 1) for name in CHANNELS for axes in (1, 2)},
    **{f"{prefix}{name}{axes}d": (2,) for prefix in ("", "Adaptive") for name in HALF for axes in (1, 2)},
    **dict.fromkeys(("ZeroPad2d", "ReflectionPad2d", "ReplicationPad2d", "CircularPad2d"), (1,)),
    "TransformerEncoderLayer": TRANSFORMER,
    "TransformerEncoder": (torch.nn.TransformerEncoderLayer(*TRANSFORMER), 1),
}  # fmt: skip
OF_IMAGES = ("2d", "Shuffle", "Unshuffle", "Upsample")


def test_the_table_of_layers_has_modules_that_load() -> None:
    last = ("Softmax", "LogSoftmax")
    names = sorted(
        set(re.findall(r"`nn\.(\w+)`", _layers(1))),
        key=lambda name: (name in last, name == "GLU", name == "Flatten", "Adaptive" in name, "Pool" in name, name),
    )
    assert len(names) > 30
    images = [name for name in names if name.endswith(OF_IMAGES)]
    lines = [name for name in names if name.endswith("1d")]
    tokens = [name for name in names if "Transformer" in name]
    several = ("Bilinear", "MultiheadAttention", "RNN", "GRU", "LSTM")  # values are taken or given
    inner = (*several, last[0])
    flat = [name for name in names if name not in (*images, *lines, *tokens, *inner)]
    for chosen, shape in ((flat, (4,)), (images, (4, 10, 10)), (lines, (4, 8)), (tokens, (3, 4))):
        ends = [] if chosen is flat else [torch.nn.Flatten(), torch.nn.LogSoftmax(1)]
        layers = [getattr(torch.nn, name)(*SETTINGS.get(name, ())) for name in chosen]
        with pytest.warns(relucert.RemarkWarning, match="softmax"):
            relucert.load(torch.nn.Sequential(*layers, *ends).eval(), input_shape=shape)


def test_what_is_missing_is_noticed() -> None:
    assert missing(["lp", "fast-lin", "all"], "help: lp-full, Fast-Lin, overall") == ["lp", "all"]


TYPES: list[tuple[object, Iterable[str]]] = [
    (names.MethodName, CERTIFYING),
    (names.ContenderName, CONTENDERS),
    (names.RelaxerName, [*RELAXERS, INTERVAL]),
    (names.LipschitzName, LIPSCHITZ),
    (names.LossBounds, names.LOSS_BOUNDS.choices),
    (names.AttackName, ATTACKS),
    (names.TargetName, TARGETS),
    (names.ArithmeticName, [rounding.value for rounding in Rounding]),
    (names.InferenceName, INFERENCES),
    (names.FormName, FORMS),
    (names.OptimiserName, LEARNING_RATES),
    (names.SplitName, SPLITS),
]


@pytest.mark.parametrize(("literal", "table"), TYPES)
def test_types_have_the_names_of_the_tables(literal: object, table: Iterable[str]) -> None:
    assert set(typing.get_args(literal)) == set(table)


def test_every_table_of_names_is_a_type() -> None:
    literals = {frozenset(typing.get_args(literal)) for literal, _ in TYPES}
    tables = {frozenset(table.choices) for table in vars(names).values() if isinstance(table, names.Names)}
    assert tables - literals == {frozenset(NAMES)}  # the collections of images have more spellings than a type should
