"""A run: what the store has is taken from it, all else is answered and kept as it comes; answers leave in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Generic

from relucert.common.checks import checked_path
from relucert.common.listening import faults_of, listener
from relucert.common.progress import Listener, Progress, ProgressLike, Report, silent
from relucert.execution.execution import Came, Execution, Worked, here
from relucert.execution.job import ImageJob, Item, Job, Learner, ReplyType
from relucert.inputs.storage.store import About, Anew, Section, StoreLike, open_store

EXPERIENCE = "experience "  # before a method's name: the note of what its first item taught


def start(
    job: Job[ReplyType], workers: int | Execution | None, ray: str | None, store: StoreLike | None,
    progress: ProgressLike = None, *, again: bool = False,
) -> Iterator[ReplyType]:  # fmt: skip
    """Checks how the job is to be run and opens the store; the answers come in the order of the questions.

    Args:
        progress: Who is told how far it is, besides an execution that wants to know.
        again: Whether also what the store has is answered once more.
    """
    with ExitStack() as stack:
        execution = workers if isinstance(workers, Execution) else stack.enter_context(Execution(workers, ray))
        told = listener(False if progress is None and execution.tell is not None else progress)
        stack.callback(told.close)
        run = _Run(job, execution, told, _section(job, store), again)
        return run.answers(stack.pop_all().close, not isinstance(store, Section))


def _section(job: Job[ReplyType], store: StoreLike | None) -> Section | None:
    """The section of a store that is the job's."""
    if store is None or isinstance(store, Section):
        return store
    path = store if isinstance(store, Anew) else checked_path(store, "a store of answers")
    return Section(open_store(path, job.asked))


def _drained(work: Worked) -> KeyboardInterrupt | None:
    """Ends work that has nothing more to give; an interruption that the last answer tells of waits until it is out."""
    try:
        deque(work, maxlen=0)
    except KeyboardInterrupt as interruption:
        return interruption
    return None


class _Run(Generic[ReplyType]):
    def __init__(
        self, job: Job[ReplyType], execution: Execution, told: Listener, section: Section | None, again: bool
    ) -> None:
        self.job, self.execution, self.told, self.section = job, execution, told, section
        self.total = sum(map(len, job.items))
        self.ready: dict[int, ReplyType] = {}
        self.done = 0
        nobody = execution.tell is None and type(told) is Listener
        self.report: Report = silent if nobody else self._tell
        self.about: list[About] = []
        if section is not None:
            self._recall(section, again)

    def _recall(self, section: Section, again: bool) -> None:
        try:
            self.job.check(section.store)
        except BaseException:
            section.store.close()
            raise
        self.about = [section.about(about) for about in self.job.about()]
        for number, about in enumerate(self.about):
            answer = None if again else section.store.get(about)
            if answer is not None and self.job.is_whole(number, answer):
                self.ready[number] = answer

    def answers(self, close: Callable[[], None], close_store: bool) -> Iterator[ReplyType]:
        left = [tuple(number for number in item if number not in self.ready) for item in self.job.items]
        self.done = len(self.ready)
        work = self._kept([item for item in left if item])
        stopped: KeyboardInterrupt | None = None
        try:
            with faults_of(self.told):
                self.report(Progress())
                for number in range(self.total):
                    while number not in self.ready:
                        came = next(work, None)
                        assert came is not None or number in self.ready, "every item is answered"
                        self._take(came or [])
                        self.report(Progress())
                        if self.done == self.total:
                            stopped = _drained(work)  # so that workers are idle, and serve what is asked next
                    yield self.ready.pop(number)
                if stopped is not None:
                    raise stopped
        finally:
            work.close()
            close()
            if self.section is not None and close_store:
                self.section.store.close()

    def _tell(self, news: Progress) -> None:
        state = replace(news, done=self.done, total=self.total)
        if self.execution.tell is not None:
            self.execution.tell(state)
        self.told.tell(state)

    def _take(self, came: Came) -> None:
        self.ready.update(came)
        self.done += len(came)

    def _kept(self, items: list[Item]) -> Worked:
        """New answers, each once the store has it."""
        answerer: object = self.job.answerer if isinstance(self.job, ImageJob) else None
        if isinstance(answerer, Learner):
            answerer.experience = answerer.experience or self._experience
            while answerer.experience is None and items:
                for came in here(self.job, items[:1], self.report):
                    self._keep(came, answerer.experience)
                    yield came
                items = items[1:]
        work = self.execution.run(self.job, self._unsettled(items), len(items), self.report)
        try:
            for came in work:
                self._keep(came)
                yield came
        finally:
            work.close()

    def _unsettled(self, items: list[Item]) -> Iterator[Item]:
        """The items that are to be worked on, each when its turn comes; what needs no work is ready at once."""
        for item in items:
            settled = [(number, answer) for number in item if (answer := self.job.settled(number)) is not None]
            self._take(settled)
            if len(settled) < len(item):
                yield tuple(number for number in item if number not in self.ready)

    @property
    def _experience(self) -> str | None:
        return None if self.section is None else self.section.store.notes.get(f"{EXPERIENCE}{self.section.method}")

    def _keep(self, came: Came, experience: str | None = None) -> None:
        notes = {} if experience is None or self.section is None else {f"{EXPERIENCE}{self.section.method}": experience}
        for number, answer in came:
            notes |= self.job.came(number, answer)
        if self.section is not None:
            self.section.store.add([(self.about[number], answer) for number, answer in came], notes)
