"""What `relucert train` and `relucert zoo train` share: options, the display of a training, its files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from relucert.cli import options

if TYPE_CHECKING:
    from rich.progress import Progress

    from relucert.training.architectures import Architecture
    from relucert.training.build import Task, Trained
    from relucert.training.loop import EpochReport
    from relucert.training.recipe import Recipe


def data_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where the data is (default: RELUCERT_DATA, cache)"
    )
    parser.add_argument("--threads", type=options.threads, metavar="N", help="default: PyTorch's choice")
    parser.add_argument("--json", type=Path, metavar="FILE", help="what came out, with the recipe")
    parser.add_argument("--quiet", action="store_true", help="no line for every epoch")


def load_task(architecture: Architecture, arguments: argparse.Namespace) -> Task:
    """The images to train, choose and test with; a download shows a bar."""
    from relucert import data
    from relucert.cli.show import Screen
    from relucert.training.build import Task

    with Screen(arguments.quiet).downloads() as progress:
        splits = [
            data.load(architecture.data_set, split, arguments.data_dir, progress=progress)
            for split in ("train", "test")
        ]
    return Task.of(architecture, *splits)


class Board:
    """Shows a training as it goes, and knows where its unfinished work is kept."""

    def __init__(self, arguments: argparse.Namespace, output: Path) -> None:
        from rich.console import Console

        from relucert.report.files import check_writable

        self._quiet = arguments.quiet
        self._console = Console(stderr=True)
        self._progress: Progress | None = None
        output.parent.mkdir(parents=True, exist_ok=True)
        for path in filter(None, (output, arguments.json)):
            check_writable(path)
        self.checkpoint = output.with_suffix(".checkpoint")
        self.grid_folder = output.with_suffix(".grid")
        if getattr(arguments, "grid", False):
            self.grid_folder.mkdir(exist_ok=True)
        if arguments.threads is not None:
            import torch

            torch.set_num_threads(arguments.threads)

    @contextmanager
    def running(self, epochs: int) -> Iterator[None]:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console, transient=True) as self._progress:
            self._task = self._progress.add_task("training", total=epochs)
            yield

    def epoch(self, recipe: Recipe, report: EpochReport) -> None:
        assert self._progress is not None
        self._progress.update(self._task, completed=report.epoch, description=f"training the {report.stage}")
        if not self._quiet:
            checked = "" if report.validation is None else f", validation {100 * report.validation:.2f} %"
            self._progress.console.print(
                f"{report.stage}, rate {recipe.learning_rate:g}, decay {recipe.weight_decay:g}, epoch {report.epoch}: "
                f"loss {report.loss:.4f}, accuracy {100 * report.accuracy:.2f} %{checked} ({report.seconds:.1f} s)",
                highlight=False,
                soft_wrap=True,
            )

    def show_grid(self, found: list[Trained]) -> None:
        from rich.table import Table

        table = Table("learning rate", "weight decay", "validation", "test", title="best validation accuracy first")
        for trained in found:
            recipe = trained.recipe
            table.add_row(
                f"{recipe.learning_rate:g}",
                f"{recipe.weight_decay:g}",
                f"{100 * trained.validation:.2f} %",
                f"{100 * trained.test:.2f} %",
            )
        self._console.print(table)

    def finish(self) -> None:
        """Removes the unfinished work, now that it is finished."""
        self.checkpoint.unlink(missing_ok=True)
        if self.grid_folder.is_dir():
            for path in self.grid_folder.glob("*.checkpoint"):
                path.unlink()
            self.grid_folder.rmdir()


def show_result(name: str, output: Path, about: dict[str, str], arguments: argparse.Namespace) -> int:
    from relucert.report import files

    if arguments.json is not None:
        row = {"name": name, "file": str(output), **about, "recipe": json.loads(about["recipe"])}
        files.write(arguments.json, (json.dumps(row, indent=2, allow_nan=False) + "\n").encode())
    test, validation = (100 * float(about[key]) for key in ("test_accuracy", "validation_accuracy"))
    print(f"{name}: test accuracy {test:.2f} %, validation {validation:.2f} %, {about['seconds']} s")
    print(f"stored in {output}")
    return 0
