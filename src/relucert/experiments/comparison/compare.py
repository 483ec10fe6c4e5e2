"""`relucert.compare`: every method's answer to the same questions, in the order that was proven."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relucert.answers.certificates import Answer
from relucert.api.bounds import bounds
from relucert.arithmetic.box import check_inside
from relucert.arithmetic.norm import Norm, NormLike
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region, RegionShape
from relucert.common.checks import checked_path, parse_memory
from relucert.common.listening import listening
from relucert.common.names import INFERENCES, ContenderName, InferenceName
from relucert.common.progress import Progress, ProgressLike, Report, silent
from relucert.common.words import counted
from relucert.errors import FAULTS, InputError, RelucertError, StoreError, in_one_line
from relucert.execution.execution import Execution
from relucert.execution.identity import identity
from relucert.experiments.comparison.deadline import OutOfTime, Worker
from relucert.experiments.comparison.methods import CONTENDERS, Contender, Entry, Setting, find_contenders
from relucert.experiments.comparison.order import AnswerRecord
from relucert.inputs.loading.runtime import Loaded
from relucert.inputs.storage.store import Anew, Section, Store, open_store
from relucert.network import Network, find_inference
from relucert.query.plausible import unwarned
from relucert.query.questions import check_stated, pose, prepare
from relucert.query.targets import parse_target
from relucert.query.types import BoxLike, ImagesLike, LabelsLike, NetworkLike, ScaleLike, TargetLike
from relucert.report import pictures
from relucert.report.answer_list import Presentable
from relucert.report.reading import AnswerKind

FAR = 1e12  # the radius of bounds where a certified radius is infinite


@dataclass(frozen=True, eq=False)
class Compared:
    """One question and the answers of all methods, by the method's name.

    rival: the class the question is about where each has a question of its own; otherwise None.
    """

    image: int
    rival: int | None
    answers: dict[str, Any]

    def __repr__(self) -> str:
        rival = "" if self.rival is None else f", rival {self.rival}"
        return f"Compared(image {self.image}{rival}: {', '.join(self.answers)})"


@dataclass(frozen=True, eq=False)
class Comparison(Presentable):
    """The answers of every method to the same questions.

    Notebooks show it as a table, and it can be drawn, summed up and exported as lists of answers can.

    Attributes:
        questions: One entry per image (with target "all", per image and `rival`), in order; its `answers` are those of
            the methods, by their names.
        skipped: By the methods' names, why they were left out or stopped.
        failed: By the methods' names, for every answer that an error inside the method spoilt, what the error says.
    """

    questions: list[Compared]
    skipped: dict[str, str]
    failed: dict[str, list[str]]

    def __repr__(self) -> str:
        left_out = f", left out or stopped: {', '.join(self.skipped)}" if self.skipped else ""
        left_out += f", failed in part: {', '.join(self.failed)}" if self.failed else ""
        return f"Comparison({counted(len(self.questions), 'question')}, {', '.join(self._methods)}{left_out})"

    @property
    def _methods(self) -> list[str]:
        """The methods that answered, in the order in which they were asked."""
        answered = {name for question in self.questions for name in question.answers}
        return [name for name in CONTENDERS if name in answered]

    def rows(self) -> list[dict[str, Any]]:
        """One row of plain values per answer, method by method, as run files have them."""
        return [
            Entry(name, CONTENDERS[name].kind, question.answers[name]).to_json()
            for name in self._methods
            for question in self.questions
            if name in question.answers
        ]

    def _repr_html_(self) -> str:
        from relucert.report import notebook

        every_rival = any(question.rival is not None for question in self.questions)
        failed = {name: f"{counted(len(errors), 'answer')} failed: {errors[0]}" for name, errors in self.failed.items()}
        return notebook.compared(self.rows(), every_rival, failed | self.skipped)


def compare(
    network: NetworkLike,
    images: ImagesLike,
    labels: LabelsLike | None = None,
    *,
    methods: Sequence[ContenderName] | None = None,
    norm: NormLike = "inf",
    target: TargetLike = "untargeted",
    property: Property | None = None,
    box: BoxLike | None = None,
    scale: ScaleLike | None = None,
    steps: int = 100,
    batches: int = 50,
    samples: int = 256,
    budget: float = 60.0,
    memory: int | str = 2**30,
    inference: InferenceName = "real",
    seed: int = 0,
    input_shape: tuple[int, ...] | None = None,
    workers: int | Execution | None = None,
    ray: str | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: ProgressLike = None,
) -> Comparison:
    """What all methods say about the same images; the provable order is checked on every one.

    Args:
        network: A Network, a torch.nn.Module, a torch.export.ExportedProgram, a file or a zoo name.
        images: An array or a tensor, one row per image, in the network's own input range, or a data set: relucert's, or
            a torch Dataset or DataLoader of image and label. A row has the input's shape, or is flat, or differs by
            axes of length one.
        labels: One class per image; by default those of the data set, else the network's predictions.
        methods: Names such as "fast-lin", "exact", "clever" or "attack"; by default all but "best", which runs others.
        norm: "inf" (or "linf"), "2" ("l2"), "1" ("l1") or any number >= 1.
        target: As for `certify`.
        property: As for `certify`, in place of labels and targets.
        box: The valid inputs, as for `certify`, the same for all methods.
        scale: How far each coordinate may move per unit of radius, as for `certify`.
        steps: Gradient steps of each attack.
        batches: How many batches CLEVER samples.
        samples: How many samples each of its batches has.
        budget: Seconds that a method may take per image; one too slow is left out, and `skipped` says so.
        memory: How many bytes all that is worked on at a time may take, by all workers together; or "2G".
        inference: What the network is evaluated in, as for `certify`; methods that say nothing about it are left out.
        seed: Of random targets, starts and samples.
        input_shape: Of one image, where neither the network nor the images tell it.
        workers: As for `certify`; a method's first image is tried alone.
        ray: As for `certify`.
        store: A file that keeps the answers, as for `certify`.
        progress: As for `certify`; what is counted are pairs of a method and an image.

    Raises:
        ContradictionError: Where two answers can't both be true.
    """
    setting = Setting(
        Norm.parse(norm), target, property, box, scale, steps, batches, samples, budget, parse_memory(memory),
        INFERENCES.find(inference), seed,
    )  # fmt: skip
    contenders = find_contenders(methods)
    check_stated(property, labels, target)
    prepared = prepare(network, images, labels, input_shape)
    loaded = Loaded(prepared.network, prepared.source)
    comparison = ComparisonRun(loaded, prepared.images, prepared.labels, contenders, setting)
    path = None if store is None else checked_path(store, "a store of answers")
    with listening(progress) as receiver, running(comparison, workers, ray, path, receiver.tell):
        for _ in comparison.run():
            pass
    questions = [
        Compared(image, rival, {name: entry.answer for name, entry in entries.items()})
        for (image, rival), entries in comparison.answer_record.entries.items()
    ]
    return Comparison(
        sorted(questions, key=lambda compared: (compared.image, compared.rival or 0)),
        comparison.skipped,
        comparison.failed,
    )


@contextmanager
def running(
    comparison: ComparisonRun,
    workers: int | Execution | None,
    ray: str | None,
    store: Path | Anew | None,
    report: Report,
) -> Iterator[None]:
    """Gives a comparison its processes, the store that keeps its answers, and who is told how far it is."""
    with ExitStack() as stack:
        if not isinstance(workers, Execution):
            workers = stack.enter_context(Execution(workers, ray))
        comparison.execution, comparison.report = workers, report
        if store is not None:
            comparison.store = stack.enter_context(open_store(store, comparison.run_identity()))
        yield


class ComparisonRun:
    """Puts the same questions to one method after the other; everything that can be checked is checked at once.

    skipped: by a method's name, why it was left out or where it was stopped; failed: what errors inside it said, one
    entry per answer that they spoilt; done: how many pairs of method and image are behind, of `total`. All grow during
    the run.
    """

    def __init__(
        self,
        loaded: Loaded,
        images: Tensor,
        labels: LabelsLike | None,
        contenders: Sequence[Contender],
        setting: Setting,
    ) -> None:
        network = loaded.network.evaluated_in(find_inference(setting.inference))
        inquiry = pose(network, images, labels, setting.target, setting.seed, setting.property)
        self.shape = RegionShape.parse(setting.norm, setting.box, setting.scale, network.input_shape)
        check_inside(inquiry.images, self.shape.box)
        self.network, self.images, self.contenders, self.setting = network, inquiry.images, contenders, setting
        self.loaded = loaded
        by_image = {question.image: question.label for question in inquiry.questions}
        self.labels = torch.tensor(list(by_image.values())) if inquiry.stated is None else None
        self.target = setting.target if inquiry.stated is not None else parse_target(setting.target, network.classes)
        self.answer_record = AnswerRecord(each_rival=self.target == "all")
        self.skipped: dict[str, str] = {}
        self.failed: dict[str, list[str]] = {}
        self.done, self.total = 0, len(contenders) * len(inquiry.images)
        self.asking: str | None = None  # the method that is asked now
        self.report: Report = silent
        self.execution: int | Execution | None = None
        self.store: Store | None = None

    def run_identity(self) -> dict[str, Any]:
        """The identity of the run in a store, the same whatever methods are compared."""
        target = self.target if self.setting.property is None else self.setting.property
        return identity("compare", self.network, self.shape, target, self.setting)

    def tell(self, news: Progress) -> None:
        """Reports how far the comparison is, with the news of the current method."""
        self.report(replace(news, done=self.done, total=self.total, method=self.asking))

    def run(self) -> Iterator[Entry]:
        """Yields the answers, method by method; each is then checked against all earlier ones about its question."""
        for number, contender in enumerate(self.contenders):
            self.asking = contender.name
            for answer in self._answers(contender):
                entry = Entry(contender.name, contender.kind, answer)
                self.done = number * len(self.images) + entry.answer.image + 1
                self.tell(Progress())
                if entry.failed:
                    self.failed.setdefault(entry.method, []).append(entry.reason or "")
                yield entry  # first, so that one that contradicts another is on record
                self.answer_record.add(entry)
        if not self.answer_record.entries:
            raise InputError("; ".join(f"{name}: {reason}" for name, reason in self.skipped.items()))

    def _answers(self, contender: Contender) -> Iterator[Any]:
        """Yields the answers of one method.

        A method that may take longer than the budget is tried on the first image, and skipped if it does. An exact
        search stops at an interval that stays open before any other has closed.
        """
        budget, count = self.setting.budget, len(self.images)
        if self.store is not None and contender.name in self.store.notes:
            self.skipped[contender.name] = self.store.notes[contender.name]
        elif not contender.patient and count > 1:
            self._try(contender, f"skipped: the first image took more than the budget of {budget:g} s")
        if contender.name not in self.skipped:
            late = f"stopped: {counted(count, 'image')} took more than {budget:g} s each"
            hopeful = contender.kind is not AnswerKind.EXACT
            for answer in self._within(contender, count, late):
                yield answer
                hopeful = hopeful or (answer.closed and bool(answer.upper))
                if not hopeful and answer.lower:  # an interval that time left open, before any was closed
                    self.skipped[contender.name] = f"stopped: image {answer.image} did not close within {budget:g} s"
                    return

    def _try(self, contender: Contender, too_slow: str) -> None:
        """Asks about the first image alone; a method that is too slow is skipped, also when the run is resumed."""
        started = time.perf_counter()
        for _ in self._within(contender, 1, too_slow):
            pass
        if contender.name not in self.skipped and time.perf_counter() - started > self.setting.budget:
            self.skipped[contender.name] = too_slow
        if self.store is not None and self.skipped.get(contender.name) == too_slow:
            self.store.add([], {contender.name: too_slow})

    def _within(self, contender: Contender, count: int, too_slow: str) -> Iterator[Any]:
        """The answers about the first images within the budget; a refusal or an error is noted like a lack of time."""
        remaining = self.setting.budget * count
        answers = self._lazy_answers(contender, count)
        with Worker() as worker:
            while remaining > 0:
                started = time.perf_counter()
                try:
                    answer = worker.call(lambda: next(answers, None), remaining)
                except OutOfTime:
                    break
                except StoreError:
                    raise
                except RelucertError as error:
                    self.skipped[contender.name] = f"skipped: {error}"
                    return
                except FAULTS as error:
                    self.skipped[contender.name] = f"failed: {in_one_line(error)}"
                    self.failed.setdefault(contender.name, []).append(in_one_line(error))
                    return
                if answer is None:
                    return
                remaining -= time.perf_counter() - started
                yield answer
        self.skipped[contender.name] = too_slow

    def _lazy_answers(self, contender: Contender, count: int) -> Iterator[Answer]:
        """Yields the answers about the first images; the method is called with the first `next`, so that errors of its
        checks are raised there."""
        target = self.target[:count] if isinstance(self.target, tuple) else self.target
        section = None if self.store is None else Section(self.store, contender.name)
        stated = self.setting.property
        if stated is not None and len(stated) > 1:
            stated = stated.select(torch.arange(count))
        setting = replace(
            self.setting, target=target, property=stated, workers=self.execution, store=section, progress=self.tell,
        )  # fmt: skip
        labels = None if self.labels is None else self.labels[:count]
        with unwarned():
            answers = contender.ask(self.loaded, self.images[:count], labels, setting)
        yield from answers


def row(entry: Entry, network: Network, images: Tensor) -> dict[str, Any]:
    """An answer for the record, with the neurons' states or a picture of the adversarial example.

    images: (batch, size), the images of all questions.
    """
    record, answer = entry.to_json(), entry.answer
    if entry.method == "fast-lin" and entry.lower:
        record["neurons"] = neurons(network, images[answer.image], entry.lower, answer)
    return record | pictures.answer_row(network, images, answer) if entry.kind is AnswerKind.UPPER else record


def neurons(network: Network, image: Tensor, radius: float, answer: Any) -> list[dict[str, int]]:
    """How many neurons of each ReLU layer Fast-Lin finds inactive, unstable and active within the radius."""
    region = Region.around(image[None], min(radius, FAR), answer.norm, answer.box, answer.input_scale)
    intervals = bounds(network, region, arithmetic="float", inference=answer.inference)
    states = []
    for interval in intervals[: len(network.preactivations)]:
        inactive = int((interval.upper <= 0).sum())
        active = int(((interval.lower >= 0) & (interval.upper > 0)).sum())
        states.append({"dead": inactive, "undecided": interval.lower.numel() - inactive - active, "active": active})
    return states
