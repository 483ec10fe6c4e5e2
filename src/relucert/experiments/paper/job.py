"""The questions of a table, one per line, image and method, each answered by itself as the paper does it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import torch

from relucert.answers.certificates import Answer
from relucert.arithmetic.norm import Norm
from relucert.common.progress import Report, silent
from relucert.data import Dataset
from relucert.errors import FAULTS, RelucertError, in_one_line
from relucert.execution.identity import network_mark
from relucert.execution.job import Item
from relucert.experiments.comparison.deadline import OutOfTime, limited
from relucert.experiments.comparison.methods import CONTENDERS, Setting
from relucert.experiments.paper.networks import Subject
from relucert.experiments.paper.published import PublishedLine
from relucert.inputs.storage.store import About, Store, mark
from relucert.network import find_inference
from relucert.network.batching import question_bytes
from relucert.query.questions import SEED_STEP, Question
from relucert.query.types import BoxLike

SLOW = "too slow: "  # begins the name of a note: the seconds that were not enough, and what was seen


@dataclass(frozen=True)
class Omitted:
    """Stands for an answer that was not sought, with the reason.

    Attributes:
        reason: What the reader is told.
        error: What an error inside the method said; None where there was none.
        slow: Whether the budget was not enough.
        alone: Whether the method may do better on other images, and so is not given up.
    """

    reason: str
    error: str | None = None
    slow: bool = False
    alone: bool = False
    failed: ClassVar[bool] = True  # a store does not keep it

    def to_json(self) -> dict[str, Any]:
        return {"reason": self.reason, "failed": True}


@dataclass(frozen=True, eq=False)
class TableQuestion:
    """The question of a line of the table to a method, about one image.

    Attributes:
        row: The line's number among those that are run.
        box: The valid inputs.
    """

    row: int
    line: PublishedLine
    question: Question
    method: str
    box: BoxLike | None

    @property
    def course(self) -> str:
        """The name of a method on a network and a norm, which is given up as a whole where it is too slow."""
        return f"{self.method} on {self.line.network}, p = {self.line.norm}"


@dataclass(eq=False)
class TableJob:
    """The questions of a table, line by line, image by image, method by method.

    Attributes:
        subjects, images: By the network's name in the table.
        setting: The seed, the effort, and the memory for all questions that are worked on at a time.
        questions: All of them, in order.
        effort: The settings that every answer depends on.
        skipped: By course, why it is given up; grows during the run.
        noted: The names of the notes that a store has.
    """

    subjects: Mapping[str, Subject]
    images: Mapping[str, Dataset]
    setting: Setting
    questions: Sequence[TableQuestion]
    effort: Mapping[str, Any]
    skipped: dict[str, str] = field(default_factory=dict)
    noted: set[str] = field(default_factory=set)

    @property
    def items(self) -> Sequence[Item]:
        return [(number,) for number in range(len(self.questions))]

    @property
    def asked(self) -> dict[str, Any]:
        return {"command": "paper", **self.effort}

    @property
    def most_workers(self) -> int:
        need = max(
            question_bytes(subject.network, subject.network.classes, "fast-lin") for subject in self.subjects.values()
        )
        return max(1, self.setting.memory // need)

    @property
    def divisible(self) -> bool:
        return False

    def about(self) -> list[About]:
        marks = {
            (name, image): mark(images.images[image], label)
            for name, images in self.images.items()
            for image, label in enumerate(_labels(images))
        }
        return [
            {
                **self._marks[query.line.network], "norm": query.line.norm,
                "target": query.line.target, "method": query.method,
                "limit": self.setting.budget if CONTENDERS[query.method].timed else None,
                "pixels": marks[query.line.network, query.question.image], "image": query.question.image,
            }
            for query in self.questions
        ]  # fmt: skip

    def check(self, store: Store) -> None:
        """Accepts any store: answers about other networks and images are told apart by their checksums."""

    def is_whole(self, number: int, answer: Answer | Omitted) -> bool:
        return True

    @cached_property
    def _marks(self) -> dict[str, dict[str, Any]]:
        """The marks of networks in a store, by their names in the table."""
        inference = find_inference(self.setting.inference)
        return {name: network_mark(subject.network.evaluated_in(inference)) for name, subject in self.subjects.items()}

    def recall(self, notes: Mapping[str, str], again: bool) -> None:
        """Gives up the courses that were too slow in earlier runs, unless everything is asked again."""
        self.noted = set(notes)
        for query in {question.course: question for question in self.questions}.values():
            seconds, _, reason = notes.get(self._note(query), "-1").partition(" ")
            if float(seconds) >= self.setting.budget and not again:
                self.skipped[query.course] = f"{reason}; a larger --budget tries again"

    def answer(self, numbers: Sequence[int], report: Report = silent) -> Iterator[Sequence[Answer | Omitted]]:
        for number in numbers:
            yield [self._answer(self.questions[number], report)]

    def lost(self, number: int, reason: str) -> Omitted:
        return Omitted(reason, error=reason, alone=True)

    def came(self, number: int, answer: Answer | Omitted) -> Mapping[str, str]:
        """Gives a course up after an omitted answer; returns the note for later runs that it is, or no longer is, too
        slow."""
        query = self.questions[number]
        if not isinstance(answer, Omitted):
            given_up = query.course in self.skipped  # by another image, while this one was in work
            return {note: "-1"} if (note := self._note(query)) in self.noted and not given_up else {}
        if answer.alone:
            return {}
        self.skipped.setdefault(query.course, answer.reason)
        return {self._note(query): f"{self.setting.budget!r} {answer.reason}"} if answer.slow else {}

    def settled(self, number: int) -> Omitted | None:
        reason = self.skipped.get(self.questions[number].course)
        return None if reason is None else Omitted(reason)

    def _note(self, query: TableQuestion) -> str:
        return f"{SLOW}{query.method} {json.dumps(self._marks[query.line.network])} {query.line.norm}"

    def _answer(self, query: TableQuestion, report: Report) -> Answer | Omitted:
        """The answer, the same as in a run over all images at once, or the reason why there is none."""
        budget = self.setting.budget
        try:
            return limited(lambda: self._ask(query, report), budget)
        except OutOfTime:
            return Omitted(f"image {query.question.image} took more than the budget of {budget:g} s", slow=True)
        except RelucertError as error:
            return Omitted(str(error))
        except FAULTS as error:
            return Omitted(f"failed: {in_one_line(error)}", error=in_one_line(error))

    def _ask(self, query: TableQuestion, report: Report) -> Answer:
        image, rivals = query.question.image, query.question.rivals
        setting = replace(
            self.setting,
            norm=Norm.parse(query.line.norm),
            target=rivals[0] if len(rivals) == 1 else query.line.target,
            box=query.box,
            seed=(self.setting.seed + SEED_STEP * image) % 2**63,
            workers=1,
            progress=lambda state: report(replace(state, method=query.method, image=image)),
        )
        network, images = self.subjects[query.line.network].network, self.images[query.line.network].images
        label = torch.tensor([query.question.label])
        (answer,) = CONTENDERS[query.method].ask(network, images[image : image + 1], label, setting)
        return replace(answer, image=image)  # type: ignore[type-var]


def _labels(images: Dataset) -> list[int]:
    assert images.labels is not None
    labels: list[int] = images.labels.tolist()
    return labels
