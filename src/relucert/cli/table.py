"""The options of the commands in one table; a command names those it has, and says where one means something else."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any

from relucert.cli import options
from relucert.common import names
from relucert.common.checks import parse_memory
from relucert.errors import InputError

NETWORK = "mnist-2x20"


@dataclass(frozen=True)
class Option:
    """How argparse takes an option. A default that is a number or a name is added to its help.

    Attributes:
        type: What makes a value of the text; raises InputError.
        further: Other settings of `add_argument`.
    """

    help: str
    type: Callable[[str], Any] | None = None
    default: Any = None
    metavar: str | tuple[str, ...] | None = None
    further: Mapping[str, Any] = field(default_factory=dict)

    def add(self, group: argparse._ActionsContainer, name: str) -> None:
        words = self.help
        if isinstance(self.default, (str, int, float)) and "default: " not in words:
            words += " (default: %(default)s)"
        settings = {"type": self.type and _told(self.type), "default": self.default, "metavar": self.metavar}
        arguments = {key: value for key, value in settings.items() if value is not None}
        group.add_argument(name, help=words, **arguments, **self.further)


def _told(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """The parser, with argparse's error in the place of an InputError."""

    @wraps(parse)
    def told(text: str) -> Any:
        try:
            return parse(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return told


def flag(words: str, **further: Any) -> Option:
    """An option without a value: by default one that is True where it is given."""
    return Option(words, further=further or {"action": "store_true"})


def add_options(group: argparse._ActionsContainer, *rows: str | tuple[str, ...], **specific: Option | str) -> None:
    """Adds options to a command, or to a group of its options.

    Args:
        rows: Names of the table; of several in one tuple only one may be given.
        specific: Options of this command alone, or another help text for one of the table's, by their names in Python.
    """
    for row in rows:
        if isinstance(row, tuple):
            add_options(group.add_mutually_exclusive_group(), *row)
        else:
            OPTIONS[row].add(group, row)
    for name, option in specific.items():
        text = f"--{name.replace('_', '-')}"
        (replace(OPTIONS[text], help=option) if isinstance(option, str) else option).add(group, text)


OPTIONS = {
    "network": Option(
        "a network's name (see relucert zoo), an .onnx or a .safetensors file",
        default=NETWORK, metavar="NETWORK", further={"nargs": "?"},
    ),
    "--data": Option(
        "your images, a .npz or .npy file, or the test images of mnist or cifar10 (default: the bundled)",
        metavar="DATA",
    ),
    "--data-dir": Option(
        "the folder that has mnist or cifar10 (default: RELUCERT_DATA, else a cache that is filled by download)",
        Path, metavar="DIR",
    ),
    "--layout": Option(
        "how the pictures of your file lie: colours first (nchw) or last (nhwc) (default: as the network's input)",
        further={"choices": ("nchw", "nhwc")},
    ),
    "--pixels": Option(
        "what black and white become, of mnist, cifar10 and the bundled images "
        "(default: the network's range where it is known, else -0.5 0.5)",
        options.number, metavar=("LOW", "HIGH"), further={"nargs": 2},
    ),
    "--images": Option("only the first N images", options.count, metavar="N"),
    "--box": Option(
        "the lowest and the highest valid value of an input (default: every input is valid)",
        metavar=("LOW", "HIGH"), further={"action": options.TwoEnds, "const": options.box, "nargs": 2},
    ),
    "--no-box": flag("every input is valid", dest="box", action="store_const", const=None),
    "--scale": Option(
        "a .npy array of the input's shape: how far each coordinate may move per unit of radius (default: 1)",
        Path, metavar="FILE",
    ),
    "--norm": Option("inf, 2, 1 or any number >= 1", options.norm, "inf", "P"),
    "--target": Option(
        "the rival class: runner-up, least-likely, random, all, untargeted or a class index",
        options.target, "untargeted",
    ),
    "--target-file": Option(
        "the rival class of every image: a .npy array, or a text with one class per line", Path, metavar="FILE"
    ),
    "--outputs-within": Option(
        "in place of classes: that every output stays above LOW and below HIGH; none: no such end",
        metavar=("LOW", "HIGH"), further={"action": options.TwoEnds, "const": options.outputs_within, "nargs": 2},
    ),
    "--inference": Option(
        "what the network is evaluated in: real, or float32, float16 or bfloat16, which round every operation; "
        "what is proven then holds for every such evaluation",
        names.INFERENCES.find, "real", "PRECISION",
    ),
    "--seed": Option("for random targets", options.seed, 0, "N"),
    "--memory": Option("what the work may take, of all workers together, as in 512M", parse_memory, "1G", "SIZE"),
    "--threads": Option("how many threads to compute with", options.threads, metavar="N"),
    "--workers": Option(
        "how many processes of one thread each (default: one, and one per core for what would take long)",
        options.count, metavar="N",
    ),
    "--ray": Option("work on a Ray cluster: its address, or auto; needs relucert[ray]", metavar="ADDRESS"),
    "--json": Option("record the run; the same command goes on with it", Path, metavar="FILE"),
    "--csv": Option("the same answers as a table", Path, metavar="FILE"),
    "--proof": Option("write a proof of one verdict, for `relucert check`", Path, metavar="FILE"),
    "--save-arrays": Option(
        "the adversarial examples as arrays, with their originals, labels and distances, in a .npz file",
        Path, metavar="FILE",
    ),
    "--overwrite": flag("start anew, also where files hold something else"),
    "--all": flag("show every answer on the terminal, however many there are"),
    "--quiet": flag("no progress bar and no table, only the summary"),
}  # fmt: skip

IMAGES = ("--data", "--data-dir", "--layout", "--pixels", "--images")
REGION = (*IMAGES, ("--box", "--no-box"), "--scale", "--norm")
STATED = (*REGION, ("--target", "--target-file", "--outputs-within"))
TRAINING: dict[str, Option | str] = {
    "output": Option(".safetensors file (default: the cache)", Path, metavar="FILE"),
    "data_dir": "where the data is (default: RELUCERT_DATA, cache)",
    "threads": "default: PyTorch's choice",
    "json": "what came out, with the recipe",
    "overwrite": "also replace files that hold something else",
    "quiet": "no line for every epoch",
}
PARALLELISM = ("--threads", ("--workers", "--ray"))


def effort(steps: int, batches: int, samples: int, budget: float) -> dict[str, Option]:
    """The options that limit the effort of methods without an end of their own, with these defaults."""
    slow = "seconds a method may take per image; one too slow is left out, and said to be"
    return {
        "steps": Option("of each attack", options.count, steps, "N"),
        "batches": Option("of CLEVER's samples", options.count, batches, "N"),
        "samples": Option("of a batch of CLEVER's", options.count, samples, "N"),
        "budget": Option(slow, options.seconds, budget, "S"),
    }
