"""`relucert paper`: the paper's tables, computed anew beside the published numbers."""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import relucert
from relucert.cli import options
from relucert.cli.table import OPTIONS, Option, add_options, effort
from relucert.common.names import CONTENDERS
from relucert.common.words import counted
from relucert.errors import InputError, LoadError, StoreError
from relucert.experiments.paper.published import TABLE_METHODS, TABLES, lines
from relucert.inputs.storage import files
from relucert.report.runfile import MARK, read_json, table

if TYPE_CHECKING:
    from relucert.cli.show import Screen
    from relucert.data import Dataset
    from relucert.experiments.paper.networks import Subject
    from relucert.experiments.paper.rerun import Rerun
    from relucert.inputs.storage.store import Store

NAME = "paper"
HELP = "the paper's tables, computed anew beside the published numbers"
DESCRIPTION = (
    "Reruns a table of the paper: toy (networks of 20 neurons per layer), large (1024 or 2048), defences (distillation "
    "and adversarial training). Answers are kept in the cache as they come, and the same command goes on where an "
    "interrupted one stopped."
)
PROTOCOL = ()  # the box of each method as in the paper
EFFORT: dict[str, Any] = {"steps": 40, "batches": 20, "samples": 256, "budget": 60.0}
STORED = ("steps", "batches", "samples", "seed")  # what any answer may depend on
SAVED = 10.0  # seconds between savings of the exports
OUTPUTS = ("json", "csv", "markdown", "latex")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", choices=TABLES, metavar="TABLE", help="toy, large or defences")
    rows = parser.add_argument_group("which part of the table")
    listed: dict[str, Callable[[str], str]] = {
        "methods": CONTENDERS.find,
        "norms": options.norm,
        "targets": options.target,
        "networks": str,
    }
    box = "the paper's protocol: every input for certificates, pixels from -0.5 to 0.5 for the rest"
    add_options(
        rows,
        images=Option("the first N", options.count, 100, "N"),
        **{
            name: Option(f"only these {name}, with commas", options.each(parse), metavar="NAMES")
            for name, parse in listed.items()
        },
        network_file=Option(
            "a network to take for that of its size: .onnx, .safetensors, or .npz with W1, b1, W2, b2 and so on",
            Path, [], "FILE", {"action": "append"},
        ),
        data_dir="the folder that has mnist or cifar10",
    )  # fmt: skip
    boxes = rows.add_mutually_exclusive_group()
    valid = f"the lowest and the highest valid value of an input (default: {box})"
    add_options(boxes, box=replace(OPTIONS["--box"], help=valid, default=PROTOCOL))
    add_options(boxes, "--no-box")
    add_options(rows, "--inference", seed="for random targets, starts and samples")
    group = parser.add_argument_group("the effort")
    threads = "one process, and how many threads it computes with; the paper has 1 (default: 1)"
    add_options(group, **effort(**EFFORT))
    add_options(group, "--memory", threads=threads)
    add_options(group, ("--workers", "--ray"))
    answers = parser.add_argument_group("the answers")
    exports = {"json": "all numbers", "csv": "all numbers", "markdown": "tables", "latex": "tables"}
    files = {name: Option(f"{content}, as {name}", Path, metavar="FILE") for name, content in exports.items()}
    add_options(answers, **files)
    add_options(answers, "--overwrite", "--quiet")


def run(arguments: argparse.Namespace) -> int:
    """Checks everything that can be checked, then finds what is not stored yet, shows and exports."""
    outputs = options.outputs(arguments, OUTPUTS)
    import torch

    from relucert.arithmetic.norm import Norm
    from relucert.cli.show import Screen
    from relucert.experiments.comparison.methods import Setting, find_contenders
    from relucert.experiments.paper.networks import find_subjects
    from relucert.experiments.paper.rerun import Rerun

    torch.set_num_threads(arguments.threads or 1)
    screen = Screen(quiet=arguments.quiet)
    contenders = find_contenders(arguments.methods or TABLE_METHODS[arguments.table])
    rows = lines(arguments.table, arguments.networks, arguments.norms, arguments.targets)
    tried = {name: getattr(arguments, name) for name in (*EFFORT, "seed")}
    protocol = arguments.box == PROTOCOL
    box = None if protocol or arguments.box is None else tuple(arguments.box)
    setting = Setting(
        Norm.parse("inf"), box=box, **tried, memory=arguments.memory, inference=arguments.inference
    )  # fmt: skip
    subjects, missing = find_subjects(arguments.network_file, [line.network for line in rows])
    images = _images(arguments, subjects, missing, screen)
    for name, reason in missing.items():
        screen.complain(f"{name} is left out: {reason}")
    present = [line for line in rows if line.network in images]
    if not present:
        raise InputError(f"there is no network of the table {arguments.table!r}: {'; '.join(missing.values())}")
    stored = {"table": arguments.table, **{name: tried[name] for name in STORED}, "threads": arguments.threads or 1}
    stored["box"] = "paper" if protocol else box
    if arguments.inference != "real":
        stored["inference"] = arguments.inference
    rerun = Rerun(present, subjects, images, contenders, setting, stored, protocol)
    return _find(arguments, outputs, rerun, missing, screen)


def _find(
    arguments: argparse.Namespace, outputs: dict[str, Path], rerun: Rerun, missing: dict[str, str], screen: Screen
) -> int:
    """Finds what is missing, exports and shows; the result is the exit code."""
    from relucert.cli import runs

    head, store_path = _head(arguments, rerun), _store_path(rerun, screen)
    _check_replaceable(outputs, head, store_path, arguments.overwrite)
    interrupted, started, saved = False, time.perf_counter(), time.monotonic()

    def save(complete: bool) -> None:
        seconds = round(time.perf_counter() - started, 3)
        ended = {"seconds": seconds, "skipped": missing | rerun.skipped, "complete": complete}
        _export({**head, **ended}, outputs, rerun)

    def came() -> None:
        nonlocal saved
        if time.monotonic() - saved > SAVED:
            save(complete=False)
            saved = time.monotonic()

    with _store(store_path, rerun, arguments.overwrite) as store:
        try:
            with (
                screen.progress(f"the table {arguments.table}", len(rerun.job.questions)) as bar,
                runs.execution(arguments, bar.tell) as workers,
            ):
                rerun.run(store, workers, arguments.overwrite, came)
        except KeyboardInterrupt:
            interrupted = True
    save(complete=not interrupted)
    _show(rerun, screen)
    screen.line("stored in", str(store_path))
    screen.line("threads", str(arguments.threads or 1))
    screen.line("time", f"{time.perf_counter() - started:.1f} s")
    if interrupted:
        screen.complain("stopped; the same command goes on from here")
        return runs.INTERRUPTED
    return runs.FAILED if rerun.failed else 0


def _store_path(rerun: Rerun, screen: Screen) -> Path:
    """The path of the store of all answers of this table and effort, whichever rows of it were asked for."""
    from relucert.inputs.storage.store import FORMAT, SUFFIX, series

    folder, question = files.cache_directory("paper"), rerun.job.asked
    written = [FORMAT, series(relucert.__version__)]  # other versions keep theirs
    mark = hashlib.sha256(json.dumps([question, written], sort_keys=True).encode()).hexdigest()[:12]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"can't keep answers in {folder}: {error.strerror or error}") from error
    if old := sorted(folder.glob(f"{question['table']}-*.jsonl")):
        screen.complain(f"answers of an earlier version are not read: {', '.join(map(str, old))}")
    return folder / f"{question['table']}-{mark}{SUFFIX}"


def _store(store_path: Path, rerun: Rerun, overwrite: bool) -> Store:
    """The open store; one that can't be read is started anew where everything is asked again."""
    from relucert.inputs.storage.store import Anew, Store, open_store

    try:
        return Store(store_path, rerun.job.asked)
    except StoreError:
        if not overwrite:
            raise
        return open_store(Anew(store_path), rerun.job.asked)


def _check_replaceable(outputs: dict[str, Path], head: dict[str, Any], store_path: Path, overwrite: bool) -> None:
    """Raises InputError where a file is about another question, or there are no answers to make it from once more."""
    mark = head["question"][:MARK].encode()
    for path in outputs.values():
        otherwise = f"results of another question{_differing(files.content(path), head['options'])}, or something else"
        there = files.check_replaceable(path, lambda content: mark in content, overwrite, otherwise)
        if there and not overwrite and not store_path.exists():
            raise InputError(
                f"{path} holds something, and there is no {store_path} to go on from: name another file, or start anew "
                "with --overwrite"
            )


def _differing(content: bytes, options: dict[str, Any]) -> str:
    """Names the options that a record has otherwise, in brackets; nothing where that can't be told."""
    from relucert.cli.record import NO_MATTER

    try:
        there = read_json(content)["options"]
        pairs = [(name, there[name], value) for name, value in options.items() if name not in NO_MATTER]
    except (KeyError, TypeError):
        return ""
    shown = [f"{name} is {before}, not {now}" for name, before, now in pairs if before != now]
    return f" ({', '.join(shown)})" if shown else ""


def _images(
    arguments: argparse.Namespace, subjects: dict[str, Subject], missing: dict[str, str], screen: Screen
) -> dict[str, Dataset]:
    """The first test images for every network; where there are none, why is noted as missing."""
    from relucert import data

    bundled = data.bundled()
    enough = arguments.data_dir is None and arguments.images <= len(bundled)
    loaded: dict[str, Dataset | LoadError] = {"mnist": bundled} if enough else {}
    by_network: dict[str, Dataset] = {}
    for name in subjects:
        data_set = "cifar10" if name.startswith("cifar") else "mnist"
        if data_set not in loaded:
            try:
                with screen.downloads() as progress:
                    loaded[data_set] = data.load(data_set, "test", arguments.data_dir, progress=progress)
            except LoadError as error:
                loaded[data_set] = error
        images = loaded[data_set]
        if isinstance(images, LoadError):
            missing[name] = str(images)
        else:
            by_network[name] = images.first(arguments.images)
    return by_network


def _show(rerun: Rerun, screen: Screen) -> None:
    from relucert.experiments.paper import export

    setting = rerun.setting
    for title, (titles, rows) in export.both(rerun.cells()):
        screen.columns(titles, rows, len(export.QUESTION), heading=f"{title}, ours and the published")
    for subject, reason in rerun.skipped.items():
        screen.complain(f"{subject} is left out: {reason}")
    for subject, reasons in rerun.failed.items():
        screen.line("failed", f"{counted(len(reasons), 'answer')} of {subject}: {reasons[0]}")
    screen.line("cells", export.legend(setting.inference))
    screen.line(
        "effort", f"{setting.steps} attack steps, CLEVER {setting.batches} x {setting.samples}, seed {setting.seed}"
    )
    screen.line("valid inputs", rerun.valid)


def _head(arguments: argparse.Namespace, rerun: Rerun) -> dict[str, Any]:
    """The head of a record, before its numbers."""
    from relucert.cli import record

    names = ("table", "images", "methods", "norms", "targets", "networks", "memory", "inference", "seed", *EFFORT)
    question_options = {name: getattr(arguments, name) for name in names} | {"threads": arguments.threads or 1}
    question_options["box"] = "paper" if rerun.protocol else rerun.setting.box
    networks = {name: subject.digest for name, subject in rerun.subjects.items()}
    data = {name: images.sha256() for name, images in rerun.images.items()}
    first = {name: images.first(1).sha256() for name, images in rerun.images.items()}  # more belong to the same run
    return {
        **record.circumstances(arguments),
        "question": record.question(arguments.command, question_options, networks, first),
        "options": question_options
        | {"network_file": [str(path) for path in arguments.network_file]}
        | {"workers": arguments.workers, "ray": arguments.ray},
        "networks": {name: {"sha256": networks[name], "data_sha256": data[name]} for name in data},
        "valid_inputs": rerun.valid,
    }


def _export(head: dict[str, Any], outputs: dict[str, Path], rerun: Rerun) -> None:
    from relucert.experiments.paper import export

    cells, inference = rerun.cells(), rerun.setting.inference
    rows = [cell.to_json() for cell in cells]
    mark = head["question"][:MARK]
    about = f"{rerun.valid}; question {mark}"
    texts = {
        "json": lambda: json.dumps({**head, "failed": rerun.failed, "cells": rows}, indent=2, allow_nan=False) + "\n",
        "csv": lambda: table([{**row, "question": mark} for row in rows]),
        "markdown": lambda: export.markdown(cells, about, inference),
        "latex": lambda: export.latex(cells, about, inference),
    }
    for name, path in outputs.items():
        files.write(path, texts[name]().encode())
