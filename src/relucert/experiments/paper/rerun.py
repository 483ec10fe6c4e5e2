"""Runs a table with the paper's protocol: every image is a question by itself, misclassified images are skipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relucert.answers.certificates import Answer
from relucert.common.valid import valid_inputs
from relucert.data import Dataset
from relucert.errors import ContradictionError
from relucert.execution.execution import Execution
from relucert.execution.run import start
from relucert.experiments.comparison.methods import CONTENDERS, Contender, Entry, Setting
from relucert.experiments.comparison.order import AnswerRecord
from relucert.experiments.comparison.ranking import Ranking, rankings
from relucert.experiments.paper.job import Omitted, TableJob, TableQuestion
from relucert.experiments.paper.networks import Subject
from relucert.experiments.paper.published import PublishedLine
from relucert.inputs.storage.store import Section, Store
from relucert.network import find_inference
from relucert.query.questions import pose
from relucert.query.types import BoxLike
from relucert.report.paper_table import TableCell
from relucert.report.reading import AnswerKind

PIXELS = (-0.5, 0.5)  # the paper's valid inputs of attacks, exact answers and CLEVER


class Rerun:
    """The answers of a table, taken from the store where it has them.

    Attributes:
        subjects, images: By the network's name in the table.
        failed: What errors inside methods said, one entry per answer that they spoilt; such an answer is not stored.
            Grows during the run, and so does `skipped`.
        protocol: Whether the valid inputs are those of the paper: every input for certificates, pixels from -0.5 to
            0.5 for attacks, exact answers and CLEVER. Otherwise those of the setting, for all methods.
    """

    def __init__(
        self,
        lines: Sequence[PublishedLine],
        subjects: Mapping[str, Subject],
        images: Mapping[str, Dataset],
        contenders: Sequence[Contender],
        setting: Setting,
        effort: Mapping[str, Any],
        protocol: bool,
    ) -> None:
        self.lines, self.subjects, self.images = lines, subjects, images
        self.contenders, self.setting, self.protocol = contenders, setting, protocol
        self.job = TableJob(subjects, images, setting, self._questions(), effort)
        self.failed: dict[str, list[str]] = {}
        self._answer_records = [AnswerRecord(each_rival=False) for _ in lines]

    def run(self, store: Store, execution: Execution, again: bool, came: Callable[[], None]) -> None:
        """Computes the answers that are missing, with `again` all of them. `came` is called after each."""
        self.job.recall(store.notes, again)
        stored = [None if again else store.get(about) for about in self.job.about()]
        for query, kept in zip(self.job.questions, stored, strict=True):  # first, so that no table loses what it had
            if kept is not None:
                self._take(query, kept, store)
        replies = start(self.job, execution, None, Section(store), again=again)
        for query, kept, reply in zip(self.job.questions, stored, replies, strict=True):
            if kept is None:
                error = reply.error if isinstance(reply, Omitted) else reply.reason if reply.failed else None
                if error is not None:
                    self.failed.setdefault(query.course, []).append(error)
                if not isinstance(reply, Omitted):
                    self._take(query, reply, store)
                came()

    def _take(self, query: TableQuestion, answer: Answer, store: Store) -> None:
        try:
            self._answer_records[query.row].add(Entry(query.method, CONTENDERS[query.method].kind, answer))
        except ContradictionError as error:
            line = query.line
            where = f"{line.network}, p = {line.norm}, {line.target}, stored in {store.path}"
            raise ContradictionError(f"{where}: {error}") from error

    @property
    def skipped(self) -> dict[str, str]:
        """The methods that were left out, and why."""
        return self.job.skipped

    def cells(self) -> list[TableCell]:
        """One cell per line of the table and method, computed from the answers so far."""
        cells = []
        for line, record in zip(self.lines, self._answer_records, strict=True):
            by_method = {ranking.method: ranking for ranking in rankings(record.entries)}
            for contender in self.contenders:
                name = contender.name
                ranking = by_method.get(name, Ranking(name, contender.kind))
                bound = line.sound(name) and contender.kind is not AnswerKind.ESTIMATE
                cells.append(
                    TableCell(
                        network=line.network,
                        same_network=self.subjects[line.network].authors,
                        norm=line.norm,
                        target=line.target,
                        valid_inputs=valid_inputs(self.box(contender)),
                        method=name,
                        kind=contender.kind,
                        inference=self.setting.inference,
                        images=ranking.count,
                        mean=ranking.mean,
                        seconds=ranking.seconds,
                        closed=ranking.closed,
                        published=line.radii.get(name),
                        published_is_a_bound=bound if name in line.radii else None,
                        published_seconds=line.seconds.get(name),
                    )
                )
        return cells

    def box(self, contender: Contender) -> BoxLike | None:
        """The valid inputs of a method's questions."""
        if not self.protocol:
            return self.setting.box
        return None if contender.kind is AnswerKind.CERTIFIED else PIXELS

    @property
    def valid(self) -> str:
        """The valid inputs, in words."""
        if self.protocol:
            return f"as in the paper: {valid_inputs(None)} for certificates, {valid_inputs(PIXELS)} for all else"
        return valid_inputs(self.setting.box)

    def _questions(self) -> list[TableQuestion]:
        """Every method's question about every image that is classified rightly."""
        questions = []
        for row, line in enumerate(self.lines):
            subject, images = self.subjects[line.network], self.images[line.network]
            evaluated = subject.network.evaluated_in(find_inference(self.setting.inference))
            inquiry = pose(evaluated, images.images, images.labels, line.target, self.setting.seed)
            questions += [
                TableQuestion(row, line, question, contender.name, self.box(contender))
                for question in inquiry.questions
                if not question.misclassified
                for contender in self.contenders
            ]
        return questions
