"""The work of a run: questions in items that may be answered anywhere, by an answerer that can travel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from relucert.answers import Answer
from relucert.query.questions import Inquiry, Question

AnswerType = TypeVar("AnswerType", bound=Answer)
AnswerTypeCo = TypeVar("AnswerTypeCo", bound=Answer, covariant=True)

Item = tuple[int, ...]
"""Numbers of questions that are answered together."""


class Answerer(Protocol[AnswerTypeCo]):
    """A method with its network and options; it can be pickled, without what only this process has."""

    def run(self, inquiry: Inquiry) -> Iterator[Sequence[AnswerTypeCo]]:
        """The answers to the inquiry's questions, in order; those that came together in one sequence."""

    def lost(self, inquiry: Inquiry, question: Question, reason: str) -> AnswerTypeCo:
        """A failed answer: the processes that worked on the question ended."""


@runtime_checkable
class Learner(Protocol):
    """An answerer that all items but the first start from what the first one taught.

    experience: That; None before the first item.
    """

    experience: str | None


@dataclass(frozen=True, eq=False)
class Job(Generic[AnswerType]):
    """What is asked, and of whom.

    Attributes:
        answerer: Who answers.
        inquiry: Every question, with the images.
        items: Which questions are answered together: the same whoever answers, so that answers are the same, too.
        asked: What identifies the run in a store, whatever the images.
        most_workers: How many items may be worked on at once, by memory.
    """

    answerer: Answerer[AnswerType]
    inquiry: Inquiry
    items: Sequence[Item]
    asked: dict[str, Any]
    most_workers: int | None = None

    def answer(self, numbers: Sequence[int]) -> Iterator[Sequence[AnswerType]]:
        """The answers to some questions, in order."""
        questions = [self.inquiry.questions[number] for number in numbers]
        return self.answerer.run(replace(self.inquiry, questions=questions))

    def lost(self, number: int, reason: str) -> AnswerType:
        return self.answerer.lost(self.inquiry, self.inquiry.questions[number], reason)


def in_steps(inquiry: Inquiry, step: int) -> list[Item]:
    """Items of at most `step` questions."""
    count = len(inquiry.questions)
    return [tuple(range(first, min(first + step, count))) for first in range(0, count, step)]


def by_images(inquiry: Inquiry, step: int, first: int | None = None) -> list[Item]:
    """Items of at most `step` questions, the first of at most `first`, or one image's, which are never parted."""
    items: list[Item] = []
    numbers: list[int] = []
    for _, group in groupby(range(len(inquiry.questions)), key=lambda number: inquiry.questions[number].image):
        of_image = list(group)
        most = step if items or first is None else first
        if numbers and len(numbers) + len(of_image) > most:
            items.append(tuple(numbers))
            numbers = []
        numbers += of_image
    return [*items, tuple(numbers)]
