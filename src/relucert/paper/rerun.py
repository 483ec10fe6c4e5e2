"""Runs a table with the paper's protocol: one image after another, misclassified ones skipped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from relucert.comparison.deadline import OutOfTime, limited
from relucert.comparison.methods import Contender, Entry, Kind, Setting
from relucert.comparison.order import Ledger
from relucert.comparison.ranking import Ranking, rankings
from relucert.data import Dataset
from relucert.errors import FAULTS, ContradictionError, RelucertError, in_one_line
from relucert.network import Network, find_inference
from relucert.norm import Norm
from relucert.paper.networks import Subject
from relucert.paper.published import Line
from relucert.paper.store import Course, Store
from relucert.query.given import BoxLike
from relucert.query.questions import SEED_STEP, Question, pose

PIXELS = (-0.5, 0.5)  # the paper's valid inputs, where it minds them


@dataclass(frozen=True)
class Result:
    """A line of the table, computed anew: the ranking of each method, by its name."""

    line: Line
    label: str
    authors: bool
    rankings: dict[str, Ranking]


class Rerun:
    """The answers of a table, taken from the store where it has them.

    Attributes:
        subjects, images: By the network's name in the table.
        skipped: What was left out, and why. failed: What errors inside methods said, one entry per answer that they
            spoilt; such an answer is not stored. Both grow during the run.
        protocol: Whether the valid inputs are those of the paper: every input for certificates, pixels from -0.5 to
            0.5 for attacks, exact answers and CLEVER. Otherwise those of the setting, for all methods.
    """

    def __init__(
        self,
        subjects: Mapping[str, Subject],
        images: Mapping[str, Dataset],
        contenders: Sequence[Contender],
        setting: Setting,
        store: Store,
        protocol: bool,
    ) -> None:
        self.subjects, self.images, self.contenders = subjects, images, contenders
        self.setting, self.store, self.protocol = setting, store, protocol
        self.skipped: dict[str, str] = {}
        self.failed: dict[str, list[str]] = {}
        self._ledgers: list[tuple[Line, Ledger]] = []

    def run(self, lines: Sequence[Line], advance: Callable[[int], None]) -> None:
        """Asks for the answers that are missing, line by line; `advance` is called with the number of images done."""
        done = 0
        for line in lines:
            ledger = Ledger(each_rival=False)
            self._ledgers.append((line, ledger))
            subject, images = self.subjects[line.network], self.images[line.network]
            setting = replace(self.setting, norm=Norm.parse(line.norm), target=line.target)
            evaluated = subject.network.evaluated_in(find_inference(setting.inference))
            asked = pose(evaluated, images.images, images.labels, line.target, setting.seed)
            for question in asked.questions:
                if not question.misclassified:
                    try:
                        self._image(line, subject, images, question, setting, ledger)
                    except ContradictionError as error:
                        where = f"{line.network}, p = {line.norm}, {line.target}, stored in {self.store.path}"
                        raise ContradictionError(f"{where}: {error}") from error
                done += 1
                advance(done)

    @property
    def methods(self) -> list[str]:
        return [contender.name for contender in self.contenders]

    def results(self) -> list[Result]:
        """The lines of the table as far as they are known."""
        results = []
        for line, ledger in self._ledgers:
            subject = self.subjects[line.network]
            by_method = {ranking.method: ranking for ranking in rankings(ledger.entries)}
            results.append(Result(line, subject.label, subject.authors, by_method))
        return results

    def box(self, contender: Contender) -> BoxLike | None:
        """The valid inputs that a method is asked about."""
        if not self.protocol:
            return self.setting.box
        return None if contender.kind is Kind.CERTIFIED else PIXELS

    def _image(
        self, line: Line, subject: Subject, images: Dataset, question: Question, setting: Setting, ledger: Ledger
    ) -> None:
        """Every method's answer about one image."""
        for contender in self.contenders:
            limit = setting.budget if contender.timed else None
            key = (
                line.network, subject.digest, line.norm, line.target, contender.name, limit,
                _mark(images, question), question.image,
            )  # fmt: skip
            entry = self.store.get(key)
            if entry is None:
                asked = replace(setting, box=self.box(contender))
                work = partial(_ask, contender, subject.network, images, question, asked)
                entry = self._limited((line.network, subject.digest, line.norm, contender.name), question, work)
                if entry is None:
                    continue
                if not entry.failed:
                    self.store.add(key, entry)
            ledger.add(entry)

    def _limited(self, course: Course, question: Question, work: Callable[[], Entry]) -> Entry | None:
        """The work's answer; None where its method is left out, which is noted."""
        network, _, norm, method = course
        what, budget = f"{method} on {network}, p = {norm}", self.setting.budget
        if what in self.skipped:
            return None
        if (reason := self.store.too_slow(course, budget)) is not None:
            self.skipped[what] = f"{reason}; a larger --budget tries again"
            return None
        try:
            entry = limited(work, budget)
        except OutOfTime:
            self.skipped[what] = f"image {question.image} took more than the budget of {budget:g} s"
            self.store.note_slow(course, budget, self.skipped[what])
        except RelucertError as error:
            self.skipped[what] = str(error)
        except FAULTS as error:
            self.skipped[what] = f"failed: {in_one_line(error)}"
            self.failed.setdefault(what, []).append(in_one_line(error))
        else:
            if entry.failed:
                self.failed.setdefault(what, []).append(entry.reason or "")
            return entry
        return None


def _mark(images: Dataset, question: Question) -> str:
    """A checksum of an image and its label, by which stored answers are recognised."""
    pixels = images.images[question.image].double().contiguous().numpy().tobytes()
    return hashlib.sha256(pixels + str(question.label).encode()).hexdigest()[:16]


def _ask(contender: Contender, network: Network, images: Dataset, question: Question, setting: Setting) -> Entry:
    """One answer, the same as in a run over all images at once."""
    place = question.image
    image_setting = replace(setting, seed=(setting.seed + SEED_STEP * place) % 2**63)
    if len(question.rivals) == 1:
        image_setting = replace(image_setting, target=question.rivals[0])
    image, label = images.images[place : place + 1], torch.tensor([question.label])
    (answer,) = contender.ask(network, image, label, image_setting)
    return Entry(contender.name, contender.kind, replace(answer, image=place))  # type: ignore[type-var]
