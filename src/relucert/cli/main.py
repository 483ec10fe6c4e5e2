"""The command `relucert`: registers the sub-commands, and turns errors into one line and exit code 2."""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import relucert
from relucert.cli import attack, certify, check, compare, estimate, exact, paper, report, supports, train, verify, zoo
from relucert.common.names import suggestion
from relucert.errors import ContradictionError, InputWarning, RelucertError, RemarkWarning

COMMANDS = (certify, verify, attack, exact, check, estimate, compare, paper, report, train, zoo, supports)
COLLECTED = 50_000  # new objects before garbage is looked for: imports make many, and nearly all of them stay
WRONG, BROKEN_PIPE, CONTRADICTION, INTERRUPTED = 2, 1, 3, 130  # exit codes

NEGATIVE = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?(/\d+)?$")
OUT_OF_MEMORY = "allocate memory"  # in the RuntimeError that PyTorch raises


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and takes every negative number, -1/2 and -1e-3 too, for a value."""

    def __init__(self, *positional: Any, **options: Any) -> None:
        super().__init__(*positional, **options)
        self._negative_number_matcher = NEGATIVE

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuses unknown options where they are a command's: it knows which one may have been meant."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = tuple(self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{suggestion(unknown[0], options)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG, _line(f"{message} (see {self.prog} --help)"))


def build_parser() -> Parser:
    parser = Parser(
        prog="relucert",
        description="How far can an input move before a neural network may change its mind? Proven answers.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"relucert {relucert.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        added = commands.add_parser(
            command.NAME, help=command.HELP, description=command.DESCRIPTION, allow_abbrev=False
        )
        command.add_arguments(added)
        added.set_defaults(run=command.run, command=command.NAME)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; the result is the exit code."""
    arguments = build_parser().parse_args(argv)
    arguments.process = argv is None  # whether the process is the command's own
    if arguments.process:
        gc.set_threshold(COLLECTED)
    try:
        with _printed_warnings():
            code: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("relucert: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output left: nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except ContradictionError as error:
        sys.stderr.write(f"relucert: CONTRADICTION, one of these answers is wrong: {error}. Please report it.\n")
        return CONTRADICTION
    except (RelucertError, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and OUT_OF_MEMORY not in str(error):
            raise  # a fault of ours, not of the user
        sys.stderr.write(_line(str(error) or "out of memory"))
        return WRONG
    return code


@contextmanager
def _printed_warnings() -> Iterator[None]:
    """Prints warnings as one line each, without the line of code that they come from, and the same line only once."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *location: object) -> None:
        line = _line(str(message), "warning" if issubclass(category, InputWarning) else "note")
        if line not in shown:
            shown.add(line)
            sys.stderr.write(line)

    with warnings.catch_warnings():
        for category in (InputWarning, RemarkWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _line(message: str, severity: str = "error") -> str:
    return f"relucert: {severity}: {' '.join(message.split())}\n"
