"""The work of a run: questions in items that may be answered anywhere, by an answerer that can travel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from relucert.answers.certificates import Answer, Reply
from relucert.common.progress import Report, silent
from relucert.inputs.storage.store import About, Store, mark

if TYPE_CHECKING:
    from relucert.query.questions import Inquiry, Question

ResultType = TypeVar("ResultType", covariant=True)
ReplyType = TypeVar("ReplyType", bound=Reply)
AnswerType = TypeVar("AnswerType", bound=Answer)
AnswerTypeCo = TypeVar("AnswerTypeCo", bound=Answer, covariant=True)

Item = tuple[Any, ...]
"""Numbers of questions that are answered together; or, of a search, shares of its open nodes."""


class Answerer(Protocol[AnswerTypeCo]):
    """A method with its network and options; it can be pickled, without what only this process has."""

    def run(self, inquiry: Inquiry, report: Report) -> Iterator[Sequence[AnswerTypeCo]]:
        """The answers to the inquiry's questions, in order; those that came together in one sequence.

        report: Called with how far the work on them is, often: it must be quick.
        """

    def lost(self, inquiry: Inquiry, question: Question, reason: str) -> AnswerTypeCo:
        """A failed answer: the processes that worked on the question ended."""


@runtime_checkable
class Learner(Protocol):
    """An answerer that later items start from what the first one taught that had something to search.

    experience: That; None before it.
    """

    experience: str | None


class Work(Protocol[ResultType]):
    """Questions, by their numbers or as they are, and who answers them; it can be pickled, and answers anywhere."""

    @property
    def most_workers(self) -> int | None:
        """How many items may be worked on at once, by memory; None: any number."""

    @property
    def divisible(self) -> bool:
        """Whether each question is a search that several workers can share."""

    def answer(self, numbers: Sequence[Any], report: Report = silent) -> Iterator[Sequence[ResultType]]:
        """The answers to some questions, in order; those that came together in one sequence.

        report: As of an `Answerer`.
        """

    def lost(self, number: Any, reason: str) -> ResultType:
        """A failed answer: the processes that worked on the question ended."""


class Job(Work[ReplyType], Protocol[ReplyType]):
    """Work whose answers a store may keep; by default nothing stands beside them, and all questions need work."""

    @property
    def items(self) -> Sequence[Item]:
        """The groups of questions that are answered together: the same whoever answers, so that answers are, too."""

    @property
    def asked(self) -> dict[str, Any]:
        """The identity of the run in a store: everything that its answers depend on but what `about` says."""

    def about(self) -> list[About]:
        """The subject of each question, by which its answer is found in a store."""

    def check(self, store: Store) -> None:
        """Raises StoreError where a store's answers are about other things than they should be."""

    def is_whole(self, number: int, answer: ReplyType) -> bool:
        """Whether a store's answer is all that was asked for, with what was to be written beside it."""
        return True

    def came(self, number: int, answer: ReplyType) -> Mapping[str, str]:
        """Told of every new answer where the run was started; what a store is to note beside it."""
        return {}

    def settled(self, number: int) -> ReplyType | None:
        """The answer to a question that needs no work, given those that came; asked before the work on it begins."""
        return None


class Proofs(Protocol):
    """A writer of proof files."""

    def has(self, inquiry: Inquiry, question: Question, radius: float) -> bool:
        """Whether there is a proof of this radius."""


@dataclass(frozen=True, eq=False)
class ImageJob(Generic[AnswerType]):
    """Questions about images, put to one method.

    Attributes:
        answerer: Who answers.
        inquiry: Every question, with the images.
        items, asked, most_workers, divisible: As of any `Job`; the images do not count.
        proofs: Who writes a proof of every certified radius; None where none are asked for.
    """

    answerer: Answerer[AnswerType]
    inquiry: Inquiry
    items: Sequence[Item]
    asked: dict[str, Any]
    most_workers: int | None = None
    divisible: bool = False
    proofs: Proofs | None = None

    def answer(self, numbers: Sequence[int], report: Report = silent) -> Iterator[Sequence[AnswerType]]:
        """The answers to some questions, in order."""
        questions = [self.inquiry.questions[number] for number in numbers]
        return self.answerer.run(replace(self.inquiry, questions=questions), report)

    def about(self) -> list[About]:
        marks = self._marks()
        return [
            {"method": "", "image": asked.image, "pixels": marks[asked.image], "rivals": list(asked.rivals)}
            for asked in self.inquiry.questions
        ]

    def check(self, store: Store) -> None:
        store.check_images(self._marks())

    def is_whole(self, number: int, answer: AnswerType) -> bool:
        if self.proofs is None or getattr(answer, "radius", None) is None:
            return True
        return self.proofs.has(self.inquiry, self.inquiry.questions[number], answer.radius)  # type: ignore[attr-defined]

    def lost(self, number: int, reason: str) -> AnswerType:
        return self.answerer.lost(self.inquiry, self.inquiry.questions[number], reason)

    def came(self, number: int, answer: AnswerType) -> Mapping[str, str]:
        return {}

    def settled(self, number: int) -> None:
        return None

    def _marks(self) -> list[str]:
        """The checksum of each image with its label."""
        labels = {question.image: question.label for question in self.inquiry.questions}
        return [mark(self.inquiry.images[image], label) for image, label in sorted(labels.items())]


def in_steps(inquiry: Inquiry, step: int) -> list[Item]:
    """Items of at most `step` questions."""
    count = len(inquiry.questions)
    return [tuple(range(first, min(first + step, count))) for first in range(0, count, step)]


def by_images(inquiry: Inquiry, step: int, first: int | None = None) -> list[Item]:
    """Items of at most `step` questions, or of one image, whose questions are never parted; of at most `first` up to
    the first item that has something to search."""
    items: list[Item] = []
    numbers: list[int] = []
    most = step if first is None else first
    for _, group in groupby(range(len(inquiry.questions)), key=lambda number: inquiry.questions[number].image):
        of_image = list(group)
        if numbers and len(numbers) + len(of_image) > most:
            items.append(tuple(numbers))
            if any(inquiry.questions[number].refusal is None for number in numbers):
                most = step
            numbers = []
        numbers += of_image
    return [*items, tuple(numbers)]
