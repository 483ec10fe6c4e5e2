"""Adversarial examples that commands save as arrays."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relucert.cli import record
from relucert.common.words import counted

if TYPE_CHECKING:
    from relucert import Exact, UpperBound
    from relucert.cli import runs
    from relucert.report.arrays import ExampleFile


def example_file(arguments: argparse.Namespace, setup: runs.Setup) -> ExampleFile | None:
    """The file to save adversarial examples to as arrays, checked; None unless that was asked for."""
    if arguments.save_arrays is None:
        return None
    from relucert.report.arrays import ExampleFile

    head = record.head(arguments, setup.network, setup.images, setup.options)
    return ExampleFile(arguments.save_arrays, head["question"], arguments.overwrite)


def save(examples: ExampleFile | None, setup: runs.Setup, answers: Sequence[UpperBound | Exact]) -> None:
    """Saves the adversarial examples among the answers, and says where."""
    if examples is not None:
        complete = len({answer.image for answer in answers}) == len(setup.images)
        path, count = examples.write(setup.network, setup.images.images, answers, complete)
        setup.screen.line("arrays", f"{counted(count, 'adversarial example')} in {path}")
