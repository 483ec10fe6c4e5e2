"""What `relucert train` and `relucert zoo train` share: the display of a training, its files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from relucert import data
from relucert.cli.show import Screen
from relucert.common.valid import valid_inputs
from relucert.common.words import counted
from relucert.errors import InputError, LoadError
from relucert.inputs.loading import safetensors_file, zoo
from relucert.inputs.recipes.architectures import Architecture
from relucert.inputs.recipes.plans import Plan
from relucert.inputs.recipes.recipe import Recipe
from relucert.inputs.storage import files
from relucert.report.runfile import read_json, write_json
from relucert.training import build
from relucert.training.build import Trained, TrainingTask, noted
from relucert.training.checkpoint import EpochReport


def build_network(name: str, plan: Plan, arguments: argparse.Namespace, grid: bool = False) -> int:
    """Trains by the plan, or by its recipe with every setting of the grid, and stores the best."""
    output = _output(name, arguments)
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    screen = Screen(arguments.quiet)
    task = _task(plan.architecture, arguments.data_dir, screen)
    recipes = build.grid(plan.recipe) if grid else [plan.recipe]
    _check_replaceable(output, arguments, [build.recipe_note(task, recipe, plan.half) for recipe in recipes])
    board = Board(screen, output, recipes)
    with board.running():
        trained, diverged = build.train_best(task, recipes, board.keep, board)
    if grid:
        screen.grid([*map(_row, trained), *((*_setting(recipe), "diverged", "") for recipe in diverged)])
    replaced = output.exists()
    about = build.store(task, trained[0], name, output, plan.half, board)
    board.finish()
    if arguments.json is not None:
        write_json(arguments.json, {"name": name, "file": str(output), **about})
    test, validation = (100 * about[key] for key in ("test_accuracy", "validation_accuracy"))
    print(f"{name}: test accuracy {test:.2f} %, validation {validation:.2f} %, {about['seconds']} s")
    if "test_certified" in about:
        print(_proven(about))
    print(f"stored in {output}" + (", in the place of what was there" if replaced else ""))
    return 0


def _proven(about: dict[str, Any]) -> str:
    """The result of certified training, in words: the shares of images that are proven, rounding included."""
    test, validation = (100 * about[key] for key in ("test_certified", "validation_certified"))
    defence = about["recipe"]["defence"]
    question = f"radius {defence['epsilon']:g} (p = {defence['norm']}, {valid_inputs(defence['box'])})"
    return f"certified at {question}: test {test:.2f} %, validation {validation:.2f} %"


class Board:
    """Shows a training as it goes, and knows where its unfinished work is kept: that of a search in a folder."""

    def __init__(self, screen: Screen, output: Path, recipes: list[Recipe]) -> None:
        self._screen, self._recipes = screen, recipes
        self._single = output.with_suffix(".checkpoint")
        self._folder = output.with_suffix(".grid")

    def keep(self, recipe: Recipe) -> Path:
        """The path of a recipe's checkpoint."""
        if len(self._recipes) == 1:
            return self._single
        return self._folder / f"{'-'.join(_setting(recipe))}.checkpoint"

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._screen.training(self._recipes[0].epochs) as self._advance:
            yield

    def epoch(self, recipe: Recipe, report: EpochReport) -> None:
        self._advance(f"{self._which(recipe)}training the {report.stage}", report.epoch)
        checked = "" if report.validation is None else f", validation {100 * report.validation:.2f} %"
        self._screen.remark(
            f"{self._title(recipe, report)}, epoch {report.epoch}: loss {report.loss:.4f}, "
            f"accuracy {100 * report.accuracy:.2f} %{checked} ({report.seconds:.1f} s)"
        )

    def resumed(self, recipe: Recipe, last: EpochReport) -> None:
        state = "already trained" if last.epoch == recipe.epochs else f"resuming from epoch {last.epoch + 1}"
        self._screen.remark(f"{self._title(recipe, last)}: {state}")

    def proving(self, images: int, radius: float) -> None:
        self._screen.remark(f"proving {counted(images, 'image')} at radius {radius:g}")

    def finish(self) -> None:
        """Removes the unfinished work, now that it is finished, and nothing else."""
        for path in map(self.keep, self._recipes):
            files.sweep(path)
            path.unlink(missing_ok=True)
        if len(self._recipes) > 1:
            with suppress(OSError):  # whatever else is in there stays
                self._folder.rmdir()

    def _title(self, recipe: Recipe, report: EpochReport) -> str:
        rate, decay = _setting(recipe)
        return f"{self._which(recipe)}{report.stage}, rate {rate}, decay {decay}"

    def _which(self, recipe: Recipe) -> str:
        count = len(self._recipes)
        return f"{self._recipes.index(recipe) + 1} of {count}: " if count > 1 else ""


def _output(name: str, arguments: argparse.Namespace) -> Path:
    """The file that the network is written to; whatever would keep it, or its record, from being written is refused."""
    if arguments.output is None and name in zoo.bundled():
        raise InputError(f"{name} comes with the package; to build another one, name a file with --output")
    output: Path = arguments.output or zoo.cache_path(name)
    safetensors_file.check_suffix(output)
    if arguments.json is not None and arguments.json.resolve() == output.resolve():
        raise InputError(f"--output and --json name the same file {output}")
    output.parent.mkdir(parents=True, exist_ok=True)
    for path in filter(None, (output, arguments.json)):
        files.check_writable(path)
    return output


def _check_replaceable(output: Path, arguments: argparse.Namespace, recipes: list[dict[str, Any]]) -> None:
    """Refuses to replace a network of other recipes than these, or its record, unless told to."""

    def trained(there: bytes) -> bool:
        try:
            return noted(safetensors_file.about(output), "recipe") in recipes
        except LoadError:
            return False

    def recorded(there: bytes) -> bool:
        record = read_json(there)
        return isinstance(record, dict) and record.get("recipe") in recipes

    otherwise = "a network of another recipe, or something else"
    files.check_replaceable(output, trained, arguments.overwrite, otherwise)
    if arguments.json is not None:
        files.check_replaceable(arguments.json, recorded, arguments.overwrite)


def _task(architecture: Architecture, directory: Path | None, screen: Screen) -> TrainingTask:
    """The images to train, choose and test with; a download shows a bar."""
    with screen.downloads() as progress:
        splits = [data.load(architecture.data_set, split, directory, progress=progress) for split in data.SPLITS]
    return TrainingTask.of(architecture, *splits)


def _setting(recipe: Recipe) -> tuple[str, str]:
    return f"{recipe.learning_rate:g}", f"{recipe.weight_decay:g}"


def _row(trained: Trained) -> tuple[str, str, str, str]:
    return *_setting(trained.recipe), f"{100 * trained.validation:.2f} %", f"{100 * trained.test:.2f} %"
