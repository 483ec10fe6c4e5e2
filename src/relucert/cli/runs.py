"""The skeleton of commands that answer questions about images: options, the record of the run, how it ends."""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from relucert import Exact, Network, Property, UpperBound
from relucert.answers.certificates import Reply
from relucert.arithmetic.norm import Norm
from relucert.cli import images as image_options
from relucert.cli import record
from relucert.cli.show import Screen
from relucert.common.progress import Report
from relucert.common.valid import valid_inputs
from relucert.common.words import counted
from relucert.data import Dataset
from relucert.data.formats import numpy_arrays
from relucert.errors import ContradictionError, InputError, RelucertError
from relucert.execution.execution import Execution
from relucert.inputs.loading.runtime import Loaded
from relucert.inputs.storage import store
from relucert.inputs.storage.store import Anew
from relucert.network.fingerprint import fingerprint
from relucert.network.rounded_activation import ACTIVATION_ULPS
from relucert.report.arrays import ExampleFile
from relucert.report.runfile import RunFile, has_answers

FAILED, INTERRUPTED = 4, 130  # exit codes: an answer failed inside its method, the user stopped the run
MOST_REASONS = 3  # for failures, that a summary names


AnswerType = TypeVar("AnswerType", bound=Reply)


@dataclass(frozen=True)
class Setup:
    """The network, the images and the options that a command is about.

    Attributes:
        arguments: Of the command line.
        loaded: The network with what it was loaded from, which re-checks witnesses.
        options: The options of the library's call, as they were given.
    """

    arguments: argparse.Namespace
    loaded: Loaded
    screen: Screen
    images: Dataset
    options: dict[str, Any]

    @property
    def network(self) -> Network:
        return self.loaded.network

    @property
    def about(self) -> str:
        """The network in a line."""
        return f"{self.network.name} ({self.network.describe()}, {self.network.parameters:,} parameters)"

    def head(self) -> dict[str, Any]:
        """The head of the record."""
        arguments, network, options = self.arguments, self.network, dict(self.options)
        if options.pop("property", None) is not None:
            options["outputs_within"] = [None if math.isinf(end) else end for end in arguments.outputs_within]
        about = {
            "name": network.name,
            "layers": network.describe(),
            "parameters": network.parameters,
            "classes": network.classes,
            "sha256": fingerprint(network, options.get("inference", "real") != "real"),
        }
        decisive = {**options, "target": "per image" if arguments.target_file else arguments.target}
        if "norm" in decisive:
            decisive["norm"] = repr(Norm.parse(decisive["norm"]).p)
        recorded = {"network": arguments.network, "data": arguments.data, **options, "threads": arguments.threads}
        for name in ("data_dir", "target_file"):
            recorded[name] = (path := getattr(arguments, name)) and str(path)
        recorded |= {"layout": arguments.layout, "pixels": arguments.pixels, "target": arguments.target}
        return {
            **record.circumstances(arguments),
            "question": record.question(arguments.command, decisive, about["sha256"]),
            "network": about,
            "data": {"name": self.images.name, "images": len(self.images), "sha256": self.images.sha256()},
            "options": recorded | {"images": len(self.images), "workers": arguments.workers, "ray": arguments.ray},
        }

    def question(self, *words: str, end: str = "") -> str:
        """The question about images in a line.

        Args:
            words: What the command asks besides the norm, the rival and the valid inputs.
            end: What stands between these and the inference.
        """
        scaled = "" if self.options.get("scale") is None else ", distances scaled for each coordinate"
        valid = f"{valid_inputs(self.options.get('box'))}{scaled}"
        question = ", ".join([f"norm {self.arguments.norm}", *words, self._property(), valid])
        return f"{question}{end}{self._inference()}"

    def _inference(self) -> str:
        """Names the inference unless that is real arithmetic, and what it assumes about the network's activations."""
        inference = getattr(self.arguments, "inference", "real")
        if inference == "real":
            return ""
        assumed = f", activations within {ACTIVATION_ULPS} units in the last place"
        return f", evaluated in {inference}{'' if self.network.rectifiers_only else assumed}"

    def _property(self) -> str:
        """The property that must hold, in words: the class, or that the outputs stay within given ends."""
        if self.arguments.outputs_within is None:
            return f"target {self.arguments.target}"
        ends = zip(("above", "below"), self.arguments.outputs_within, strict=True)
        return f"every output {' and '.join(f'{word} {end:.6g}' for word, end in ends if not math.isinf(end))}"


def set_up(arguments: argparse.Namespace, names: Sequence[str]) -> Setup:
    """Sets the threads and loads the network and the images."""
    stated = arguments.outputs_within
    for name in ("plot", "save"):
        if stated is not None and getattr(arguments, name, None):
            raise InputError(f"--{name} draws what is about classes: leave it out with --outputs-within")
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    screen = Screen(arguments.quiet, getattr(arguments, "all", False))
    network = image_options.load_network(arguments, screen)
    images = image_options.load(arguments, network, screen)
    call_options = {name: getattr(arguments, name) for name in names}
    if arguments.target_file is not None:
        call_options["target"] = image_options.read_targets(arguments.target_file, arguments.images)
        arguments.target = f"per image, from {arguments.target_file}"
    if call_options.get("proof") is not None:
        call_options["proof"] = str(call_options["proof"])
    if call_options.get("box") is not None:
        call_options["box"] = tuple(call_options["box"])
    if call_options.get("scale") is not None:
        if not call_options["scale"].is_file():
            raise InputError(f"can't read --scale {call_options['scale']}: there is no such file")
        call_options["scale"] = numpy_arrays(call_options["scale"])[0].flatten().tolist()
    if stated is not None:
        call_options["property"] = Property.outputs_within(*([end] * network.classes for end in stated))
        images = replace(images, labels=None)  # the property stands in for them
    return Setup(arguments, Loaded(network, arguments.network), screen, images, call_options)


@contextmanager
def execution(arguments: argparse.Namespace, tell: Report | None = None) -> Iterator[Execution]:
    """The execution that the options ask for: this process, several, or a cluster; `tell` hears how far it is."""
    workers = arguments.workers
    if arguments.threads is not None:
        if arguments.ray is not None or (workers or 1) > 1:
            raise InputError("workers have one thread each: leave out --threads, or --workers and --ray")
        workers = 1  # whose threads they are
    with Execution(workers, arguments.ray, tell) as started:
        yield started


def store_path(arguments: argparse.Namespace, files: Mapping[str, Path]) -> Path | Anew | None:
    """The path of the store from which the record is made; raises InputError for a record that has lost its store."""
    record_path = files.get("json") or files.get("csv")
    if record_path is None:
        return None
    path = store.store_path(record_path)
    if arguments.overwrite:
        return store.Anew(path)
    if not path.exists() and has_answers(record_path):
        raise InputError(
            f"{record_path} holds something, and there is no {path.name} to go on from: name another file, or start "
            "anew with --overwrite"
        )
    return path


def example_file(setup: Setup) -> ExampleFile | None:
    """The file to save adversarial examples to as arrays, checked; None unless that was asked for."""
    path, overwrite = setup.arguments.save_arrays, setup.arguments.overwrite
    return None if path is None else ExampleFile(path, setup.head()["question"], overwrite)


def save_examples(examples: ExampleFile | None, setup: Setup, answers: Sequence[UpperBound | Exact]) -> None:
    """Saves the adversarial examples among the answers, and says where."""
    if examples is not None:
        complete = len({answer.image for answer in answers}) == len(setup.images)
        path, count = examples.write(setup.network, setup.images.images, answers, complete)
        setup.screen.line("arrays", f"{counted(count, 'adversarial example')} in {path}")


@dataclass(frozen=True)
class Collected(Generic[AnswerType]):
    """The answers that came, and what stopped the work before its end."""

    answers: list[AnswerType]
    stopped: KeyboardInterrupt | RelucertError | ContradictionError | None


def collect(
    answers: Iterable[AnswerType],
    run_file: RunFile,
    came: Callable[[AnswerType], None] = lambda answer: None,
    row: Callable[[AnswerType], dict[str, Any]] = lambda answer: answer.to_json(),
) -> Collected[AnswerType]:
    """Takes the answers as they come; what came is recorded, as its row, whatever happens."""
    received: list[AnswerType] = []
    try:
        with run_file:
            for answer in answers:
                received.append(answer)
                run_file.add(row(answer))
                came(answer)
            run_file.finish()
    except (KeyboardInterrupt, RelucertError, ContradictionError) as stopped:
        kept = received[: len(run_file)]  # the last one may not be on record
        return Collected(kept, stopped)
    return Collected(received, None)


def tell_failures(screen: Screen, answers: Sequence[Reply]) -> None:
    """Says how many answers failed inside their method, and why; also where little else is said."""
    reasons = Counter(answer.reason for answer in answers if answer.failed)
    for reason, count in reasons.most_common(MOST_REASONS):
        screen.line("failed", f"{count} of {counted(len(answers), 'answer')}: {reason}")
    if more := reasons.total() - sum(count for _, count in reasons.most_common(MOST_REASONS)):
        screen.line("failed", f"{more} of {counted(len(answers), 'answer')}, for other reasons")


def tell_runtime(screen: Screen, answers: Sequence[UpperBound] | Sequence[Exact]) -> None:
    """Says what evaluated the witnesses of a network that is evaluated in floating point."""
    for shown_by in dict.fromkeys(answer.shown_by for answer in answers if answer.shown_by is not None):
        screen.line("witnesses", f"shown by {shown_by}")


def end(work: Collected[AnswerType], kept: Path | Anew | None, screen: Screen, done: str) -> int:
    """The exit code; where the work was stopped, says what is done, and whether that is kept."""
    if work.stopped is None:
        return FAILED if any(answer.failed for answer in work.answers) else 0
    screen.complain(f"stopped after {done}{'' if kept is None else '; the same command goes on from here'}")
    if not isinstance(work.stopped, KeyboardInterrupt):
        raise work.stopped
    return INTERRUPTED


def answer(
    setup: Setup,
    files: Mapping[str, Path],
    title: str,
    call: Callable[..., Iterable[AnswerType]],
    show: Callable[[list[AnswerType]], None],
    came: Callable[[AnswerType], None] = lambda answer: None,
    row: Callable[[AnswerType], dict[str, Any]] = lambda answer: answer.to_json(),
    **further: Any,
) -> int:
    """The skeleton of the commands that answer questions about images: asks, records, shows and ends.

    Args:
        files: Where to record.
        title: Of the progress bar.
        call: The library's, such as `certify_each`; it gets the options of the set-up and `further` ones.
        show: Prints what came.
        came: Called with every answer.
        row: Makes the answer's row in the record.
    """
    arguments, started = setup.arguments, time.perf_counter()
    head = setup.head()
    kept = store_path(arguments, files)
    with setup.screen.progress(title, len(setup.images)) as bar, execution(arguments, bar.tell) as workers:
        images, labels = setup.images.images, setup.images.labels
        answers = call(setup.loaded, images, labels, **setup.options, **further, workers=workers, store=kept)
        run_file = RunFile(head, files.get("json"), files.get("csv"), overwrite=arguments.overwrite)
        work = collect(answers, run_file, came, row)
    if work.answers:
        show(work.answers)
        tell_failures(setup.screen, work.answers)
        setup.screen.line("time", f"{time.perf_counter() - started:.2f} s")
    done = len({answer.to_json()["image"] for answer in work.answers})
    return end(work, kept, setup.screen, f"{done} of {counted(len(setup.images), 'image')}")
