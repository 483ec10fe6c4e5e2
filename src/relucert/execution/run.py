"""A run: what the store has is taken from it, all else is answered and kept as it comes; answers leave in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic

from relucert.checks import checked_path
from relucert.execution.execution import Came, Execution, Worked
from relucert.execution.job import AnswerType, Item, Job, Learner
from relucert.storage.store import Key, Section, Store, StoreLike, mark

EXPERIENCE = "experience "  # before a method's name: the note of what its first item taught


def start(
    job: Job[AnswerType], workers: int | Execution | None, ray: str | None, store: StoreLike | None, again: bool = False
) -> Iterator[AnswerType]:
    """Checks how the job is to be run and opens the store; the answers come in the order of the questions.

    again: whether also what the store has is answered once more.
    """
    if isinstance(workers, Execution):
        execution, close = workers, _nothing
    else:
        execution = Execution(workers, ray)
        close = execution.close
    section = None
    if isinstance(store, Section):
        section = store
    elif store is not None:
        path: Path = checked_path(store, "a store of answers")
        section = Section(Store(path, job.asked), "")
    return _Run(job, execution, section, again).answers(close, not isinstance(store, Section))


def _nothing() -> None:
    pass


class _Run(Generic[AnswerType]):
    def __init__(self, job: Job[AnswerType], execution: Execution, section: Section | None, again: bool) -> None:
        self.job, self.execution, self.section = job, execution, section
        self.ready: dict[int, AnswerType] = {}
        self.keys: list[Key] = []
        if section is not None:
            self._recall(section, again)

    def _recall(self, section: Section, again: bool) -> None:
        images, questions = self.job.inquiry.images, self.job.inquiry.questions
        labels = {question.image: question.label for question in questions}
        marks = [mark(images[image], label) for image, label in sorted(labels.items())]
        try:
            section.store.check_images(marks)
        except BaseException:
            section.store.close()
            raise
        self.keys = [(section.method, one.image, marks[one.image], tuple(one.rivals)) for one in questions]
        for number, key in enumerate(self.keys):
            answer = None if again else section.store.get(key)
            if answer is not None:
                self.ready[number] = answer

    def answers(self, close: Callable[[], None], close_store: bool) -> Iterator[AnswerType]:
        total = len(self.job.inquiry.questions)
        left = [tuple(number for number in item if number not in self.ready) for item in self.job.items]
        done, following = len(self.ready), 0
        self.execution.tell(done, total)
        work = self._kept([item for item in left if item])
        try:
            while following < total:
                while following in self.ready:
                    yield self.ready.pop(following)
                    following += 1
                if following < total:
                    came = next(work)
                    self.ready.update(came)
                    done += len(came)
                    self.execution.tell(done, total)
        finally:
            work.close()
            close()
            if self.section is not None and close_store:
                self.section.store.close()

    def _kept(self, items: list[Item]) -> Worked:
        """What comes, once the store has it."""
        answerer = self.job.answerer
        if isinstance(answerer, Learner):
            answerer.experience = answerer.experience or self._experience
            if answerer.experience is None and items:
                numbers = iter(items[0])
                for answers in self.job.answer(items[0]):
                    came = [(next(numbers), answer) for answer in answers]
                    self._keep(came, answerer.experience)
                    yield came
                items = items[1:]
        work = self.execution.run(self.job, items)
        try:
            for came in work:
                self._keep(came)
                yield came
        finally:
            work.close()

    @property
    def _experience(self) -> str | None:
        return None if self.section is None else self.section.store.notes.get(f"{EXPERIENCE}{self.section.method}")

    def _keep(self, came: Came, experience: str | None = None) -> None:
        if self.section is not None:
            notes = {} if experience is None else {f"{EXPERIENCE}{self.section.method}": experience}
            self.section.store.add([(self.keys[number], answer) for number, answer in came], notes)
